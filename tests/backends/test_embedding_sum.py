"""Sums of embeddings on the CPU, in one kernel, against the sum in float64: tables as they are and
tied ones, ids of both types and out of range, and terms that broadcast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.tolerance import UNIT, assert_within

from tfgraph import ops
from tfgraph.backends.base import Target, find_backend
from tfgraph.ir import sqrt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfgraph.backends.base import Executable
    from tfgraph.ir import Graph

NDArray = np.ndarray[Any, Any]
ROWS, WIDTH = 50, 19
TABLES = ("tokens", "types", "places")


def graph_of(dtype: str, *, tied: bool) -> Graph:
    """`y` is tokens, their kinds, a run of positions, a row and positions by number; `z` is tokens
    by a scale. With `tied` heads read the tables of tokens and positions too."""
    with ops.graph("sum") as g:
        batch, seq = g.symbol("batch", 1, 9), g.symbol("seq", 1, 40)
        ids, kinds = (g.input(name, dtype, batch, seq) for name in ("ids", "kinds"))
        tokens, types, places = (g.param(name, "f32", ROWS, WIDTH) for name in TABLES)
        row = g.param("row", "f32", WIDTH)
        run = ops.slice_(places, axis=0, start=2, stop=seq + 2)
        # Numbers that are computed are not checked before.
        numbers = ops.sub(ops.mul(ops.iota(length=seq), 9), 20)
        added = (ops.neg(kinds), types, run, row, numbers, places)
        y = ops.embedding_sum(ids, tokens, *added, scale=sqrt(WIDTH))
        g.output("y", y)
        g.output("z", ops.embedding_sum(ids, tokens, scale=3))
        for name, table in (("tokens", tokens), ("places", places)) if tied else ():
            g.output(f"{name}'", ops.linear(y, ops.transpose(table, perm=(1, 0))))
    return g.build()


@pytest.fixture(scope="module")
def drawn() -> dict[str, NDArray]:
    rng = np.random.default_rng(3)
    shapes = dict.fromkeys(TABLES, (ROWS, WIDTH)) | {"row": (WIDTH,)}
    return {name: rng.standard_normal(shape).astype("f4") for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def runs(drawn: dict[str, NDArray]) -> Iterator[dict[str, Executable]]:
    graphs = {f"{t} {tied}": graph_of(t, tied=tied) for t in ("i64", "i32") for tied in (0, 1)}
    first, *names = graphs
    more = {name: graphs[name] for name in names}
    with find_backend("cpu").compile(graphs[first], drawn, Target("cpu"), more) as run:
        yield {first: run, **run.functions}


@pytest.mark.parametrize("tied", [0, 1])
@pytest.mark.parametrize("dtype", ["i64", "i32"])
@pytest.mark.parametrize("shape", [(1, 1), (2, 5), (9, 40)])
def test_against_float64(
    runs: dict[str, Executable], drawn: dict[str, NDArray], shape: Any, dtype: str, tied: int
) -> None:
    rng = np.random.default_rng(shape)
    ids = rng.integers(0, ROWS, shape).astype(dtype.replace("i", "int"))
    kinds = rng.integers(-2 * ROWS, ROWS, shape).astype(ids.dtype)
    got = runs[f"{dtype} {tied}"](ids=ids, kinds=kinds)
    given = {name: array.astype(np.float64) for name, array in drawn.items()}
    tokens, types, places = (given[name] for name in TABLES)
    nearest = (np.clip(i, 0, ROWS - 1) for i in (-kinds.astype("i8"), np.arange(shape[1]) * 9 - 20))
    scaled, kind = tokens[ids] * np.sqrt(WIDTH), types[next(nearest)]
    terms = [scaled, kind, places[2 : shape[1] + 2], given["row"], places[next(nearest)]]
    sums = np.cumsum(np.broadcast_arrays(*terms), axis=0)
    # The scale, its product and each sum are rounded once.
    bound = UNIT["float32"] * (2 * np.abs(scaled) + np.abs(sums[1:]).sum(0))
    assert_within(got["y"], sums[-1], 1.01 * bound)
    np.testing.assert_array_equal(got["z"], drawn["tokens"][ids] * np.float32(3))
