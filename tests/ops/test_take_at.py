"""take_at: ONNX's GatherND as the oracle, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import tfgraph
import tfgraph.ops as ops
from tfgraph.errors import TfgraphError
from tfgraph.ops import FloatArray

RNG = np.random.default_rng(5)


def gather_nd(x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """ONNX's own result; the last axis of the indices holds a place."""
    graph = helper.make_graph(
        [helper.make_node("GatherND", ["x", "i"], ["y"])],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape),
            helper.make_tensor_value_info("i", TensorProto.INT64, indices.shape),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    return ReferenceEvaluator(model).run(None, {"x": x, "i": indices})[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("places", [(), (4,), (2, 3)])
def test_onnx(count: int, places: tuple[int, ...]) -> None:
    x = RNG.standard_normal((3, 4, 5)).astype(np.float32)
    each = [np.asarray(RNG.integers(0, n, places)) for n in x.shape[:count]]
    got = ops.take_at(FloatArray(x), *map(FloatArray, each))
    np.testing.assert_array_equal(got.data, gather_nd(x, np.stack(each, -1)))  # type: ignore[attr-defined]


def test_indices_broadcast() -> None:
    x = RNG.standard_normal((3, 4, 2)).astype(np.float32)
    i, j = np.array([[0], [2]]), np.array([3, 1, 0], np.int64)
    got = ops.take_at(FloatArray(x), FloatArray(i), FloatArray(j))
    np.testing.assert_array_equal(got.data, x[i, j])  # type: ignore[attr-defined]
    assert got.data.shape == (2, 3, 2)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("i", "j"), [(3, 0), (0, 4), (-1, 0), (0, -1)])
def test_out_of_range(i: int, j: int) -> None:
    with tfgraph.graph("g") as g:
        x = g.input("x", "f32", 3, 4)
        indices = [g.input(name, "i64", 1) for name in "ij"]
        g.output("y", ops.take_at(x, *indices))
    run = tfgraph.compile(g.build(), target="numpy")
    given = {"i": np.array([i]), "j": np.array([j])}
    x = np.zeros((3, 4), np.float32)
    with pytest.raises(TfgraphError, match=r"holds -?\d, expected 0 to \d"):
        run(x=x, **given)
    with pytest.raises(IndexError, match=r"index -?\d is out of range"):
        ops.take_at(FloatArray(x), *map(FloatArray, given.values()))


def test_refused() -> None:
    with tfgraph.graph("g") as g:
        x, i = g.input("x", "f32", 3, 4), g.input("i", "i64", 2)
        with pytest.raises(TfgraphError, match="expected i64 or i32"):
            ops.take_at(x, g.input("f", "f32", 2))
        with pytest.raises(TfgraphError, match="3 tensors of indices"):
            ops.take_at(x, i, i, i)
        with pytest.raises(TfgraphError, match="do not broadcast"):
            ops.take_at(x, i, g.input("j", "i64", 3))
