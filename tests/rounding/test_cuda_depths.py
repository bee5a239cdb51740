"""The summation trees of the GPU's kernels, which run on the CPU here, are as deep as they declare:
see `test_depths`. In floats of 16 bits the same trees add in float32, products on tensor cores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import ml_dtypes
import numpy as np
import pytest
from helpers.cuda_graphs import CudaGraphs

from tfgraph import ops
from tfgraph.backends.base import Target, find_backend
from tfgraph.backends.rounding import UNITS, one_by_one
from tfgraph.backends.tvm.cuda import attention, linear, norm, softmax
from tfgraph.backends.tvm.cuda.flash_tile import product_depth
from tfgraph.ir import DType

if TYPE_CHECKING:
    from pathlib import Path

    from tfgraph.ir import Graph
    from tfgraph.ops import Traced

NDArray = np.ndarray[Any, Any]
U = UNITS["float32"]
ROWS = linear.FEW + 1
WIDTH, KEYS, WIDE = 300, 256, 4096  # WIDE: a power of 2, by which norms divide exactly
CHUNK = 4
"""How many neighbours of float32 a thread takes at a time."""
LANES = [1, 2, 4, 8, 16]
"""Those of its warp that lane 0 meets when halves are added."""


def sums(dtype: DType) -> Graph:
    with ops.graph("sums") as g:
        x, wide = g.input("x", dtype, 1, WIDTH), g.input("wide", dtype, 1, WIDE)
        rows = g.input("rows", dtype, ROWS, WIDTH)
        v = g.input("v", dtype, 1, KEYS, 8)
        results = {
            "linear": ops.linear(rows, g.param("w", dtype, WIDTH, 8)),
            "linear_few": ops.linear(x, g.param("w_few", dtype, WIDTH, 8)),
            "matmul": ops.matmul(x, ops.reshape(x, shape=(WIDTH, 1))),
            "sum": ops.sum_(x),
            "softmax": ops.softmax(x),
            "rms_norm": ops.rms_norm(wide, eps=0),
            "attention": ops.attention(ops.mul(v, 0), v, v, heads=1, kv_heads=1, scale=1),
        }
        for name, result in results.items():
            g.output(name, cast("Traced", result))
    return g.build()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    ones = np.ones((WIDTH, 8), np.float32)
    weights = {"f32": {"w": ones, "w_few": ones}}
    made = CudaGraphs({"f32": sums(DType.float32)}, tmp_path_factory.mktemp("depths"), weights)

    def call(**given: NDArray) -> dict[str, NDArray]:
        shapes = {"x": (1, WIDTH), "wide": (1, WIDE), "v": (1, KEYS, 8), "rows": (ROWS, WIDTH)}
        feeds = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
        feeds |= {name: array.reshape(shapes[name]) for name, array in given.items()}
        return made("f32", feeds, {})

    return call


@pytest.mark.parametrize("dtype", [DType.float16, DType.bfloat16])
@pytest.mark.parametrize("rows", [5, 17])
def test_tensor_cores_drop_more_than_roundings_do(dtype: DType, rows: int, tmp_path: Path) -> None:
    """All terms but the first are just below the last bit of it; the bias takes the first away, so
    that the rounding of the result does not hide what was lost."""
    with ops.graph("dropped") as g:
        x, w = g.input("x", dtype, rows, WIDTH), g.param("w", dtype, WIDTH, 8)
        g.output("y", ops.linear(x, w, g.param("b", dtype, 8)))
    small = 2**-12 * 1.4140625
    kind = ml_dtypes.bfloat16 if dtype is DType.bfloat16 else np.float16
    factors = np.full((rows, WIDTH), small).astype(kind)
    factors[:, 0] = 1
    weights = {"w": factors[:1].T.repeat(8, 1), "b": np.full(8, -1, kind)}
    graph = g.build()
    run = CudaGraphs({"g": graph}, tmp_path, {"g": weights})
    lost = ((WIDTH - 1) * small**2 - run("g", {"x": factors}, {})["y"].astype(np.float64)) / U
    (node,) = graph.nodes
    declared = find_backend("cuda").rounding(node, Target("cuda")).matmul(WIDTH)
    assert (lost > one_by_one(WIDTH)).all()
    assert declared - WIDTH / 8 - 4 < lost.min() <= lost.max() <= declared


def path(width: int, places: list[int], small: float) -> NDArray:
    """1 in the first place, `small` in all others that it meets one after another; else 0."""
    x = np.zeros(width, np.float32)
    x[places] = small
    x[0] = 1
    return x


def met(width: int, threads: int) -> list[int]:
    """The columns that column 0 meets: those of its thread, of its warp, of other warps."""
    own = [
        first + i
        for first in range(0, width, CHUNK * threads)
        for i in range(CHUNK)
        if first + i < width
    ]
    others = [CHUNK * lane for lane in (*LANES, *range(32, threads, 32))]
    return [*own[1:], *(column for column in others if column < width)]


@pytest.mark.parametrize("name", ["linear", "matmul", "sum"])
def test_one_by_one(run: Any, name: str) -> None:
    small = np.sqrt(U) if name == "matmul" else U
    x = path(WIDTH, list(range(1, WIDTH)), float(small))
    terms = np.square(x, dtype=np.float64) if name == "matmul" else x
    given = {"rows": np.tile(x, (ROWS, 1))} if name == "linear" else {"x": x}
    lost = (np.sum(terms, dtype=np.float64) - run(**given)[name].ravel()[0]) / U
    assert lost == one_by_one(WIDTH) - 1  # the first meets a 0


def test_few_rows_are_added_a_lane_and_the_warp(run: Any) -> None:
    step = 4 * 32  # 16 bytes of each lane
    own = [*range(1, 4), *(first + i for first in range(step, WIDTH, step) for i in range(4))]
    x = path(WIDTH, [*own, *(4 * lane for lane in LANES)], U)
    lost = (np.sum(x, dtype=np.float64) - run(x=x)["linear_few"].ravel()[0]) / U
    assert lost == len(own) + len(LANES) < one_by_one(WIDTH)


def test_a_norm_adds_a_thread_a_warp_the_block(run: Any) -> None:
    x = path(WIDE, met(WIDE, norm.threads_of(WIDE)), float(np.sqrt(U)))
    exact = 1 / np.sqrt(np.mean(np.square(x, dtype=np.float64)))
    lost = 2 * (run(wide=x)["rms_norm"][0, 0] / exact - 1) / U  # of the mean: the root halves it
    assert (
        abs(lost - norm.depth(WIDE, CHUNK)) < 4
    )  # the roundings of the root, its inverse, the product


def test_softmax_adds_a_thread_a_warp_the_block(run: Any) -> None:
    others = met(WIDTH, softmax.THREADS)  # the last warp has no columns
    weights = path(WIDTH, others, 0.95 * U)
    with np.errstate(divide="ignore"):
        x = np.log(weights).astype(np.float32)
    exact = 1 / np.sum(np.exp(x.astype(np.float64)))
    lost = (run(x=x)["softmax"][0, 0] - exact) / U
    assert 0.95 * len(others) - 0.5 < lost < softmax.depth(WIDTH, CHUNK) == len(others) + 1


def test_attention_adds_values_one_by_one(run: Any) -> None:
    v = np.zeros((KEYS, 8), np.float32)
    v[:, 0] = path(KEYS, list(range(1, KEYS)), U)
    exact = np.mean(v[:, 0], dtype=np.float64)
    lost = (exact - run(v=v)["attention"][0, 0, 0]) * KEYS / U
    assert lost == attention.values_depth(KEYS, attention.Tiles(8, 8), 0) - 1


def test_the_backend_declares_them() -> None:
    cuda, target = find_backend("cuda"), Target("cuda")
    for dtype in (DType.float32, DType.float16):
        found = {n.op: cuda.rounding(n, target) for n in sums(dtype).nodes}
        arithmetic = None if dtype == DType.float32 else "float32"
        assert {rounding.arithmetic for rounding in found.values()} == {arithmetic}
        assert found["rms_norm"].along(WIDE) == 7 + 5 + 15
        # 300 numbers are 75 vectors of float32, and none of 16 bits.
        assert found["softmax"].along(WIDTH) == (3 if dtype == DType.float32 else 2) + 5 + 3
        depth = one_by_one if dtype == DType.float32 else product_depth
        assert found["linear"].matmul(WIDTH) == found["matmul"].matmul(WIDTH) == depth(WIDTH)
        if dtype == DType.float32:
            # Further tiles, of 32 keys: the factor, its 5 units; and for weights the sum.
            assert found["attention"].weighted_sum(KEYS) == KEYS + 7 * 6
            assert found["attention"].along(KEYS) == 1 + 4 + 7 * 7
        else:
            # Tiles of 16 keys in the least, whose factor is within 2^-22, 4 units. Lanes, four a
            # row, add the weights of a tile two at a time.
            tiles = KEYS // 16
            assert found["attention"].weighted_sum(KEYS) == product_depth(KEYS) + tiles * 5
            assert found["attention"].along(KEYS) == KEYS / 8 + 2 + tiles * 5
