"""Kernels of which a thread takes sixteen bytes where rows are made of such, on the emulated GPU,
which reports what is misaligned, out of bounds or a race: against NumPy in float64."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from helpers.cuda_graphs import CudaGraphs
from helpers.tolerance import assert_close

from tfgraph import ops

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.ir import Graph

NDArray = np.ndarray[Any, Any]
DTYPES = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16)}
DTYPES["bf16"] = np.dtype(ml_dtypes.bfloat16)
WIDTHS = {"f32": (40, 7), "f16": (40, 12), "bf16": (40,)}
"""Rows of 40 are made of vectors; of 7, and of 12 in 16 bits, they are not."""
ROWS = 37
"""Of 40 numbers five vectors; so the last block has threads left over."""


def softmax(x: NDArray) -> NDArray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


OPS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (lambda x, y, row, column, ids: ops.add(x, y), lambda x, y, *_: x + y),
    "row": (lambda x, y, row, column, ids: ops.mul(x, row), lambda x, y, row, *_: x * row),
    "column": (
        lambda x, y, row, column, ids: ops.sub(column, x),
        lambda x, y, row, column, ids: column - x,
    ),
    "scale": (lambda x, *_: ops.mul(x, 0.5), lambda x, *_: x * 0.5),
    "square": (lambda x, *_: ops.pow_(x, 2), lambda x, *_: x**2),
    "tanh": (lambda x, *_: ops.tanh(x), lambda x, *_: np.tanh(x)),
    "maximum": (lambda x, y, *_: ops.maximum(x, y), lambda x, y, *_: np.maximum(x, y)),
    "rows_of_a_table": (
        lambda x, y, row, column, ids: ops.embedding(ids, x),
        lambda x, y, row, column, ids: x[np.clip(ids, 0, ROWS - 1)],
    ),
    "sum_of_rows": (
        lambda x, y, row, column, ids: ops.embedding_sum(
            *(ids, x, ops.sub(12, ids), y, row, ops.slice_(x, axis=0, start=3, stop=8)),
            ops.slice_(column, axis=0, stop=5),
            scale=0.5,
        ),
        lambda x, y, row, column, ids: (
            x[np.clip(ids, 0, ROWS - 1)] / 2
            + y[np.clip(12 - ids, 0, ROWS - 1)]
            + row
            + x[3:8]
            + column[:5]
        ),
    ),
    "slice": (lambda x, *_: ops.slice_(x, axis=0, start=3, stop=9), lambda x, *_: x[3:9]),
    "softmax": (lambda x, *_: ops.softmax(x), lambda x, *_: softmax(x)),
    "norm": (
        lambda x, y, row, *_: ops.add_rms_norm(x, y, row, row, eps=1e-5),
        lambda x, y, row, *_: (
            (t := x + row + y) / np.sqrt(np.mean(t**2, -1, keepdims=True) + 1e-5) * row
        ),
    ),
}


def graph_of(dtype: str) -> Graph:
    with ops.graph("vectors") as g:
        column, ids = g.input("column", dtype, ROWS, 1), g.input("ids", "i64", 5)
        for width in WIDTHS[dtype]:
            x, y = (g.input(f"{name}{width}", dtype, ROWS, width) for name in "xy")
            row = g.input(f"row{width}", dtype, width)
            for name, (make, _) in OPS.items():
                g.output(f"{name}{width}", make(x, y, row, column, ids))
    return g.build()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> CudaGraphs:
    graphs = {dtype: graph_of(dtype) for dtype in DTYPES}
    return CudaGraphs(graphs, tmp_path_factory.mktemp("vectors"), {})


@pytest.mark.parametrize("dtype", DTYPES)
def test_whole_vectors_and_what_is_none(run: CudaGraphs, dtype: str) -> None:
    draw, kind = np.random.default_rng(5), DTYPES[dtype]
    shapes = {"column": (ROWS, 1)}
    for width in WIDTHS[dtype]:
        shapes |= {f"x{width}": (ROWS, width), f"y{width}": (ROWS, width), f"row{width}": (width,)}
    feeds: dict[str, Any] = {
        name: draw.standard_normal(shape).astype(kind) for name, shape in shapes.items()
    }
    feeds["ids"] = np.array([0, 36, 5, 99, -3])
    got = run(dtype, feeds, {})
    for width in WIDTHS[dtype]:
        names = f"x{width}", f"y{width}", f"row{width}", "column"
        given = [feeds[name].astype(np.float64) for name in names]
        for name, (_, want) in OPS.items():
            result = got[f"{name}{width}"]
            assert result.dtype == kind
            expected = want(*given, feeds["ids"])
            assert_close(result, expected, length=width + 8, dtype=str(kind), name=f"{name}{width}")


def test_vectors_are_taken_in_rows_of_40_alone(run: CudaGraphs) -> None:
    _, *kernels = run.cuda.source.split('extern "C"')
    assert len(kernels) == len(OPS) * sum(map(len, WIDTHS.values()))
    assert sum(bool(re.search(r"\b(load|store|copy)_16", k)) for k in kernels) == 3 * len(OPS)
