"""Quantised tensors: every integer is that of ONNX's definition, on NumPy and on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from helpers.onnx_files import node, save
from helpers.tolerance import assert_close

import tfgraph
from tfgraph.errors import TfgraphError
from tfgraph.onnx import import_onnx

NDArray = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
FLOATS = RNG.standard_normal((3, 1100)).astype(np.float32)
SIGNED = RNG.integers(-128, 128, (1100, 7)).astype(np.int8)
SIGNED[:, 0] = -127  # large products of one sign, and an odd sum: where float32 would round
SIGNED[0, 0] = -126
BYTES = RNG.integers(0, 256, (3, 1100)).astype(np.uint8)
BYTES[0] = 255
ROWS = np.array([3, 128, 255], np.uint8)
COLUMNS = np.array([-128, 127, 0, 5, -1, 64, -64], np.int8)
# Halves between all kinds of neighbours, beyond both ends, and the floats just beside a half.
HALVES = np.concatenate(
    [
        np.arange(-140, 300, dtype=np.float32) + np.float32(0.5),
        np.nextafter(np.arange(-3, 4, dtype=np.float32) + np.float32(0.5), np.float32(9)),
        np.nextafter(np.arange(-3, 4, dtype=np.float32) + np.float32(0.5), np.float32(-9)),
        np.array([0, -0.0, 1e-30, -1e-30, 3e38, -3e38, np.inf, -np.inf, 0.49999997], np.float32),
    ]
)
GRID = RNG.integers(-128, 128, (4, 6, 5)).astype(np.int8)
SCALES = (RNG.random(6) + 0.5).astype(np.float32)
POINTS = RNG.integers(-128, 128, 6).astype(np.int8)
BLOCKS = (RNG.random((4, 2, 5)) + 0.5).astype(np.float32)
BLOCK_POINTS = RNG.integers(-128, 128, (4, 2, 5)).astype(np.int8)
WORDS = RNG.integers(-(2**20), 2**20, (3, 4)).astype(np.int32)

NODES = [
    node("DynamicQuantizeLinear", "x", "xq xs xz"),
    node("MatMulInteger", "xq w xz", "dynamic"),
    node("MatMulInteger", "bytes w rows columns", "shifted"),
    node("MatMulInteger", "bytes w", "plain"),
    node("MatMulInteger", "vector w", "vector_y"),
    node("QuantizeLinear", "halves one", "bytes_y"),
    node("QuantizeLinear", "halves one low", "signed_y"),
    node("QuantizeLinear", "halves third point", "third_y"),
    node("Round", "halves", "rounded"),
    node("DequantizeLinear", "grid scale point", "tensor_y"),
    node("DequantizeLinear", "grid scales points", "axis_y", axis=-2),
    node("DequantizeLinear", "grid blocks block_points", "blocks_y", axis=1, block_size=4),
    node("DequantizeLinear", "words scale", "words_y"),
]
STORED = {
    "w": SIGNED,
    "columns": COLUMNS,
    "one": np.float32(1),
    "third": np.float32(1 / 3),
    "low": np.int8(0),
    "point": np.int8(17),
    "scale": np.float32(0.0123),
    "scales": SCALES,
    "points": POINTS,
    "blocks": BLOCKS,
    "block_points": BLOCK_POINTS,
    "words": WORDS,
    "grid": GRID,
    "rows": ROWS,
}
INPUTS = {
    "x": ("f32", ["n", 1100]),
    "bytes": ("u8", ["n", 1100]),
    "vector": ("u8", [1100]),
    "halves": ("f32", ["m"]),
}
GIVEN = {"x": FLOATS, "bytes": BYTES, "vector": BYTES[0], "halves": HALVES}


def product(a: NDArray, b: NDArray) -> NDArray:
    return (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)


def quantized(x: NDArray, scale: NDArray, point: int, low: int, high: int) -> NDArray:
    """By the definition; NumPy's rint is to the even integer."""
    with np.errstate(over="ignore"):
        return np.clip(np.rint((x / scale).astype(np.float64)) + point, low, high)


def wanted() -> dict[str, NDArray]:
    low, high = np.minimum(FLOATS.min(), 0), np.maximum(FLOATS.max(), 0)
    scale = np.float32(high - low) / np.float32(255)
    zero = np.rint(np.clip(-low / scale, 0, 255))
    x = quantized(FLOATS, scale, zero, 0, 255)
    wide = SIGNED.astype(np.int64)
    grid = GRID.astype(np.float64)
    repeated = [np.repeat(a.astype(np.float64), 4, axis=1)[:, :6] for a in (BLOCKS, BLOCK_POINTS)]
    return {
        "xq": x.astype(np.uint8),
        "xs": scale,
        "xz": zero.astype(np.uint8),
        "dynamic": product(x - zero, wide),
        "shifted": product(BYTES.astype(np.int64) - ROWS[:, None], wide - COLUMNS),
        "plain": product(BYTES, wide),
        "vector_y": product(BYTES[0], wide),
        "bytes_y": quantized(HALVES, np.float32(1), 0, 0, 255).astype(np.uint8),
        "signed_y": quantized(HALVES, np.float32(1), 0, -128, 127).astype(np.int8),
        "third_y": quantized(HALVES, np.float32(1 / 3), 17, -128, 127).astype(np.int8),
        "rounded": np.rint(HALVES),
        "tensor_y": ((grid - 17) * np.float32(0.0123)).astype(np.float32),
        "axis_y": ((grid - POINTS[:, None]) * SCALES[:, None]).astype(np.float32),
        "blocks_y": ((grid - repeated[1]) * repeated[0]).astype(np.float32),
        "words_y": (WORDS.astype(np.float32) * np.float32(0.0123)).astype(np.float32),
    }


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quantized")
    return save(folder / "q.onnx", NODES, INPUTS, list(wanted()), STORED, opset=21)


@pytest.mark.parametrize("target", ["numpy", "cpu"])
def test_by_definition(path: Path, target: str) -> None:
    model = tfgraph.compile(path, target=target)
    got = model(**GIVEN)
    for name, want in wanted().items():
        np.testing.assert_array_equal(got[name], want, err_msg=name)
        assert got[name].dtype == want.dtype, name
    # Zeros have no range: they stand for 0, whatever the scale.
    zeros = model(**{**GIVEN, "x": FLOATS * 0})
    assert not zeros["xq"].any()
    assert not zeros["dynamic"].any()


def test_a_symbolic_sum_is_exact(tmp_path: Path) -> None:
    inputs = {"a": ("u8", [2, "k"]), "b": ("i8", ["k", 3])}
    file = save(tmp_path / "m.onnx", [node("MatMulInteger", "a b", "y")], inputs, ["y"])
    a, b = np.full((2, 60001), 255, np.uint8), np.full((60001, 3), -128, np.int8)
    got = tfgraph.compile(file, target="numpy")(a=a, b=b)["y"]
    np.testing.assert_array_equal(got, product(a, b))


def test_weights_of_8_bits(tmp_path: Path) -> None:
    """Cast, Mul, MatMul: the weights are those of a linear, the table that of an embedding, whose
    ids are never negative; as ONNX Runtime computes them."""
    table = RNG.integers(-128, 128, (9, 8)).astype(np.int8)
    weight = RNG.integers(-128, 128, (8, 5)).astype(np.int8)
    nodes = [
        node("Cast", "table", "t", to=1),
        node("Mul", "t row_scales", "rows"),
        node("Gather", "rows ids", "x"),
        node("Gather", "bytes ids", "picked"),
        node("DequantizeLinear", "picked scale point", "z"),
        node("Add", "x z", "sum"),
        node("Cast", "weight", "w", to=1),
        node("Mul", "w scales", "matrix"),
        node("MatMul", "sum matrix", "y"),
    ]
    stored = {
        "table": table,
        "bytes": table.astype(np.uint8),
        "weight": weight,
        "row_scales": (RNG.random((9, 1)) / 100).astype(np.float32),
        "scales": (RNG.random((1, 5)) / 100).astype(np.float32),
        "scale": np.float32(0.01),
        "point": np.uint8(128),
    }
    file = save(tmp_path / "m.onnx", nodes, {"ids": ("i64", ["b", "s"])}, ["y"], stored)
    graph, weights = import_onnx(file)
    assert [n.op for n in graph.nodes if n.op in ("embedding", "take", "where")] == [
        "embedding",
        "take",
    ]
    assert {name: array.dtype for name, array in weights.items() if array.ndim == 2} == {
        "table": np.int8,
        "row_scales": np.float32,
        "bytes": np.uint8,
        "weight": np.int8,
        "scales": np.float32,
    }
    ids = np.array([[0, 8, 3], [4, 4, 7]])
    (want,) = onnxruntime.InferenceSession(str(file)).run(None, {"ids": ids})
    for target in ("numpy", "cpu"):
        model = tfgraph.compile(file, target=target)
        assert_close(model(ids=ids)["y"], want, length=8)


WRONG: Mapping[str, tuple[Any, Mapping[str, Any], str]] = {
    "types": (
        node("DequantizeLinear", "grid scale zero", "y"),
        {"grid": GRID, "scale": np.float32(1), "zero": np.uint8(1)},
        "the zero point is u8[], but x is i8[4,6,5]",
    ),
    "lengths": (
        node("DequantizeLinear", "grid scales", "y", axis=0),
        {"grid": GRID, "scales": SCALES},
        "a scale for each place on the axis",
    ),
    "ranks": (
        node("DequantizeLinear", "grid scales", "y"),
        {"grid": GRID, "scales": BLOCKS[0]},
        "scales or zero points are f32[2,5] for a tensor of rank 3",
    ),
    "floats": (
        node("MatMulInteger", "x x", "y"),
        {"x": np.eye(3, dtype=np.float32)},
        "expected u8 or i8, got f32[3,3]",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_refused(tmp_path: Path, case: str) -> None:
    made, stored, message = WRONG[case]
    file = save(tmp_path / "m.onnx", [made], {}, ["y"], dict(stored), opset=21)
    with pytest.raises(TfgraphError) as caught:
        import_onnx(file)
    assert message in str(caught.value)
