"""Every summation tree is as deep as its kernel declares: an input that loses one unit at each
addition on a path through the tree shows how many there are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from tfgraph import ops
from tfgraph.backends.base import Target, find_backend
from tfgraph.backends.rounding import UNITS
from tfgraph.backends.tvm.cpu import attention_tile, gemm, norm, softmax
from tfgraph.backends.tvm.cpu.vector_math import ACCURACY
from tfgraph.backends.tvm.generic import reduction
from tfgraph.backends.tvm.target import cpu_machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfgraph.ops import Traced
    from tfgraph.runtime.runnable import Runnable

NDArray = np.ndarray[Any, Any]
U = UNITS["float32"]
WIDTH, KEYS, WIDE = 300, 256, 4096  # WIDE: a power of 2, by which norms divide exactly
MACHINE = cpu_machine()
LANES = MACHINE.lanes
STEP = norm.UNROLL * LANES
ROWS, REST = 32, STEP + 3 * LANES + 1  # a step of a norm, and as much behind it as there may be


@pytest.fixture(scope="module")
def program() -> Iterator[Runnable]:
    with ops.graph("sums") as g:
        x, wide = g.input("x", "f32", 1, WIDTH), g.input("wide", "f32", 1, WIDE)
        v, rest = g.input("v", "f32", 1, KEYS, 8), g.input("rest", "f32", ROWS, REST)
        w = g.param("w", "f32", WIDTH, 8)
        column = ops.reshape(x, shape=(WIDTH, 1))
        results = {
            "linear": ops.linear(x, w),
            "matmul": ops.matmul(x, column),
            "sum": ops.sum_(x, axis=-1),
            "across": ops.sum_(column, axis=0),
            "softmax": ops.softmax(x),
            "rms_norm": ops.rms_norm(wide, eps=0),
            "rest": ops.rms_norm(rest, eps=0),
            "attention": ops.attention(ops.mul(v, 0), v, v, heads=1, kv_heads=1, scale=1),
        }
        for name, result in results.items():
            g.output(name, cast("Traced", result))
    weights = {"w": np.ones((WIDTH, 8), np.float32)}
    run = find_backend("cpu").compile(g.build(), weights, Target("cpu"))
    yield run
    run.close()


def path(width: int, first: list[int], partners: list[int], small: float) -> NDArray:
    """1 in the first of the places that a chain adds in turn, `small` in the others of the chain
    and in one place of each subtree that is added to it later; else 0."""
    x = np.zeros(width, np.float32)
    x[first] = x[partners] = small
    x[first[0]] = 1
    return x


def run(program: Runnable, **given: NDArray) -> dict[str, NDArray]:
    """The results, for zeros where nothing is given."""
    feeds = {p.name: np.zeros(cast("Any", p.shape), np.float32) for p in program.inputs}
    feeds |= {name: array.reshape(feeds[name].shape) for name, array in given.items()}
    return program(**feeds)


def test_a_gemm_adds_the_products_of_a_block_then_the_blocks(program: Runnable) -> None:
    blocks = list(range(gemm.K_BLOCK, WIDTH, gemm.K_BLOCK))
    x = path(WIDTH, list(range(gemm.K_BLOCK)), blocks, U)
    lost = (np.sum(x, dtype=np.float64) - run(program, x=x)["linear"][0, 0]) / U
    assert lost == gemm.depth(WIDTH) - 1  # the first product meets a 0


@pytest.mark.parametrize(("name", "least"), [("matmul", WIDTH - 1), ("across", WIDTH - 1)])
def test_one_by_one(program: Runnable, name: str, least: int) -> None:
    # The matrix product is of x and itself: roots of the terms.
    small = np.sqrt(U) if name == "matmul" else U
    x = path(WIDTH, list(range(WIDTH)), [], float(small))
    exact = np.sum(np.square(x, dtype=np.float64) if name == "matmul" else x, dtype=np.float64)
    lost = (exact - run(program, x=x)[name].ravel()[0]) / U
    assert lost == least


def folded(lanes: int) -> list[int]:
    """The lanes that lane 0 meets when halves are added."""
    return [1 << i for i in range(lanes.bit_length() - 1)]


def test_a_sum_of_a_row_has_lanes(program: Runnable) -> None:
    lanes = 16
    x = path(WIDTH, list(range(0, WIDTH, lanes)), folded(lanes), U)
    lost = (np.sum(x, dtype=np.float64) - run(program, x=x)["sum"][0]) / U
    assert lost == reduction.depth(WIDTH, lanes)


def test_softmax_adds_by_lanes(program: Runnable) -> None:
    weights = path(WIDTH, list(range(0, WIDTH, LANES)), folded(LANES), 0.95 * U)
    with np.errstate(divide="ignore"):
        x = np.log(weights).astype(np.float32)
    exact = 1 / np.sum(np.exp(x.astype(np.float64)))
    lost = (run(program, x=x)["softmax"][0, 0] - exact) / U
    depth = softmax.depth(WIDTH, LANES)
    assert 0.95 * depth - 0.5 < lost < depth


def test_a_norm_has_four_vectors_of_lanes(program: Runnable) -> None:
    partners = [LANES, 2 * LANES, *folded(LANES)]
    x = path(WIDE, list(range(0, WIDE, STEP)), partners, float(np.sqrt(U)))
    exact = 1 / np.sqrt(np.mean(np.square(x, dtype=np.float64)))
    y = run(program, wide=x)["rms_norm"][0, 0]
    lost = 2 * (y / exact - 1) / U  # of the mean square: the root halves it
    assert abs(lost - norm.depth(WIDE, LANES)) < 4  # its own rounding, and the root's


def test_the_first_vector_of_a_norm_takes_the_rest_of_the_row(program: Runnable) -> None:
    """On many rows, since the width is no power of 2: a division that rounds, up or down. Divided
    by the width, the first squares are a little above a power of 2."""
    inverse = float(np.float32(1 / REST))
    first = np.sqrt(np.linspace(1, 1.1, ROWS) / 2 ** np.ceil(-np.log2(inverse)) / inverse)
    partners = [*range(STEP, REST, LANES), LANES, 2 * LANES, *folded(LANES)]
    x = np.zeros((ROWS, REST), np.float32)
    x[:, 0], x[:, partners] = first, (first * np.sqrt(0.9 * U))[:, None]
    exact = 1 / np.sqrt(np.sum(np.square(x, dtype=np.float64), axis=1) * inverse)
    y = run(program, rest=x)["rest"][:, 0].astype(np.float64) / x[:, 0]
    lost = 2 * (y / exact - 1) / (0.9 * U)
    assert abs(lost.mean() - norm.depth(REST, LANES)) < 1.5


def test_attention_adds_the_keys_of_a_tile_then_the_tiles(program: Runnable) -> None:
    tile = attention_tile.tile_keys(MACHINE)
    tiles = list(range(tile, KEYS, tile))
    v = np.zeros((KEYS, 8), np.float32)
    v[:, 0] = path(KEYS, list(range(tile)), tiles, U)
    y = run(program, v=v)["attention"][0, 0, 0]  # all weights are 1 / KEYS
    lost = (np.sum(v[:, 0], dtype=np.float64) - float(y) * KEYS) / U
    assert lost == tile - 1 + len(tiles)
    assert lost <= attention_tile.depth(KEYS, MACHINE)


TILE = attention_tile.tile_keys(MACHINE)
COUNTS = [1, 2, TILE - 1, TILE, TILE + 1, 2 * TILE - 1, 2 * TILE, 2 * TILE + 1, 3 * TILE + 5]


@pytest.fixture(scope="module")
def attending() -> Iterator[Runnable]:
    """One query, whose scores are the first column of the keys: in base 2, since ln 2 times
    log2(e), which is what they are multiplied by, is 1."""
    with ops.graph("attending") as g:
        k, v = (g.input(name, "f32", 1, "keys", 8) for name in "kv")
        q = g.input("q", "f32", 1, 1, 8)
        y = ops.attention(q, k, v, heads=1, kv_heads=1, scale=math.log(2))
        g.output("y", cast("Traced", y))
    run = find_backend("cpu").compile(g.build(), {}, Target("cpu"))
    yield run
    run.close()


@pytest.mark.parametrize("keys", COUNTS)
def test_attention_is_as_deep_at_any_number_of_keys(attending: Runnable, keys: int) -> None:
    """Also where the last tile is not full. So that the division is exact, some weights are halves
    and the sum of all is a power of 2."""
    half = 2 * (keys - 2 ** (keys.bit_length() - 1))
    scores = np.zeros(keys)
    scores[1 : 1 + half] = -1
    weights = 2.0**scores
    total = weights.sum()
    assert np.log2(total) % 1 == 0
    tiles = list(range(TILE, keys, TILE))
    k, v = np.zeros((2, 1, keys, 8), np.float32)
    k[0, :, 0] = scores
    v[0, :, 0] = path(keys, list(range(min(keys, TILE))), tiles, U) / weights
    q = np.zeros((1, 1, 8), np.float32)
    q[..., 0] = 1
    y = attending(q=q, k=k, v=v)["y"][0, 0, 0]
    lost = (weights @ v[0, :, 0].astype(np.float64) - float(y) * total) / U
    assert lost == min(keys, TILE) - 1 + len(tiles)
    # Besides, the first product is rounded, and in each further tile the factor of the sum so far.
    expected = lost + 1 + len(tiles) * ACCURACY["exp2"].relative
    assert attention_tile.depth(keys, MACHINE) == pytest.approx(expected)
