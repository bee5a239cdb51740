"""simplify: where each rule applies, where it must not, and that values stay bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.reference import run_graph
from helpers.tolerance import UNIT, assert_close, assert_within

from tfgraph import ops
from tfgraph.ir import Exact, Graph, exact, rsqrt, sqrt
from tfgraph.ir.exact import call as function_of
from tfgraph.ops import Builder
from tfgraph.passes import PASSES, NoMatch, run_pipeline
from tfgraph.passes.simplify import reciprocal

Make = Callable[[Builder, Any], Any]

# Whatever arithmetic treats in its own way.
ODD = np.array(
    [0.0, -0.0, 1.0, -1.5, np.nan, np.inf, -np.inf, 1e-45, -1e-45, 3e38, 1e-38, 0.1], np.float32
).reshape(3, 4)


def graph_of(make: Make, dtype: str = "f32") -> Graph:
    with ops.graph("g") as g:
        g.output("y", make(g, g.input("x", dtype, 3, 4)))
    return g.build()


def simplified(graph: Graph) -> tuple[Graph, dict[str, int]]:
    result, (report,) = run_pipeline(graph, [PASSES["simplify"]()])
    assert report.declined == ()
    return result, report.applied


def bits(graph: Graph, x: Any) -> bytes:
    y = run_graph(graph, {"x": x})["y"]
    return np.where(np.isnan(y), np.nan, y).tobytes()  # one NaN is as good as another


# name: what is built, the rules that apply, and the ops that are left
GONE: dict[str, tuple[Make, dict[str, int], list[str]]] = {
    "transposes cancel": (
        lambda g, x: ops.transpose(ops.transpose(x, perm=(1, 0)), perm=(1, 0)),
        {"merge-transposes": 1},
        [],
    ),
    "transpose to itself": (
        lambda g, x: ops.transpose(x, perm=(0, 1)),
        {"drop-transpose": 1},
        [],
    ),
    "reshapes cancel": (
        lambda g, x: ops.reshape(ops.reshape(x, shape=(12,)), shape=(3, 4)),
        {"merge-reshapes": 1},
        [],
    ),
    "reshapes merge": (
        lambda g, x: ops.reshape(ops.reshape(x, shape=(12,)), shape=(4, 3)),
        {"merge-reshapes": 1},
        ["reshape"],
    ),
    "reshape to itself": (lambda g, x: ops.reshape(x, shape=(3, 4)), {"drop-no-op": 1}, []),
    "broadcast to itself": (lambda g, x: ops.broadcast_to(x, shape=(3, 4)), {"drop-no-op": 1}, []),
    "whole slice": (
        lambda g, x: ops.slice_(x, axis=1, start=0, stop=4),
        {"drop-no-op": 1},
        [],
    ),
    "cast to itself": (lambda g, x: ops.cast(x, dtype="f32"), {"drop-no-op": 1}, []),
    "concat of one": (lambda g, x: ops.concat(x, axis=0), {"drop-concat": 1}, []),
    "minus 0": (lambda g, x: x - 0, {"drop-zero": 1}, []),
    "times 1": (lambda g, x: x * 1, {"drop-one": 1}, []),
    "1 times": (lambda g, x: 1 * x, {"drop-one": 1}, []),
    "over 1": (lambda g, x: x / 1, {"drop-one": 1}, []),
    "powers of two": (lambda g, x: (x * 2) * 0.25, {"merge-factors": 1}, ["mul"]),
    "over and times": (lambda g, x: (x / 4) * 2, {"merge-divisor": 1}, ["mul"]),
    "factors that cancel": (
        lambda g, x: (x * 4) * 0.25,
        {"merge-factors": 1, "drop-one": 1},
        [],
    ),
}
# Those that round, or overflow, once instead of twice; the rest is compared bit for bit.
ROUNDED = ("powers of two", "over and times", "factors that cancel")

STAYS: dict[str, Make] = {
    "other transposes": lambda g, x: ops.transpose(x, perm=(1, 0)),
    "another shape": lambda g, x: ops.reshape(x, shape=(4, 3)),
    "broadcast": lambda g, x: ops.broadcast_to(x, shape=(2, 3, 4)),
    "part of an axis": lambda g, x: ops.slice_(x, axis=1, start=1, stop=4),
    "another dtype": lambda g, x: ops.cast(x, dtype="f16"),
    "concat of two": lambda g, x: ops.concat(x, x, axis=0),
    "plus 0, which makes 0.0 of -0.0": lambda g, x: x + 0,
    "0 plus": lambda g, x: 0 + x,
    "0 minus, a negation": lambda g, x: 0 - x,
    "minus another": lambda g, x: x - 1,
    "1 over": lambda g, x: 1 / x,
    "times another": lambda g, x: x * 2,
    "times 0, which NaN and inf survive": lambda g, x: x * 0,
    "times 0 twice, whose sign counts": lambda g, x: (x * 0) * -1,
    "a product beyond the type": lambda g, x: (x * 1e30) * 1e30,
    "a product below the type": lambda g, x: (x * 1e-30) * 1e-15,
    "a product of few digits": lambda g, x: (x * 1e-20) * 1e-20,
    "over little": lambda g, x: (x / 1e-30) * 1e30,
    "times and over": lambda g, x: (x * 4) / 2,
    "a divided constant": lambda g, x: (4 / x) * 2,
}


@pytest.mark.parametrize("name", GONE)
def test_applies(name: str) -> None:
    make, rules, left = GONE[name]
    graph = graph_of(make)
    result, applied = simplified(graph)
    assert applied == rules
    assert [n.op for n in result.nodes] == left
    x = np.float32([[0.1, -3, 0, -0.0], [7, 8, np.nan, np.inf], [1e-30, 1e30, 2, 5]])
    for values in [x] if name in ROUNDED else [x, ODD]:
        assert bits(result, values) == bits(graph, values)


@pytest.mark.parametrize("make", STAYS.values(), ids=STAYS)
def test_does_not_apply(make: Make) -> None:
    graph = graph_of(make)
    result, applied = simplified(graph)
    assert applied == {}
    assert result is graph


def test_a_division_by_zero_stays_and_is_reported() -> None:
    graph = graph_of(lambda g, x: (x / 0) * 2)
    result, (report,) = run_pipeline(graph, [PASSES["simplify"]()])
    assert result is graph
    assert [d.reason for d in report.declined] == ["a constant is divided by 0"]


def test_plus_zero_is_no_identity_of_floats() -> None:
    """Why drop_zero leaves it alone."""
    assert bits(graph_of(lambda g, x: x + 0), ODD) != bits(graph_of(lambda g, x: x * 1), ODD)


@pytest.mark.parametrize("make", [lambda g, x: x + 0, lambda g, x: 0 + x, lambda g, x: x - 0])
def test_plus_zero_is_one_of_integers(make: Make) -> None:
    result, applied = simplified(graph_of(make, "i64"))
    assert applied == {"drop-zero": 1}
    assert not result.nodes


def test_factors_of_integers_stay() -> None:
    _, applied = simplified(graph_of(lambda g, x: (x * 3) * 2**62, "i64"))
    assert applied == {}


def test_transposes_merge_in_their_order() -> None:
    with ops.graph("g") as g:
        x = g.input("x", "f32", 2, 3, 4)
        g.output("y", ops.transpose(ops.transpose(x, perm=(1, 2, 0)), perm=(0, 2, 1)))
    graph = g.build()
    result, applied = simplified(graph)
    assert applied == {"merge-transposes": 1}
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    want = x.transpose(1, 2, 0).transpose(0, 2, 1)
    np.testing.assert_array_equal(run_graph(result, {"x": x})["y"], want)


def test_what_others_read_stays() -> None:
    """A transpose or reshape is cheap and may stay; a product is not computed twice."""
    with ops.graph("g") as g:
        x = g.input("x", "f32", 3, 4)
        for name, first in {
            "t": ops.transpose(x, perm=(1, 0)),
            "r": ops.reshape(x, shape=(12,)),
            "m": x * 2,
            "d": x / 2,
        }.items():
            g.output(name, first)
            second = {
                "t": lambda y: ops.transpose(y, perm=(1, 0)),
                "r": lambda y: ops.reshape(y, shape=(4, 3)),
            }.get(name, lambda y: y * 3)
            g.output(f"{name}2", second(first))
    _, (report,) = run_pipeline(g.build(), [PASSES["simplify"]()])
    assert report.applied == {"merge-transposes": 1, "merge-reshapes": 1}
    assert [d.rule for d in report.declined] == ["merge-factors", "merge-divisor"]
    assert all("is also read by the graph's outputs" in d.reason for d in report.declined)


@pytest.mark.parametrize(
    ("dtype", "first", "second", "merged"),
    [
        ("f32", 1e19, 1e19, "100000000000000000000000000000000000000"),
        ("f32", 1e19, 1e20, None),
        ("f32", 1e-19, 1.2e-19, "0.000000000000000000000000000000000000012"),
        ("f32", 1e-19, 1.1e-19, None),
        ("f16", 256, 255, "65280"),
        ("f16", 256, 256, None),
        ("f16", 32752, 2, "65504"),
        ("f16", 2**-7, 2**-7, "0.00006103515625"),
        ("f16", 2**-7, 2**-8, None),
        ("bf16", 256, 256, "65536"),
        ("f64", 1e30, 1e30, "1" + 60 * "0"),
        ("f32", -3, 2, "-6"),
        ("f32", -1e19, 1e20, None),
    ],
)
def test_merged_factors_are_normal_numbers_of_the_type(
    dtype: str, first: float, second: float, merged: str | None
) -> None:
    result, applied = simplified(graph_of(lambda g, x: (x * first) * second, dtype))
    assert applied == ({"merge-factors": 1} if merged else {})
    if merged:
        factor = result.nodes[0].operands[1]
        assert factor == exact(int(merged) if "." not in merged else float(merged))


def test_merging_rounds_twice_not_four_times() -> None:
    """Against float64: a rounding of the merged constant, and one of the product."""
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    for make, factor in (
        (lambda g, x: (x * 0.1) * 0.7, 0.1 * 0.7),
        (lambda g, x: (x / 3) * 0.7, 0.7 / 3),
        (lambda g, x: (x / sqrt(32)) * 0.7, 0.7 / 32**0.5),
    ):
        result, _ = simplified(graph_of(make))
        assert len(result.nodes) == 1
        want = x.astype(np.float64) * factor
        bound = 2.01 * UNIT["float32"] * np.abs(want)
        assert_within(run_graph(result, {"x": x})["y"], want, bound)


@pytest.mark.parametrize(
    "c",
    [exact(4), exact(-0.3), rsqrt(2), sqrt(3) * 5, function_of("exp", 2), sqrt(2) * rsqrt(7) * -3],
    ids=str,
)
def test_reciprocal(c: Exact) -> None:
    assert_close(float(reciprocal(c)), 1 / float(c), length=8)
    assert_close(float(reciprocal(c) * c), 1.0, length=8)


@pytest.mark.parametrize(
    ("c", "reason"),
    [
        (exact(0), "a constant is divided by 0"),
        (function_of("log", 2), "1/log(2) has no exact form"),
    ],
)
def test_no_reciprocal(c: Exact, reason: str) -> None:
    with pytest.raises(NoMatch) as caught:
        reciprocal(c)
    assert str(caught.value) == reason
