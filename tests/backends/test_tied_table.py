"""A table to which a head is tied is stored once, in the layout of the head's GEMM."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.generating import model
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import ops
from tfgraph.runtime.tensors import map_tensors

if TYPE_CHECKING:
    from pathlib import Path

    from tfgraph.ir import Graph

Array = np.ndarray[Any, Any]


def tied(
    vocabulary: int,
    width: int,
    dtype: str = "i64",
    activation: bool = False,
    negative: bool = False,
) -> Graph:
    """A row of the table for each id, as it is, and its products with the table. With `negative`
    the ids are computed, so that nothing checks them."""
    with ops.graph("tied") as g:
        ids = g.input("ids", dtype, g.symbol("batch", 1, 4), g.symbol("seq", 1, 999))
        table = g.param("table", "f32", vocabulary, width)
        rows = ops.embedding(ops.neg(ids) if negative else ids, table)
        g.output("rows", rows)
        y = ops.linear(rows, ops.transpose(table, perm=(1, 0)))
        g.output("scores", ops.relu(y) if activation else y)
    return g.build()


@pytest.mark.parametrize("dtype", ["i32", "i64"])
@pytest.mark.parametrize(("vocabulary", "width"), [(1, 1), (48, 16), (49, 7), (145, 130)])
def test_rows_have_the_bits_of_the_table(vocabulary: int, width: int, dtype: str) -> None:
    table = np.random.default_rng(0).uniform(-1, 1, (vocabulary, width)).astype(np.float32)
    table /= np.float32(np.sqrt(width))
    graph = tied(vocabulary, width, dtype, activation=width == 16)
    run = tfgraph.compile(graph, "cpu", weights={"table": table})
    for shape in ((1, 1), (2, 3), (1, 999)):  # few rows, and enough for both threads
        ids = np.random.default_rng(1).integers(0, vocabulary, shape)
        ids.flat[-1] = vocabulary - 1
        got = run(ids=ids.astype(dtype.replace("i", "int")))
        np.testing.assert_array_equal(got["rows"], table[ids])
        want = table[ids].astype(np.float64) @ table.T.astype(np.float64)
        want = np.maximum(want, 0) if width == 16 else want
        # A row by itself is the largest product, near 1 / 3.
        assert_close(got["scores"], want, length=width, scale=1 / 3, name="scores")


def test_ids_out_of_range_read_the_nearest_row() -> None:
    """Ids that a graph computes; those that it is given are checked before."""
    table = np.arange(50 * 3, dtype=np.float32).reshape(50, 3)
    run = tfgraph.compile(tied(50, 3, negative=True), "cpu", weights={"table": table})
    got = run(ids=np.array([[1, -50, -(2**62), 2**63 - 1, -7]]))["rows"]
    np.testing.assert_array_equal(got, table[[[0, 49, 49, 0, 7]]])


def weights_of(folder: Path) -> dict[str, tuple[Array, tuple[str, ...]]]:
    """The arrays of an artifact and the parameters that each is made of."""
    manifest = json.loads((folder / "manifest.json").read_text())
    parts = [manifest, *manifest["functions"].values()]
    sources = {w["name"]: tuple(w["sources"]) for part in parts for w in part["weights"]}
    tensors = map_tensors(folder / "weights.safetensors")
    return {name: (array, sources[name]) for name, array in tensors.items()}


@pytest.mark.parametrize("name", ["rotary", "encoder-decoder", "encoder-decoder, no mask"])
def test_each_parameter_is_stored_once(name: str, tmp_path: Path) -> None:
    """In `main`, `step` and `encode` together; `encode` has no head, and reads the same table."""
    folder = tfgraph.build(model(name), "cpu", tmp_path / "m.tfgraph", check=False).artifact
    assert folder is not None
    stored = [source for _, sources in weights_of(folder).values() for source in sources]
    assert sorted(stored) == sorted({p.value.name for p in model(name).graph.params})
