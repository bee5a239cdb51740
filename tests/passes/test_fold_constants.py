"""fold-constants: what is folded is exact, and what would not be stays."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

import tfgraph.ops as ops
from tfgraph.ir import Exact, Graph, rsqrt
from tfgraph.passes import PASSES, run_pipeline


def fold(make: Callable[[], Any]) -> Graph:
    with ops.graph("folded") as g:
        g.output("y", make())
    graph, _ = run_pipeline(g.build(), [PASSES["fold-constants"]()])
    return graph


def constant(value: Any = 3, *shape: Any, dtype: str = "f32") -> Any:
    return ops.full(shape=shape or (2, 4), value=value, dtype=dtype)


FOLDED: dict[str, tuple[Callable[[], Any], Any, tuple[int, ...]]] = {
    "reshape": (lambda: ops.reshape(constant(), shape=(8,)), 3, (8,)),
    "transpose": (lambda: ops.transpose(constant(), perm=(1, 0)), 3, (4, 2)),
    "broadcast": (lambda: ops.broadcast_to(constant(3, 1, 4), shape=(5, 4)), 3, (5, 4)),
    "slice": (lambda: ops.slice_(constant(), axis=1, start=1, stop=3), 3, (2, 2)),
    "add": (lambda: constant(3) + constant(0.1, 1, 4), Fraction(31, 10), (2, 4)),
    "add a number": (lambda: constant(3) + 0.1, Fraction(31, 10), (2, 4)),
    "number minus": (lambda: 1 - constant(3), -2, (2, 4)),
    "mul by a root": (lambda: constant(3) * rsqrt(2), Exact(Fraction(3)) * rsqrt(2), (2, 4)),
    "div": (lambda: constant(1) / constant(3), Fraction(1, 3), (2, 4)),
    "neg": (lambda: -constant(rsqrt(2)), rsqrt(2) * -1, (2, 4)),
    "0 times a positive number": (lambda: constant(0) * 3, 0, (2, 4)),
    "a difference of 0": (lambda: constant(-3) + 3, 0, (2, 4)),
    "a difference of equal negatives": (lambda: constant(-3) - -3, 0, (2, 4)),
    "the largest of its type": (lambda: constant(100, dtype="i8") + 27, 127, (2, 4)),
    "integers": (lambda: constant(3, dtype="i64") * 4, 12, (2, 4)),
    "a chain": (lambda: ops.transpose(constant() + 1, perm=(1, 0)) * 2, 8, (4, 2)),
}


@pytest.mark.parametrize(("make", "value", "shape"), FOLDED.values(), ids=FOLDED)
def test_folds_exactly(make: Callable[[], Any], value: Any, shape: tuple[int, ...]) -> None:
    (node,) = fold(make).nodes
    assert node.op == "full"
    assert node.attrs["value"] == (value if isinstance(value, Exact) else Exact(Fraction(value)))
    assert tuple(map(int, node.output.type.shape)) == shape


KEPT: dict[str, Callable[[], Any]] = {
    "division by 0": lambda: constant(1) / constant(0),
    "sum of a root": lambda: constant(rsqrt(2)) + 1,
    "sum with a root": lambda: 1 + constant(rsqrt(2)),
    "quotient of a root": lambda: constant(rsqrt(2)) / 3,
    "quotient by a root": lambda: 3 / constant(rsqrt(2)),
    "an input": lambda: constant() + ops.current().input("x", "f32", 2, 4),
    "another op": lambda: ops.exp(constant()),
    "an integer that wraps around": lambda: constant(100, dtype="i8") + constant(100, dtype="i8"),
    "an unsigned integer below 0": lambda: -constant(1, dtype="u8"),
    "an integer of 65 bits": lambda: constant(2**62, dtype="i64") * 4,
    "a float beyond its type": lambda: constant(3e38) * 10,
    "a float that becomes 0": lambda: constant(1e-30) * 1e-30,
    "a float that loses digits": lambda: constant(1e-30) * 1e-10,
    "a scalar that becomes 0": lambda: constant(1e30) * 1e-60,
    "minus 0": lambda: -constant(0),
    "0 times a negative number": lambda: constant(0) * -3,
    "a negative number times 0": lambda: constant(-3) * 0,
    "0 over a negative number": lambda: constant(0) / -3,
    "a subnormal number times a large one": lambda: constant(1e-40) * 1e10,
    "a large number times a subnormal one": lambda: constant(1e10) * 1e-40,
}


@pytest.mark.parametrize("make", KEPT.values(), ids=KEPT)
def test_leaves_the_rest(make: Callable[[], Any]) -> None:
    assert fold(make).nodes[-1].op != "full"


def test_a_constant_that_is_read_elsewhere_stays() -> None:
    with ops.graph("shared") as g:
        c = constant()
        g.output("c", c)
        g.output("y", ops.transpose(c, perm=(1, 0)))
        g.output("z", -c)
    graph, (report,) = run_pipeline(g.build(), [PASSES["fold-constants"]()])
    assert report.applied == {"move-full": 1, "negate-full": 1}
    assert [n.op for n in graph.nodes] == ["full", "full", "full"]


def test_what_is_no_constant_is_no_near_miss() -> None:
    with ops.graph("plain") as g:
        x = g.input("x", "f32", 2, 4)
        g.output("y", ops.transpose(-x, perm=(1, 0)))
    _, (report,) = run_pipeline(g.build(), [PASSES["fold-constants"]()])
    assert report.declined == ()
