"""Fragments of tensor cores where the hardware has them, and products made of them.

The layouts are written here as CUTLASS has them, in include/cute/atom/mma_traits_sm80.hpp: shapes
and strides that map (lane, number of the lane) to a place in the matrix, column by column.
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest
from cuda_emulator.launch import Emulated, Order
from cuda_emulator.sources import kernels

BFLOAT = np.dtype(ml_dtypes.bfloat16)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    return Emulated(kernels("products"), tmp_path_factory.mktemp("products"))


def layout(lanes: Sequence[tuple[int, int]], values: Sequence[tuple[int, int]]) -> np.ndarray:
    """Places (lane, number), of (size, stride) pairs whose first varies fastest."""

    def places(modes: Sequence[tuple[int, int]]) -> np.ndarray:
        found = np.zeros(1, np.int64)
        for size, stride in modes:
            found = (np.arange(size)[:, None] * stride + found).reshape(-1)
        return found

    return places(lanes)[:, None] + places(values)


def fragment(matrix: np.ndarray, places: np.ndarray) -> np.ndarray:
    return matrix.reshape(-1, order="F")[places]


C = layout([(4, 32), (8, 1)], [(2, 16), (2, 8)])  # 16 x 8
A16 = layout([(4, 32), (8, 1)], [(2, 16), (2, 8), (2, 128)])  # 16 x 16
B16 = layout([(4, 16), (8, 1)], [(2, 8), (2, 64)])  # of (n, k), 8 x 16
A8 = layout([(4, 16), (8, 1)], [(2, 8), (2, 64)])  # 16 x 8
B8 = layout([(4, 8), (8, 1)], [(2, 32)])  # of (n, k), 8 x 8
NUMBERS = {
    "f16": (0, np.dtype(np.float16), 16, A16, B16),
    "bf16": (1, BFLOAT, 16, A16, B16),
    "tf32": (2, np.dtype(np.float32), 8, A8, B8),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_one_mma(run: Emulated, name: str) -> None:
    number, dtype, depth, a_places, b_places = NUMBERS[name]
    rng = np.random.default_rng(number)
    # Small integers: every product and sum is exact, so only the places of numbers can be wrong.
    a = rng.integers(-8, 9, (16, depth)).astype(dtype)
    b = rng.integers(-8, 9, (8, depth)).astype(dtype)
    c = rng.integers(-99, 99, (16, 8)).astype(np.float32)
    held = fragment(c, C).copy()
    words = [fragment(m, p).copy().view(np.uint32) for m, p in ((a, a_places), (b, b_places))]
    run("mma_once", [held, *words, np.int32(number)], grid=(1,), block=(32,))
    want = c + a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_array_equal(held, fragment(want, C))


def test_tf32_drops_thirteen_bits(run: Emulated) -> None:
    a = np.zeros((16, 8), np.float32)
    b = np.zeros((8, 8), np.float32)
    a[0, 0], b[0, 0] = 1 + 2**-10 + 2**-11, 1
    held = np.zeros((32, 4), np.float32)
    words = [fragment(m, p).copy().view(np.uint32) for m, p in ((a, A8), (b, B8))]
    run("mma_once", [held, *words, np.int32(2)], grid=(1,), block=(32,))
    assert held[0, 0] == 1 + 2**-10


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_what_a_sum_drops(run: Emulated, name: str) -> None:
    """Whatever is below the last bit of the largest term, each by itself; a term that is the
    largest keeps its own bits."""
    number, dtype, depth, a_places, b_places = NUMBERS[name]
    small = np.float32(2**-12 * 1.4140625)  # its square is just below 2^-23
    a, b = np.full((16, depth), small).astype(dtype), np.full((8, depth), small).astype(dtype)
    c = np.zeros((16, 8), np.float32)
    c[:, 0], c[:, 1] = 1, -1
    held = fragment(c, C).copy()
    words = [fragment(m, p).copy().view(np.uint32) for m, p in ((a, a_places), (b, b_places))]
    run("mma_once", [held, *words, np.int32(number)], grid=(1,), block=(32,))
    c[:, 2:] = depth * float(small) ** 2
    np.testing.assert_array_equal(held, fragment(c, C))


def test_ldmatrix(run: Emulated) -> None:
    x = np.arange(4 * 64, dtype=np.uint16).reshape(4, 8, 8)
    plain, transposed = np.zeros((2, 32, 4), np.uint32)
    run("ldmatrix_once", [plain, transposed, x], grid=(1,), block=(32,))
    # Lane l gets the elements (l / 4, 2 (l % 4)) and the next of each matrix.
    for got, matrices in ((plain, x), (transposed, x.swapaxes(1, 2))):
        want = matrices.reshape(4, 32, 2).swapaxes(0, 1)
        np.testing.assert_array_equal(got.view(np.uint16).reshape(32, 4, 2), want)


@pytest.mark.parametrize("order", ["ascending", "descending", 5])
@pytest.mark.parametrize("name", NUMBERS)
def test_products(run: Emulated, name: str, order: Order) -> None:
    _, dtype, _, _, _ = NUMBERS[name]
    rng = np.random.default_rng(9)
    m, n, depth = 48, 32, 80
    a, b = (rng.standard_normal((size, depth)).astype(dtype) for size in (m, n))
    c = np.full((m, n), np.nan, np.float32)
    grid = (m // 16, n // (8 if name == "tf32" else 16))
    arguments = [c, a, b, np.int32(n), np.int32(depth)]
    run(f"product_{name}", arguments, grid=grid, block=(32,), order=order, names="cab")
    size = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64).T
    error = np.abs(c - a.astype(np.float64) @ b.astype(np.float64).T)
    unit = 2.0**-11 if name == "tf32" else 2.0**-24  # tf32 rounds both operands to 11 bits
    terms = 2 if name == "tf32" else depth // 16
    assert (error <= 1.01 * terms * unit * size + 2.0**-24 * depth * size).all()
