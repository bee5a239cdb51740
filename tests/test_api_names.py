"""What `import tfgraph` offers: every name of `__all__`, and nothing heavy before it is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tfgraph

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", tfgraph.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(tfgraph, name) is not None
    assert name in dir(tfgraph)


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'complie'"):
        getattr(tfgraph, "complie")  # noqa: B009 - the checkers refuse it written plainly


def test_importing_loads_nothing_else() -> None:
    heavy = "('tfgraph.', 'numpy')"
    code = f"import sys, tfgraph; print(*[m for m in sys.modules if m.startswith({heavy})])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


def test_the_names_say_what_the_types_say() -> None:
    """The lazy imports and those for type checkers list the same names."""
    source = (ROOT / "tfgraph" / "__init__.py").read_text()
    typed, lazy = source.split("\nelse:\n")
    for name in tfgraph.__all__:
        assert name in typed, name
        assert f'"{name}"' in lazy or name == "__version__", name
