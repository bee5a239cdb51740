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


BODY = """
from tfgraph.ops import Array, op
from tfgraph.ops.infer import like_first

@op(infer=like_first)
def mistaken_op(x: Array, /) -> Array:
    return x.no_such_thing
"""
RULE = """
from tfgraph.passes import add_rule, call, rule, var

@rule(call("softmax", var("x")))
def mistaken(x):
    return x.type.no_such_thing
add_rule("simplify", mistaken)
"""


@pytest.mark.parametrize(
    ("code", "line", "place"),
    [
        (BODY, "run m.tfg --target numpy", "plug.py:7"),
        (BODY, "compare m.tfg", "plug.py:7"),
    ],
)
def test_a_mistake_that_shows_later_is_blamed_at_its_line_too(
    tfgraph: Callable[..., Any], tmp_path: Path, code: str, line: str, place: str
) -> None:
    (tmp_path / "plug.py").write_text(code)
    (tmp_path / "m.tfg").write_text(MODEL.replace("NAME", "mistaken_op"))
    result = tfgraph(*line.split(), "--plugin", "plug.py")
    assert result.code == 2
    first, source, hint = result.err.splitlines()
    assert first.startswith(f"{place}: error: AttributeError: ")
    assert source.startswith("        return x.")
    assert hint == "hint: -v shows the traceback"
    assert "Traceback" in tfgraph(*line.split(), "--plugin", "plug.py", "-v").err


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ("x.type.no_such_thing", "AttributeError: 'TensorType' object has no attribute 'no_such_t"),
        ("x.flatten()", "a value of a graph has no attribute 'flatten'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("causal() or x", "causal() and ...: masks intersect with &"),
        ("call('softmax', 'x y')", "'x y' is no pattern"),
    ],
)
def test_a_mistake_in_a_rule_is_told_and_does_not_decline(
    tfgraph: Callable[..., Any], tmp_path: Path, wrong: str, error: str
) -> None:
    """With the rule, the line, and what was raised."""
    code = RULE.replace("x.type.no_such_thing", wrong)
    (tmp_path / "plug.py").write_text("from tfgraph import causal\n" + code)
    result = tfgraph("inspect", "tiny.tfg", "--fused", "--plugin", "plug.py")
    assert result.code == 2
    first, source, *_ = result.err.splitlines()
    assert "plug.py:7:" in first
    assert f": error: rule mistaken: {error}" in first
    assert source == f"        return {wrong}"
    assert "hint: " in result.err
    if "Error" in error:
        assert "hint: -v shows the traceback" in result.err
        verbose = tfgraph("inspect", "tiny.tfg", "--fused", "--plugin", "plug.py", "-v").err
        assert "Traceback" in verbose


def test_a_mistake_in_a_body_that_a_model_file_defines(
    tfgraph: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "m.py").write_text(
        BODY + "from tfgraph import graph\nwith graph('g') as g:\n"
        "    g.output('y', mistaken_op(g.input('x', 'f32', 3)))\n"
    )
    result = tfgraph("run", "m.py:g", "--target", "numpy")
    assert (result.code, result.err.partition(" ")[0]) == (2, "m.py:7:")


def test_what_a_python_file_prints_is_no_result(
    tfgraph: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "noisy.py").write_text(
        "print('loaded')\nfrom tfgraph import graph, ops\nwith graph('g') as g:\n"
        "    g.output('y', ops.relu(g.input('x', 'f32', 3)))\n"
    )
    (tmp_path / "plug.py").write_text("print('plugged')\n" + CUBE)
    result = tfgraph("inspect", "noisy.py:g", "--plugin", "plug.py", "--json")
    assert result.json["nodes"] == 1
    assert result.err == "plugged\nloaded\n"


def test_an_artifact_that_needs_an_extension_to_be_shown_says_so(
    tfgraph: Callable[..., Any], tmp_path: Path
) -> None:
    from tfgraph import plugins
    from tfgraph.ops import REGISTRY

    (tmp_path / "cube.py").write_text(CUBE)
    (tmp_path / "c.tfg").write_text(MODEL.replace("NAME", "cube_of_plugin"))
    assert tfgraph("compile", "c.tfg", "--plugin", "cube.py", "-o", "art").code == 0
    del REGISTRY["cube_of_plugin"]
    plugins._loaded.clear()
    for spec in ("art", "c.tfg"):
        result = tfgraph("inspect", spec)
        assert result.code == 2
        assert "unknown op 'cube_of_plugin'" in result.err
        assert "--plugin FILE loads" in result.err.splitlines()[-1]
    assert tfgraph("run", "art").code == 0
    assert tfgraph("inspect", "art", "--plugin", "cube.py").code == 0


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
    assert "  no change: nothing-of-package, fuse-add-norm\n" in text.out
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


UNREGISTERED = """
from tfgraph.passes import Rule, RulePass, call, rule, var

@rule(call("neg", call("neg", var("x"))))
def twice(x):
    return x
"""
PASS = """
class Twice(RulePass):
    name = "twice"
    rules = [twice]
"""


@pytest.mark.parametrize(
    ("code", "warning"),
    [
        ("x = 1\n", "plug.py registers nothing: no op, rule, pass, backend or kernel"),
        (UNREGISTERED, 'plug.py: the rule twice joins no pass: add_rule("PASS", twice)'),
        (UNREGISTERED + PASS, "plug.py: the pass Twice needs @register_pass above its class"),
        (CUBE + UNREGISTERED, 'plug.py: the rule twice joins no pass: add_rule("PASS", twice)'),
        (UNREGISTERED + "from tfgraph.passes import add_rule\nadd_rule('simplify', twice)\n", None),
        (UNREGISTERED + PASS + "from tfgraph.passes import register_pass\nregister_pass(Twice)\n",
         None),
        ("from tfgraph.backends import register_backend\n"
         "from tfgraph.backends.numpy import NumpyBackend\n"
         "register_backend('other', NumpyBackend)\n", None),
    ],
)  # fmt: skip
def test_what_a_file_does_not_register(
    tfgraph: Callable[..., Any], tmp_path: Path, code: str, warning: str | None
) -> None:
    (tmp_path / "plug.py").write_text(code)
    result = tfgraph("inspect", "tiny.tfg", "--plugin", "plug.py")
    assert result.code == 0
    assert result.err == (f"warning: {warning}\n" if warning else "")
