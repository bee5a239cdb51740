"""The same as `test_one_change.py`, for rotary positions in the forms in which exporters write
them out: by halves and by neighbours, of a whole head and of its first elements."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.rule_graphs import Graphs, tensor, weight

from tfgraph import ops
from tfgraph.ops import Builder

GRAPHS = Graphs()
takes = GRAPHS.takes


def window(x: Any, start: int, stop: int, axis: int = -1) -> Any:
    return ops.slice_(x, axis=axis, start=start, stop=stop)


def turned(a: Any, b: Any, c: Any, s: Any) -> tuple[Any, Any]:
    return a * c - b * s, b * c + a * s


def also(*read: Any) -> None:
    """Values that are results too, so that the rules leave them in place."""
    for value in read:
        ops.current().output(ops.current().unique("also"), value)


def by_halves(x: Any, half: int, *tables: Any, axis: int = -1) -> Any:
    low, high = window(x, 0, half, axis), window(x, half, 2 * half, axis)
    also(low, high)
    return ops.concat(*turned(low, high, *tables), axis=axis)


def tables(*shape: int) -> list[Any]:
    return [weight(n, *shape) for n in ("cos", "sin")]


@takes("recover-rotary-parts", rotary_by_halves=1)
def halves(g: Builder) -> Any:
    """[batch, heads, length, size]."""
    return by_halves(tensor("x", 2, 1, 3, 4), 2, *tables(2, 1, 3, 2))


@takes("recover-rotary-parts", rotary_by_halves=1)
def halves_by_length(g: Builder) -> Any:
    """[batch, length, heads, size], of heads that were apart before."""
    x = ops.reshape(tensor("x", 2, 3, 4), shape=(2, 3, 1, 4))
    return by_halves(x, 2, *tables(2, 3, 1, 2), axis=3)


@takes("recover-rotary-parts", partial_rotary_by_halves=1)
def halves_of_a_part(g: Builder) -> Any:
    x = tensor("x", 1, 2, 3, 5)
    rest = window(x, 4, 5)
    also(rest)
    return ops.concat(by_halves(x, 2, *tables(1, 1, 3, 2)), rest, axis=3)


@takes("recover-rotary-parts", partial_rotary_by_halves=1)
def halves_of_a_part_by_length(g: Builder) -> Any:
    x = tensor("x", 1, 3, 1, 3)
    return ops.concat(by_halves(x, 1, *tables(3, 1, 1)), window(x, 2, 3), axis=-1)


@takes("recover-rotary", rotary_by_halves=1)
def halves_that_other_rules_uncover(g: Builder) -> Any:
    return by_halves(tensor("x", 2, 1, 3, 4), 2, *tables(2, 1, 3, 2))


def by_pairs(pairs: Any, *tables: Any, axis: int = -1) -> Any:
    shape = pairs.shape[:-1]
    apart = [window(pairs, i, i + 1, axis) for i in (0, 1)]
    a, b = (ops.reshape(part, shape=shape) for part in apart)
    also(a, b, *apart)
    parts = [ops.reshape(t, shape=(*shape, 1)) for t in turned(a, b, *tables)]
    joined = ops.concat(*parts, axis=axis)
    return ops.reshape(joined, shape=(*shape[:-1], shape[-1] * 2))


@takes("recover-rotary-parts", rotary_by_pairs=1)
def neighbours(g: Builder) -> Any:
    return by_pairs(tensor("x", 1, 2, 3, 2, 2), *tables(3, 2))


@takes("recover-rotary-parts", rotary_by_pairs=1)
def neighbours_by_length(g: Builder) -> Any:
    return by_pairs(tensor("x", 1, 3, 2, 2, 2), *tables(3, 1, 2), axis=4)


@pytest.mark.parametrize("name", GRAPHS)
def test_every_neighbour_keeps_its_values(name: str) -> None:
    GRAPHS.check(name)
