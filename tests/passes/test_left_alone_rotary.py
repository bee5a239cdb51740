"""Graphs that look like rotary positions and are not, and why the rules decline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from helpers.rule_graphs import tensor, weight

from tfgraph import ops
from tfgraph.ir import as_dim
from tfgraph.passes import PASSES, run_pipeline

TABLES = "cosines or sines are"
HALVES = "the parts of x are not the halves of what is turned"
REST = "the parts of a head are not the first elements and the rest"
APART = "neighbours are not taken apart"
TOGETHER = "neighbours are not put together"


def window(x: Any, start: Any, stop: Any, axis: int = -1) -> Any:
    return ops.slice_(x, axis=axis, start=start, stop=stop)


def halves(
    shape: tuple[Any, ...],
    table: tuple[int, ...],
    *windows: tuple[int, ...],
    axis: int = -1,
    sin: tuple[int, ...] = (),
) -> Any:
    """(a cos - b sin, b cos + a sin) of two windows of x, and a third one as it is."""
    x, c, s = tensor("x", *shape), weight("cos", *table), weight("sin", *(sin or table))
    a, b, *rest = (window(x, *w) for w in windows or ((0, 2), (2, 4)))
    turned = ops.concat(a * c - b * s, b * c + a * s, axis=-1 if rest else axis)
    return ops.concat(turned, *rest, axis=axis) if rest else turned


def pairs(
    shape: tuple[int, ...],
    table: tuple[int, ...] = (3, 2),
    *,
    apart: int = -1,
    starts: tuple[int, int] = (0, 1),
    parts: tuple[int, ...] = (1, 2, 3, 2, 1),
    axis: int = -1,
    to: tuple[int, ...] = (1, 2, 3, 4),
) -> Any:
    """The same of x [.., half, 2], whose neighbours are taken apart along an axis."""
    x, c, s = tensor("x", *shape), weight("cos", *table), weight("sin", *table)
    a, b = (ops.reshape(window(x, i, i + 1, apart), shape=(*parts[:3], 2)) for i in starts)
    turned = (ops.reshape(t, shape=parts) for t in (a * c - b * s, b * c + a * s))
    return ops.reshape(ops.concat(*turned, axis=axis), shape=to)


DECLINED: dict[str, tuple[Callable[[], Any], str]] = {
    "a table for each head": (lambda: halves((2, 2, 2, 4), (2, 2, 2)), TABLES),
    "tables for the batch": (lambda: halves((3, 2, 3, 4), (3, 1, 1, 2)), TABLES),
    "one angle for all pairs": (lambda: halves((2, 1, 3, 4), (3, 1)), TABLES),
    "sines of another shape": (lambda: halves((2, 1, 3, 4), (3, 2), sin=(1, 2)), TABLES),
    "one angle for all neighbours": (lambda: pairs((1, 2, 3, 2, 2), (3, 1)), TABLES),
    "an unknown number of heads": (
        lambda: halves((2, "h", 3, 4), (3, 2)), "the number of heads is symbolic"
    ),
    "of three axes": (lambda: halves((2, 4, 4), (4, 2)), HALVES),
    "swapped": (lambda: halves((2, 1, 3, 4), (3, 2), (2, 4), (0, 2)), HALVES),
    "along the length": (lambda: halves((2, 1, 2, 2), (2, 1), (0, 1), (1, 2, 2)), HALVES),
    "put together along the length": (lambda: halves((2, 1, 3, 4), (3, 2), axis=2), HALVES),
    "the middle": (lambda: halves((2, 1, 3, 6), (3, 2), (1, 3), (3, 5)), HALVES),
    "a gap": (lambda: halves((2, 1, 3, 6), (3, 2), (0, 2), (3, 5)), HALVES),
    "the first ones alone": (lambda: halves((2, 1, 3, 6), (3, 2)), "only a part of the head"),
    "the rest from the front": (
        lambda: halves((2, 1, 3, 5), (3, 2), (0, 2), (2, 4), (0, 1), axis=3), REST
    ),
    "the rest but the last": (
        lambda: halves((2, 1, 3, 6), (3, 2), (0, 2), (2, 4), (4, 5), axis=3), REST
    ),
    "the rest along the length": (
        lambda: halves((2, 1, 3, 8), (3, 2), (0, 2), (2, 4), (4, 8), axis=2), REST
    ),
    "neighbours of rows": (lambda: pairs((1, 2, 3, 2, 2), apart=3), APART),
    "neighbours swapped": (lambda: pairs((1, 2, 3, 2, 2), starts=(1, 0)), APART),
    "neighbours of two axes": (lambda: pairs((2, 3, 2, 2)), APART),
    "two of three": (lambda: pairs((1, 2, 3, 2, 3)), TOGETHER),
    "put together as halves": (
        lambda: pairs((1, 2, 3, 2, 2), parts=(1, 2, 3, 1, 2), axis=3), TOGETHER
    ),
    "put together as rows": (lambda: pairs((1, 2, 3, 2, 2), to=(1, 2, 6, 2)), TOGETHER),
}  # fmt: skip


def twice(*shape: Any, axis: int = -1, count: int = 2) -> Any:
    one = weight("angle", *shape)
    return ops.concat(*[one] * count, axis=axis)


def by_turns(length: int, half: int) -> Any:
    """(t1, u1, t2, u2, ...), [length, half, 2]."""
    return ops.concat(*(weight(n, length, half, 1) for n in "tu"), axis=-1)


def as_halves(length: int, half: int) -> Any:
    """(t1, t2, ..., t1, t2, ...), [length, 2, half, 1]."""
    one = weight("t", length, 1, half, 1)
    return ops.broadcast_to(one, shape=(length, 2, half, 1))


def swapped(
    shape: tuple[Any, ...],
    table: Any = None,
    *windows: tuple[Any, Any],
    axis: int = -1,
    along: int = -1,
) -> Any:
    """x cos + concat(-x2, x1) sin."""
    x, table = tensor("x", *shape), twice(1, 1, 3, 2) if table is None else table
    low, high = (window(x, *w, along) for w in windows or ((0, 2), (2, 4)))
    return x * table + ops.concat(-high, low, axis=axis) * table


def neighbours(
    shape: tuple[int, ...],
    *,
    along: tuple[int, int] = (3, 3),
    parts: tuple[int, ...] = (),
    axis: int = 4,
    table: Any = None,
    batch: tuple[int, ...] = (1,),
) -> Any:
    """x cos + (-x1, x0, -x3, x2, ...) sin, by neighbours taken apart and put together."""
    x, half = tensor("x", *shape), shape[-1] // 2
    even, odd = (ops.take(x, ops.iota(length=half) * 2 + i, axis=a) for i, a in enumerate(along))
    parts = parts or (*shape[:-1], half, 1)
    paired = ops.concat(*(ops.reshape(t, shape=parts) for t in (-odd, even)), axis=axis)
    if table is None:
        one = ops.reshape(weight("t", shape[1], half), shape=(1, shape[1], 1, half, 1))
        both = ops.broadcast_to(one, shape=(1, shape[1], 1, half, 2))
        table = ops.reshape(both, shape=(*batch, shape[1], 1, shape[-1]))
    return x * table + ops.reshape(paired, shape=shape) * table


D = as_dim("d")
NEIGHBOURS = "neighbours are not swapped"
HALVES_SWAPPED = "the halves of x are not swapped"
DIFFER = "two halves that may differ"
SWAPPED: dict[str, tuple[Callable[[], Any], str]] = {
    "neighbours of three axes": (
        lambda: neighbours((2, 3, 4), along=(2, 2), axis=3, table=weight("t", 4)), "x is"
    ),
    "even ones of rows": (lambda: neighbours((1, 1, 4, 4), along=(2, 3)), NEIGHBOURS),
    "odd ones of rows": (lambda: neighbours((1, 1, 4, 4), along=(3, 2)), NEIGHBOURS),
    "neighbours of rows": (lambda: neighbours((1, 1, 4, 4), along=(2, 2)), NEIGHBOURS),
    "neighbours as halves": (lambda: neighbours((1, 1, 3, 4), parts=(1, 1, 3, 1, 2)), NEIGHBOURS),
    "neighbours one below the other": (
        lambda: neighbours((1, 1, 3, 4), parts=(1, 1, 3, 1, 2), axis=3), NEIGHBOURS
    ),
    "two tables by turns": (
        lambda: neighbours((1, 3, 1, 4), table=ops.reshape(by_turns(3, 2), shape=(1, 3, 1, 4))),
        "pairs that may differ",
    ),
    "a table as halves": (
        lambda: neighbours((1, 2, 1, 6), table=ops.reshape(as_halves(2, 3), shape=(1, 2, 1, 6))),
        "pairs that may differ",
    ),
    "of three axes": (lambda: swapped((2, 3, 4), twice(3, 2)), "x is"),
    "of an unknown size": (
        lambda: swapped((2, 1, 3, D * 2), twice(3, D), (0, D), (D, D * 2)), "x is"
    ),
    "by constants": (lambda: swapped((2, 1, 3, 4), 3), "cosines or sines are the constant 3"),
    "of an odd size": (
        lambda: swapped((2, 1, 3, 5), weight("t", 3, 5), (0, 2), (2, 5)), HALVES_SWAPPED
    ),
    "not in the middle": (lambda: swapped((2, 1, 3, 4), None, (0, 1), (1, 4)), HALVES_SWAPPED),
    "not swapped": (lambda: swapped((2, 1, 3, 4), None, (2, 4), (0, 2)), HALVES_SWAPPED),
    "put together along the length": (
        lambda: swapped((2, 1, 1, 2), twice(1, 1), (0, 1), (1, 2), axis=2), HALVES_SWAPPED
    ),
    "for each head": (lambda: swapped((2, 2, 2, 4), twice(2, 2, 2)), TABLES),
    "for the batch": (lambda: swapped((3, 2, 3, 4), twice(3, 1, 1, 2)), TABLES),
    "of any table": (lambda: swapped((2, 1, 3, 4), weight("t", 3, 4)), DIFFER),
    "of two tables": (
        lambda: swapped((2, 1, 3, 4), ops.concat(weight("t", 3, 2), weight("u", 3, 2), axis=1)),
        DIFFER,
    ),
    "of four times a table": (lambda: swapped((2, 1, 3, 4), twice(3, 1, count=4)), DIFFER),
    "of rows twice": (lambda: swapped((2, 1, 2, 4), twice(1, 4, axis=0)), DIFFER),
    "of a product": (lambda: swapped((2, 1, 3, 4), twice(3, 2) * weight("t", 3, 4)), DIFFER),
    "of an exponential": (lambda: swapped((2, 1, 3, 4), ops.exp(twice(3, 2))), DIFFER),
    "of rows made columns": (
        lambda: swapped((2, 1, 3, 4), ops.reshape(twice(2, 3), shape=(3, 4))), DIFFER
    ),
    "of one column": (
        lambda: swapped((2, 1, 3, 4), ops.broadcast_to(weight("t", 3, 1), shape=(3, 4))), DIFFER
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [f"recover-rotary: {name}" for name in SWAPPED])
def test_what_is_no_rotary(name: str) -> None:
    declines(*SWAPPED[name.partition(": ")[2]], "recover-rotary")


@pytest.mark.parametrize("name", ["recover-rotary: three pairs"])
@pytest.mark.parametrize("batch", [(1,), ()])
def test_neighbours_are_three_pairs(name: str, batch: tuple[int, ...]) -> None:
    with ops.graph("g") as g:
        g.output("y", neighbours((1, 2, 3, 6), batch=batch))
    _, (report,) = run_pipeline(g.build(), [PASSES["recover-rotary"]()])
    assert report.applied["interleaved-rotary"] == 1


@pytest.mark.parametrize("name", ["recover-rotary: moved tables"])
def test_tables_that_are_scaled_rounded_and_moved(name: str) -> None:
    with ops.graph("g") as g:
        angle = ops.cast(ops.cast(twice(3, 2) * 0.5, dtype="f16"), dtype="f32")
        rows = ops.reshape(ops.sin(ops.cos(angle)), shape=(1, 3, 4))
        g.output("y", swapped((2, 1, 3, 4), ops.broadcast_to(rows, shape=(1, 1, 3, 4))))
    _, (report,) = run_pipeline(g.build(), [PASSES["recover-rotary"]()])
    assert report.applied["rotary"] == 1


@pytest.mark.parametrize("name", ["recover-rotary: other tables"])
@pytest.mark.parametrize("other", [(3, 1, 2), (1, 3, 2)])
def test_tables_repeated_otherwise(name: str, other: tuple[int, ...]) -> None:
    """[length, 1, half] repeated for as many in the batch: another angle for each of these."""
    with ops.graph("g") as g:
        shapes = {"c": other, "s": (3, 1, 2)}
        cos, sin = (ops.broadcast_to(weight(n, *s), shape=(3, 3, 2)) for n, s in shapes.items())
        g.output("y", ops.rotary(tensor("x", 3, 3, 4), cos, sin, heads=1))
    _, (report,) = run_pipeline(g.build(), [PASSES["recover-rotary"]()])
    assert report.applied == {}


@pytest.mark.parametrize("name", [f"recover-rotary-parts: {name}" for name in DECLINED])
def test_what_is_no_rotary_by_parts(name: str) -> None:
    declines(*DECLINED[name.partition(": ")[2]], "recover-rotary-parts")


def declines(make: Callable[[], Any], why: str, pass_: str) -> None:
    with ops.graph("g") as g:
        g.output("y", make())
    _, (report,) = run_pipeline(g.build(), [PASSES[pass_]()])
    assert report.applied == {}
    assert any(why in d.reason for d in report.declined), report.declined
