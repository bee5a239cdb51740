"""Kernels of float16 and bfloat16 for CUDA, run on the CPU, against the ops' bodies in float64:
they compute in float32 and round once, so that results are the nearest numbers but where float32
is off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from helpers.cuda_graphs import CudaGraphs
from helpers.kernel_graphs import forms, samples
from helpers.tolerance import UNIT, assert_within

from tfgraph.ir import DType
from tfgraph.ops import FloatArray, evaluate
from tfgraph.ops.floats import numpy_dtype
from tfgraph.rounding import isolated_bounds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgraph.ir import Graph

NDArray = np.ndarray[Any, Any]
NARROW = (DType.float16, DType.bfloat16)
GRAPHS = {
    f"{name}_{dtype.short}": graph for dtype in NARROW for name, graph in forms(dtype).items()
}
SAMPLED = {f"{op}_{dtype.short}": s for dtype in NARROW for op, s in samples(dtype).items()}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> CudaGraphs:
    graphs = {f"sample_{name}": s.graph for name, s in SAMPLED.items()}
    return CudaGraphs({**GRAPHS, **graphs}, tmp_path_factory.mktemp("narrow"))


def check(
    run: CudaGraphs, name: str, graph: Graph, given: Mapping[str, NDArray], sizes: Mapping[str, int]
) -> None:
    """Against the body in float64, rounded once: within what the kernel declares, and within a step
    of the type, and what float32 does to sums that cancel."""
    arrays = {key: FloatArray(array) for key, array in given.items()}
    steps = evaluate(graph, arrays, sizes, FloatArray(np.zeros(1, np.float32)))
    known = {
        v.name: r.data for node, made in steps for v, r in zip(node.outputs, made, strict=True)
    }
    got, bounds = run(name, dict(given), sizes), isolated_bounds(graph, {}, given, sizes, "cuda")
    size = max([1.0, *(np.abs(a.astype(np.float64)).max(initial=0) for a in given.values())])
    for output in graph.outputs:
        want, found = known[output.value.name], got[output.name]
        assert (found.dtype, found.shape) == (want.dtype, want.shape), name
        assert_within(found, want, bounds[output.name], name)
        nearest = all(node.op != "attention" for node in graph.nodes)  # it rounds weights, too
        if nearest and output.value.type.dtype in NARROW:
            with np.errstate(invalid="ignore"):
                step = np.abs(np.spacing(want).astype(np.float64))
            assert_within(found, want, step + 64 * UNIT["float32"] * size**2, name)
            same = (found == want) | (np.isnan(found) & np.isnan(want))
            same = same[np.isnan(want) | (np.abs(want) > 2.0**-6)]  # above what float32 cancels
            assert same.size < 100 or same.mean() > 0.9, f"{name}: {same.mean()} are the nearest"
        elif not output.value.type.dtype.is_float:
            np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("name", SAMPLED)
def test_random_calls_of_every_op(run: CudaGraphs, name: str) -> None:
    s = SAMPLED[name]
    given = {key: array.data for key, array in s.given.items()}
    check(run, f"sample_{name}", s.graph, given, s.sizes)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("sizes", [{"a": 1, "b": 1}, {"a": 2, "b": 67}])
def test_forms_of_kernels(run: CudaGraphs, name: str, sizes: dict[str, int]) -> None:
    graph, rng = GRAPHS[name], np.random.default_rng(3)
    given: dict[str, NDArray] = {}
    for item in graph.inputs:
        shape = [dim.evaluate(sizes) for dim in item.value.type.shape]
        kind = item.value.type.dtype
        data = rng.normal(0, 1, shape) if kind.is_float else rng.integers(0, sizes["b"] + 1, shape)
        given[item.value.name] = np.asarray(data).astype(numpy_dtype(kind))
    check(run, name, graph, given, sizes)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_norm_does_not_overflow_where_squares_do(run: CudaGraphs, dtype: Any) -> None:
    """The squares of 300 are beyond float16; an eps of 1e-12 is 0 there."""
    name = f"rms_norm_{DType(np.dtype(dtype).name).short}"
    x = np.full((1, 1, 1100), 300, dtype)
    got = run(name, {"x": x, "s": np.ones(1100, dtype)}, {"a": 1, "b": 1})["y0"]
    np.testing.assert_array_equal(got.astype(np.float64), 1)


def test_a_fully_masked_row_gives_zeros(run: CudaGraphs) -> None:
    for dtype in NARROW:
        x = np.full((2, 67, 300), -np.inf, numpy_dtype(dtype))
        x[0, 0, 7] = 3
        got = run(f"softmax_{dtype.short}", {"x": x}, {"a": 2, "b": 67})["y0"].astype(np.float64)
        assert got[0, 0, 7] == 1
        assert got.sum() == 1
