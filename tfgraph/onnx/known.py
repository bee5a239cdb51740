"""Values that are known at import: sizes of tensors, and what is computed from them.

ONNX computes shapes with tensors of integers. Here these hold exact numbers and `Dim`s, and ops
calculate with them; only where one meets a tensor of the graph does it become one. Only scalars and
vectors are followed, which is what shapes are. May import: dims, ops, ir, errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tfgraph.errors import TfgraphError
from tfgraph.ir import Dim, DType, Exact, TensorType, as_dim, dim_max, dim_min, exact
from tfgraph.ir.legal import check_dim

if TYPE_CHECKING:
    from tfgraph.onnx.dims import Sizes

NDArray = np.ndarray[Any, Any]
Number = Any  # int, bool, Dim or Exact

LONGEST = 64
"""Vectors of more elements are no shapes: they are tensors like any other."""


class Undecided(Exception):
    """The result depends on the sizes, or has no exact form."""


@dataclass(frozen=True, eq=False)
class Known:
    """A scalar or vector of exact numbers: ints of an integer type, bools, `Exact` of a float type,
    and `Dim`s of either. `make` gives the tensor where a better one is known than one made of
    these."""

    dtype: DType
    data: NDArray
    make: Callable[[], Any] | None = field(default=None, compare=False)

    @property
    def type(self) -> TensorType:
        """The type of the tensor."""
        return TensorType(self.dtype, tuple(as_dim(n) for n in self.data.shape))

    @property
    def is_const(self) -> bool:
        """Whether no symbol occurs."""
        return not any(isinstance(n, Dim) for n in self.data.flat)

    @property
    def scalar(self) -> Number:
        """The only element; raises Undecided where there are others."""
        if self.data.size != 1:
            raise Undecided
        return self.data.item()


@dataclass(frozen=True, eq=False)
class Nothing(Known):
    """A tensor without elements, of any rank, whose sizes may be symbols."""

    sizes: tuple[Dim, ...] = ()

    @property
    def type(self) -> TensorType:
        """The type of the tensor."""
        return TensorType(self.dtype, self.sizes)


def known(dtype: DType, numbers: Any) -> Known:
    """A `Known` of a number, or of a list or object array of numbers, in normal form. Raises
    Undecided for more than a vector, and for numbers that the type does not hold."""
    array: NDArray = _objects(numbers)
    if array.ndim > 1 or array.size > LONGEST:
        raise Undecided
    result = np.empty(array.shape, object)
    for index, number in np.ndenumerate(array):
        result[index] = _normal(number, dtype)
    return Known(dtype, result)


def _objects(numbers: Any) -> NDArray:
    if hasattr(numbers, "ndim"):
        return numbers  # type: ignore[no-any-return]
    several = isinstance(numbers, list)
    array = np.empty((len(cast("list[Number]", numbers)),) if several else (), object)
    array[...] = numbers
    return array


def _normal(number: Number, dtype: DType) -> Number:
    if dtype == DType.bool_:
        return bool(number)
    if dtype.is_float and not (isinstance(number, Dim) and not number.is_const):
        try:
            return exact(int(number) if isinstance(number, Dim) else number)
        except (ValueError, OverflowError):  # NaN and infinities
            raise Undecided from None
    if isinstance(number, Dim):
        if not number.is_const:
            try:
                check_dim(number)
            except TfgraphError:
                raise Undecided from None
            return number
        number = int(number)
    if isinstance(number, Exact):
        number = int(number.factor) if number.is_integer else int(float(number))
    low, high = (0, 255) if dtype == DType.uint8 else (-(2 ** (dtype.bits - 1)), 0)
    high = high or -low - 1
    if not low <= int(number) <= high:
        raise Undecided
    return int(number)


def from_array(array: NDArray, dtype: DType) -> Known:
    """The numbers of a NumPy array, floats as the shortest decimals that round to them."""
    if array.ndim > 1 or array.size > LONGEST:
        raise Undecided
    if not dtype.is_float:
        return known(dtype, array.astype(object))
    wide = array.astype(np.float64)
    if not np.isfinite(wide).all() or (np.signbit(wide) & (wide == 0)).any():
        raise Undecided  # NaN, infinities and -0 are no exact numbers
    numbers = np.empty(array.shape, object)
    for index, number in np.ndenumerate(array):
        numbers[index] = shortest(number)
    return known(dtype, numbers)


def shortest(number: Any) -> Exact:
    """The shortest decimal that rounds to a NumPy float: 0.1 for the float32 nearest to it."""
    return exact(Fraction(str(number)))


def equal(a: Number, b: Number, sizes: Sizes) -> bool:
    """Whether two numbers are equal, for all sizes or for none; else Undecided."""
    low, high = _difference(a, b, sizes)
    if low == high == 0:
        return True
    if low is None or high is None or low <= 0 <= high:
        raise Undecided
    return False


def less(a: Number, b: Number, sizes: Sizes) -> bool:
    """Whether a < b, for all sizes or for none; else Undecided."""
    low, high = _difference(a, b, sizes)
    if high is not None and high < 0:
        return True
    if low is None or low < 0:
        raise Undecided
    return False


def size_of(number: Number) -> Dim:
    """A whole number as a size; Undecided for others."""
    if isinstance(number, Exact):
        if not number.is_integer:
            raise Undecided
        number = int(number.factor)
    return as_dim(number)


def least(a: Number, b: Number, sizes: Sizes) -> Number:
    """The smaller of two numbers, or a minimum of sizes."""
    low, high = _difference(a, b, sizes)
    if high is not None and high <= 0:
        return a
    if low is not None and low >= 0:
        return b
    return dim_min(size_of(a), size_of(b))


def most(a: Number, b: Number, sizes: Sizes) -> Number:
    """The larger of two numbers, or a maximum of sizes."""
    low, high = _difference(a, b, sizes)
    if high is not None and high <= 0:
        return b
    if low is not None and low >= 0:
        return a
    return dim_max(size_of(a), size_of(b))


def _difference(a: Number, b: Number, sizes: Sizes) -> tuple[Any, Any]:
    if isinstance(a, Dim) or isinstance(b, Dim):
        return sizes.bounds(size_of(a) - size_of(b))
    if isinstance(a, Exact) and isinstance(b, Exact) and (a.calls or b.calls):
        d: Any = float(a) - float(b)
    else:
        d = (a.factor if isinstance(a, Exact) else int(a)) - (
            b.factor if isinstance(b, Exact) else int(b)
        )
    return d, d
