"""Graphs that look like rotary positions and are not, and why the rules decline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from helpers.rule_graphs import tensor, weight

from tfgraph import ops
from tfgraph.passes import PASSES, run_pipeline

TABLES = "cosines or sines are"
HALVES = "the parts of x are not the halves of what is turned"
REST = "the parts of a head are not the first elements and the rest"
APART = "neighbours are not taken apart"
TOGETHER = "neighbours are not put together"


def window(x: Any, start: int, stop: int, axis: int = -1) -> Any:
    return ops.slice_(x, axis=axis, start=start, stop=stop)


def halves(
    shape: tuple[int, ...],
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


@pytest.mark.parametrize("name", [f"recover-rotary-parts: {name}" for name in DECLINED])
def test_what_is_no_rotary_by_parts(name: str) -> None:
    make, why = DECLINED[name.partition(": ")[2]]
    with ops.graph("g") as g:
        g.output("y", make())
    _, (report,) = run_pipeline(g.build(), [PASSES["recover-rotary-parts"]()])
    assert report.applied == {}
    assert any(d.reason.startswith(why) for d in report.declined), report.declined
