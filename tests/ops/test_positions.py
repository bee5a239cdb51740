"""Integer tensors that are sums over their axes are read as such, and hold what is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.mask_graphs import line
from helpers.reference import run_graph

from tfgraph import ops
from tfgraph.ir import as_dim
from tfgraph.ops import Builder
from tfgraph.ops.positions import affine

SIZES = {"b": 3, "n": 4}
N, B = as_dim("n"), as_dim("b")


def iota(size: Any = N) -> Any:
    return ops.iota(length=size)


def rows(g: Builder) -> Any:
    """The positions, once for each in the batch: [b, n]."""
    return ops.broadcast_to(line(N, 1, N), shape=(B, N))


def number(value: int, *shape: Any) -> Any:
    return ops.full(shape=shape, value=value, dtype="i64")


def last(size: Any) -> Any:
    """Positions that begin at a size."""
    return ops.slice_(iota(size * 2), axis=0, start=size, stop=size * 2)


def end() -> Any:
    """The last position."""
    return ops.slice_(iota(), axis=0, start=N - 1, stop=N)


READ: dict[str, tuple[Callable[[Builder], Any], str]] = {
    "bools that are true": (lambda g: ops.equal(iota() + 3, iota() + 3), "1 + 0"),
    "bools that are false": (lambda g: ops.logical_not(ops.equal(iota(), iota())), "0 + 0"),
    "bools of no order": (lambda g: ops.equal(iota(), 2), ""),
    "bools that are never equal": (lambda g: ops.equal(iota(), iota() + 1), ""),
    "bools that are equal at first": (lambda g: ops.equal(iota(), iota() * 2), ""),
    "bools of what is not known": (lambda g: ops.equal(iota(), g.input("x", "i64", N)), ""),
    "true as an integer": (lambda g: ops.cast(ops.equal(iota(), iota()), dtype="i64"), "1 + 0"),
    "an integer as a bool": (lambda g: ops.cast(number(2, N), dtype="bool"), ""),
    "true, repeated": (
        lambda g: ops.broadcast_to(ops.equal(iota(), iota()), shape=(B, N)),
        "1 + 0 0",
    ),
    "integers of floats": (lambda g: ops.cast(ops.cast(iota(), dtype="f32"), dtype="i64"), ""),
    "what goes on": (lambda g: ops.concat(iota(), last(N), axis=0), "0 + 1"),
    "what begins before": (lambda g: ops.concat(number(-1, 1), iota(), axis=-1), "-1 + 1"),
    "what ends behind": (lambda g: ops.concat(iota(3), number(3, 1), axis=0), "0 + 1"),
    "a gap": (lambda g: ops.concat(iota(), last(N) + 1, axis=0), ""),
    "another step": (lambda g: ops.concat(iota(3), iota(3) * 2 + 3, axis=0), ""),
    "another step beside": (
        lambda g: ops.concat(line(3, 3, 1) + number(0, 1, 2), number(2, 3, 2), axis=1),
        "",
    ),
    "single ones": (lambda g: ops.concat(number(0, 1), number(1, 1), axis=0), ""),
    "side by side": (
        lambda g: ops.concat(
            ops.broadcast_to(line(N, N, 1), shape=(N, 2)), line(N, N, 1) + number(0, 1, 1), axis=1
        ),
        "0 + 1 0",
    ),
    "rows of positions": (lambda g: ops.take_at(rows(g), line(B, B, 1), line(N, 1, N)), "0 + 0 1"),
    "columns of positions": (
        lambda g: ops.take_at(rows(g), line(B, 1, B), end() - line(N, N, 1)),
        "n - 1 + -1 0",
    ),
    "whole rows": (lambda g: ops.take_at(rows(g) * 2 + line(B, B, 1), iota(B)), "0 + 1 2"),
    "places not known": (lambda g: ops.take_at(iota(), g.input("x", "i64", N)), ""),
    "a table not known": (lambda g: ops.take_at(g.input("x", "i64", N), iota()), ""),
    "a sum of zeros": (lambda g: ops.cumsum(number(0, B, N), axis=-1), "0 + 0 0"),
    "a sum of ones": (lambda g: ops.cumsum(number(1, N), axis=0), ""),
    "a sum of positions": (lambda g: ops.cumsum(iota(), axis=0), ""),
}


@pytest.mark.parametrize("kind", READ)
def test_what_is_read(kind: str) -> None:
    make, want = READ[kind]
    with ops.graph("g") as g:
        g.input("of", "f32", B, N)
        g.output("y", make(g))
    graph = g.build()
    found = affine(graph.outputs[0].value, graph.producer)
    said = "" if found is None else f"{found.start} + {' '.join(map(str, found.steps))}"
    assert said == want
    if found is None:
        return
    given = {"of": np.zeros(tuple(SIZES.values()), np.float32)}
    y = run_graph(graph, given)["y"]
    sizes = {name: as_dim(size) for name, size in SIZES.items()}
    start, *steps = (int(d.substitute(sizes)) for d in (found.start, *found.steps))
    expected = start + sum(
        step * index for step, index in zip(steps, np.indices(y.shape), strict=True)
    )
    np.testing.assert_array_equal(y, expected)
