"""What the README and the pages of the docs show runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language: str) -> list[tuple[str, str]]:
    """The code blocks of a language with the page they stand on."""
    found = []
    for page in PAGES:
        for i, code in enumerate(re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.S)):
            found.append((f"{page.name}-{i}", code))
    return found


@pytest.mark.parametrize(("name", "code"), [pytest.param(*b, id=b[0]) for b in blocks("python")])
def test_python_blocks_run(name: str, code: str, tmp_path: Path) -> None:
    file = tmp_path / "block.py"  # a file, so that places in the user's code can be found
    file.write_text(code)
    exec(compile(code, str(file), "exec"), {"__name__": "block"})


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_commands_are_verbs_that_exist() -> None:
    from typer.testing import CliRunner

    from tfgraph.cli import app

    shown = {
        line.split()[1]
        for page in PAGES
        for line in page.read_text().splitlines()
        if line.startswith("tfgraph ")
    }
    for verb in sorted(shown):
        assert CliRunner().invoke(app, [verb, "--help"]).exit_code == 0, verb
