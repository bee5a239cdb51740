"""`compare --bisect passes`, `--artifact` and `--save`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

RULE = """\
from tfgraph import ops
from tfgraph.passes import add_rule, call, rule, var

@rule(call("sub", var("a"), var("b")))
def backwards(a, b):
    "a - b -> b + a"
    return ops.add(b, a)

add_rule("simplify", backwards)
"""
MODEL = """\
graph m(%x: f32[n,8], %y: f32[n,8]) {
  %0 = add(%x, %y) : f32[n,8]
  %1 = sub(%0, %y) : f32[n,8]
  return z=%1
}
"""


def test_the_first_wrong_pass_is_named(tfgraph: Callable[..., Any]) -> None:
    Path("m.tfg").write_text(MODEL)
    Path("rule.py").write_text(RULE)
    line = ("compare", "m.tfg", "--bisect", "passes", "--dim", "n=2")
    right = tfgraph(*line)
    assert (right.code, right.err) == (0, "")
    assert right.out.startswith("the reference after every pass, at n=2\n")
    assert right.out.endswith("every step is right\n")
    wrong = tfgraph(*line, "--plugin", "rule.py")
    assert wrong.code == 1
    assert wrong.out.endswith("WRONG\n")
    assert "  first culprit  pass %1 = sub at m.tfg:3:8\n" in wrong.out
    assert f"pass simplify, rule backwards ({Path('rule.py').resolve()}:4): rule back" in wrong.out
    found = tfgraph(*line, "--plugin", "rule.py", "--json").json
    assert list(found) == ["ok", "dims", "import", "passes", "first_divergence"]
    assert (found["ok"], found["import"]) == (False, None)
    assert [p["name"] for p in found["passes"]] == ["simplify"]
    assert set(found["passes"][0]) == {"name", "changed", "proof", "output", "ok"}
    first = found["first_divergence"]
    assert (first["kind"], first["op"], first["location"]) == ("pass", "sub", "m.tfg:3:8")
    assert tfgraph(*line, "--plugin", "rule.py", "-q").out == "wrong\n"
    # `compare` alone comes to the same.
    plain = tfgraph("compare", "m.tfg", "--dim", "n=2", "--plugin", "rule.py", "--json").json
    assert plain["first_divergence"] == first
    assert plain["saved"] is None


def test_an_artifact_is_compared(tfgraph: Callable[..., Any]) -> None:
    assert tfgraph("compile", "tiny.tfg", "--target", "cpu").code == 0
    line = ("compare", "tiny.tfg", "--artifact", "tiny.cpu.tfgraph", "--dim", "n=2", "--json")
    found = tfgraph(*line).json
    assert (found["ok"], found["b"]) == (True, "cpu")
    Path("tiny.tfg").write_text(Path("tiny.tfg").read_text().replace("normal(1)\n}", "ones()\n}"))
    other = tfgraph(*line)
    assert other.code == 1
    first = other.json["first_divergence"]
    assert (first["kind"], first["value"], first["worst_index"]) == ("weight", "w", [0, 0])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("tiny.tfg --bisect rules", "--bisect rules: expected passes"),
        ("tiny.tfg --bisect passes --backends cpu", "--backends cpu: with --bisect it names the"),
        ("tiny.tfg tiny.tfg --bisect passes", "--bisect is for one model"),
        ("tiny.tfg tiny.tfg --artifact a.tfgraph", "--artifact is for one model"),
        ("tiny.tfg --artifact none.tfgraph", "none.tfgraph"),
    ],
)
def test_mistakes(tfgraph: Callable[..., Any], line: str, message: str) -> None:
    result = tfgraph("compare", *line.split())
    assert result.code == 2
    assert message in result.err
