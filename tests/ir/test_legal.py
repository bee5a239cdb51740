"""What names, sizes and constants may be, against NumPy's types."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tfgraph.errors import TfgraphError
from tfgraph.ir import DType, Fill, as_dim, exact, sqrt
from tfgraph.ir.legal import check_fill, check_fits, is_normal, rounds_to_zero

FLOATS = [DType.float16, DType.bfloat16, DType.float32, DType.float64]


def numpy_type(dtype: DType) -> Any:
    return getattr(ml_dtypes, dtype.value, None) or np.dtype(dtype.value)


def fits(value: Any, dtype: DType) -> bool:
    try:
        check_fits(exact(value), dtype)
    except TfgraphError:
        return False
    return True


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_float_fits_where_rounding_gives_a_finite_one(dtype: DType) -> None:
    info: Any = ml_dtypes.finfo(numpy_type(dtype))
    largest = Fraction(float(info.max))
    step = Fraction(float(info.eps)) * 2 ** (int(largest).bit_length() - 1)
    for sign in (1, -1):
        assert fits(sign * largest, dtype)
        assert fits(sign * (largest + step * Fraction(499, 1000)), dtype)
        assert not fits(sign * (largest + step / 2), dtype)  # the tie rounds to even: to infinity
        assert not fits(sign * largest * 2, dtype)
    assert not fits(sqrt(2) * (largest * Fraction(99, 100)), dtype)
    assert fits(sqrt(2) * (largest / 2), dtype)
    least = Fraction(float(info.smallest_normal))
    assert is_normal(exact(least), dtype)
    assert not is_normal(exact(least * Fraction(99, 100)), dtype)
    assert not is_normal(exact(largest * 2), dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_what_a_kernel_takes_for_zero(dtype: DType) -> None:
    """Kernels compute in float32 at least."""
    wide = np.float64 if dtype == DType.float64 else np.float32
    least = Fraction(float(np.finfo(wide).smallest_subnormal))
    assert rounds_to_zero(exact(least / 2), dtype)
    assert rounds_to_zero(exact(-least / 2), dtype)
    assert not rounds_to_zero(exact(least * Fraction(501, 1000)), dtype)
    assert not rounds_to_zero(exact(0), dtype)


@pytest.mark.parametrize("dtype", [d for d in DType if not d.is_float], ids=str)
def test_an_integer_fits_its_range(dtype: DType) -> None:
    if dtype == DType.bool_:
        low, high = 0, 1
    else:
        info: Any = ml_dtypes.iinfo(numpy_type(dtype))
        low, high = int(info.min), int(info.max)
    assert [fits(n, dtype) for n in (low - 1, low, high, high + 1)] == [False, True, True, False]
    assert not fits(Fraction(1, 2), dtype)


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        (Fill("ids"), "ids(): expected an integer of at least 1"),
        (Fill("ids", 0), "ids(0): expected an integer of at least 1"),
        (Fill("ids", 0.5), "ids(0.5): expected an integer of at least 1"),
        (Fill("lengths"), "lengths(): expected a size"),
        (Fill("lengths", 0), "lengths(0): expected a size"),
        (Fill("lengths", exact(0.5)), "lengths(0.5): expected a size"),
        (Fill("zeros", 3), "zeros(3): zeros takes no argument"),
        (Fill("prefix", 3), "prefix(3): prefix takes no argument"),
        (Fill("normal", as_dim("s")), "normal(s): expected a number"),
        (Fill("norml", 3), "unknown generator 'norml'"),
    ],
    ids=str,
)
def test_generators_that_are_refused(fill: Fill, message: str) -> None:
    with pytest.raises(TfgraphError) as caught:
        check_fill(fill)
    assert caught.value.message == message


def test_generators_take_numbers_and_sizes() -> None:
    assert Fill("ids", 7) == Fill("ids", exact(7))
    assert Fill("lengths", "s") == Fill("lengths", as_dim("s"))
    assert Fill("lengths", exact(3)) == Fill("lengths", as_dim(3))
    for fill in (Fill("ids", 7), Fill("lengths", as_dim("s") + 1), Fill("normal", 0.5)):
        check_fill(fill)
