"""Extensions: `--plugin file.py` and entry points of installed packages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CUBE = """
from tfgraph.ops import Array, mul, op
from tfgraph.ops.infer import like_first

@op(infer=like_first, kind="composite")
def cube_of_plugin(x: Array, /) -> Array:
    '''x * x * x.'''
    return mul(mul(x, x), x)
"""
MODEL = """\
graph c(%x: f32[3]) {
  %y = NAME(%x) : f32[3]
  return %y
}
"""


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """What plugins register goes when the test is over."""
    from tfgraph.ops import REGISTRY
    from tfgraph.passes import PASSES, FuseAddNorm

    for registry in (REGISTRY, PASSES):
        saved = dict(registry)
        for name in saved:
            monkeypatch.setitem(registry, name, saved[name])
    monkeypatch.setattr("tfgraph.backends.base._REGISTERED", {})
    monkeypatch.setattr(FuseAddNorm, "rules", list(FuseAddNorm.rules))


def test_an_op_from_a_file(tfgraph: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "cube.py").write_text(CUBE)
    (tmp_path / "c.tfg").write_text(MODEL.replace("NAME", "cube_of_plugin"))
    line = ("run", "c.tfg", "--target", "numpy", "--save", "o", "--json", "--plugin", "cube.py")
    assert tfgraph(*line).json["outputs"]["y"]["shape"] == [3]
    # Composite, so every backend has it.
    assert tfgraph("compare", "c.tfg", "--plugin", "cube.py").code == 0


def test_a_plugin_that_fails_is_blamed_at_its_line(
    tfgraph: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "bad.py").write_text("x = 1\ny = x / 0\n")
    result = tfgraph("inspect", "tiny.tfg", "--plugin", "bad.py")
    assert (result.code, result.err) == (
        2,
        "bad.py:2: error: ZeroDivisionError: division by zero\n    y = x / 0\n",
    )
    (tmp_path / "bad.py").write_text("x = = 1\n")
    assert tfgraph("inspect", "tiny.tfg", "--plugin", "bad.py").err.startswith(
        "bad.py:1:5: error: not Python: invalid syntax\n"
    )


ENTRY_POINTS = """\
[tfgraph.ops]
cube = plugin_package_of_tests
[tfgraph.passes]
nothing = plugin_package_of_tests:Nothing
[tfgraph.rules]
fuse-add-norm.none = plugin_package_of_tests:RULES
[tfgraph.backends]
toy = plugin_package_of_tests:Toy
"""
PACKAGE = (
    CUBE.replace("cube_of_plugin", "cube_of_package")
    + """
from dataclasses import dataclass
from tfgraph.backends.numpy import NumpyBackend
from tfgraph.passes import NoMatch, Pass, call, rule, var
from tfgraph.passes.rewrite import Rewrites

@dataclass(frozen=True)
class Nothing(Pass):
    name = "nothing-of-package"
    def run(self, graph):
        return Rewrites(graph)

@rule(call("softmax", var("x"), name="root"))
def never(x, root):
    raise NoMatch("never applies")

RULES = [never]

class Toy(NumpyBackend):
    name = "toy"
"""
)


def test_entry_points_of_an_installed_package(
    tfgraph: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    info = site / "plugin_package_of_tests-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: plugin-package-of-tests\nVersion: 1\n"
    )
    (info / "entry_points.txt").write_text(ENTRY_POINTS + "broken = no_such_module:Toy\n")
    (site / "plugin_package_of_tests.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(site))
    (tmp_path / "c.tfg").write_text(MODEL.replace("NAME", "cube_of_package"))
    result = tfgraph("compare", "c.tfg", "--backends", "numpy,toy", "--json")
    assert result.json["b"] == "toy"
    text = tfgraph(
        "inspect", "tiny.tfg", "--passes", "nothing-of-package,fuse-add-norm", "--fusion"
    )
    assert "nothing-of-package  0" in text.out
    assert "  never: never applies\n    at  %z = softmax  tiny.tfg:4:8\n" in text.out


def test_an_installed_extension_that_fails_is_left_out_with_a_warning(
    tfgraph: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "site" / "broken_of_tests-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-of-tests\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[tfgraph.ops]\nbroken = no_such_module\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    result = tfgraph("inspect", "tiny.tfg")
    assert result.code == 0
    assert result.err == (
        "warning: broken, an extension (tfgraph.ops), does not load: "
        "No module named 'no_such_module'\n"
    )
    assert tfgraph("--help").err == ""
