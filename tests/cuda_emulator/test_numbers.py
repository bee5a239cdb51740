"""16-bit floats and shuffles of the emulator against NumPy and ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from cuda_emulator.launch import Emulated, Order
from cuda_emulator.sources import kernels

BFLOAT = np.dtype(ml_dtypes.bfloat16)
TYPES = {"half": np.dtype(np.float16), "bfloat": BFLOAT}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    return Emulated(kernels("numbers"), tmp_path_factory.mktemp("numbers"))


def hard_floats(dtype: np.dtype) -> np.ndarray:
    """65,536 float32: a quarter of the numbers of `dtype`, midpoints, and what lies beside."""
    every = np.arange(1 << 14, dtype=np.uint16) * 4 + 1
    exact = every.view(dtype).astype(np.float32)
    following = (every + 1).view(dtype).astype(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        middle = exact + (following - exact) / 2
    beside = [np.nextafter(middle, np.float32(side)) for side in (-np.inf, np.inf)]
    return np.concatenate([exact, middle, *beside]).astype(np.float32)


@pytest.mark.parametrize("name", TYPES)
def test_conversions(run: Emulated, name: str) -> None:
    dtype = TYPES[name]
    bits, x = np.arange(1 << 16, dtype=np.uint16), hard_floats(dtype)
    wide, narrow = np.zeros(1 << 16, np.float32), np.zeros(1 << 16, np.uint16)
    arguments = [wide, narrow, bits, x, np.int32(1 << 16)]
    run(f"{name}_both_ways", arguments, grid=(64,), block=(1024,))
    np.testing.assert_array_equal(wide, bits.view(dtype).astype(np.float32))
    with np.errstate(over="ignore", invalid="ignore"):
        want = x.astype(dtype)
    same_nan = np.isnan(narrow.view(dtype)) & np.isnan(want)
    assert ((narrow == want.view(np.uint16)) | same_nan).all()


@pytest.mark.parametrize("name", TYPES)
def test_arithmetic(run: Emulated, name: str) -> None:
    dtype, count = TYPES[name], 4096
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 1 << 16, (2, count), dtype=np.uint16).view(dtype)
    results = [np.zeros(count, dtype) for _ in range(3)]
    less = np.zeros(count, np.uint8)
    arguments = [*results, less, x.copy(), y.copy(), np.int32(count)]
    run(f"{name}_arithmetic", arguments, grid=(4,), block=(1024,))
    with np.errstate(all="ignore"):
        wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
        exact = [wide_x + wide_y, wide_x * wide_y, wide_x / wide_y]
        for got, value in zip(results, exact, strict=True):
            want = value.astype(np.float32).astype(dtype).astype(np.float32)
            np.testing.assert_array_equal(got.astype(np.float32), want)
    np.testing.assert_array_equal(less, wide_x < wide_y)


def test_pairs(run: Emulated) -> None:
    x = np.random.default_rng(2).standard_normal(512).astype(np.float32)
    halves, bfloats, tf32 = np.zeros((3, 256), np.uint32)
    run("pairs", [halves, bfloats, tf32, x, np.int32(256)], grid=(2,), block=(128,))
    np.testing.assert_array_equal(halves.view(np.float16), x.astype(np.float16))
    np.testing.assert_array_equal(bfloats.view(BFLOAT), x.astype(BFLOAT))
    rounded = tf32.view(np.float32)
    assert (tf32 & 0x1FFF == 0).all()
    assert (np.abs(rounded - x[::2]) <= np.spacing(np.abs(x[::2])) * 2**12).all()


def test_shuffles(run: Emulated) -> None:
    x = np.random.default_rng(3).permutation(32).astype(np.int32) + 10
    out = np.zeros((6, 32), np.int32)
    run("shuffles", [out, x], grid=(1,), block=(32,))
    lane = np.arange(32)
    np.testing.assert_array_equal(out[0], x[np.minimum(lane + 1, 31)])
    np.testing.assert_array_equal(out[1], np.where(lane % 16 >= 3, x[np.maximum(lane - 3, 0)], x))
    np.testing.assert_array_equal(out[2], x[lane ^ 5])
    np.testing.assert_array_equal(out[3], x[lane // 8 * 8 + 7])
    votes = int(((x % 3 == 0) * (1 << lane.astype(np.int64))).sum())
    np.testing.assert_array_equal(out[4].astype(np.uint32), votes)
    assert (out[5] == (40 in x) + 2).all()


@pytest.mark.parametrize("order", ["ascending", "descending", 1])
def test_places(run: Emulated, order: Order) -> None:
    out = np.full((2, 1, 3, 4, 5, 7), -1, np.int32)  # grid (3, 1, 2) of blocks of (7, 5, 4) threads
    run("places", [out], grid=(3, 1, 2), block=(7, 5, 4), order=order)
    block_z, _, block_x, _, y, x = np.indices(out.shape)
    np.testing.assert_array_equal(out, 100 * (x + 10 * y + 10 * block_x) + block_z)


def test_an_array_that_is_given_twice_is_one(run: Emulated) -> None:
    x = np.zeros(40, np.float32)
    run("next", [x, x], grid=(1,), block=(40,))
    assert (x == 1).all()
