"""The float domain: `Array` over NumPy. The reference that every backend is compared with.

An op widens float operands to float64, runs its body there, and rounds its result once to the
dtype of the graph. Integers and bools are themselves. May import: array, infer, ir; numpy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tfgraph.ir import Dim, DType, Exact, Mask, TensorType, as_dim, exact
from tfgraph.ops.array import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfgraph.ir import DimLike, ExactLike
    from tfgraph.ops.define import OpDef

    NDArray = np.ndarray[Any, Any]


def power(a: NDArray, b: NDArray) -> NDArray:
    """a to the power of b, of floats, as IEEE 754 has it. NumPy takes an exponent of 0.5 that
    repeats for a square root, which is another at -inf and at -0."""
    result = np.power(a, b)
    root = np.where(np.isinf(a), np.inf, 0.0)
    fixed: NDArray = np.where((b == 0.5) & (np.isinf(a) | (a == 0)), root, result)
    return fixed


def matmul(a: NDArray, b: NDArray) -> NDArray:
    """np.matmul; by one matrix in one piece, which NumPy makes as many products as there are
    matrices."""
    if b.ndim != 2 or a.ndim < 3:
        return np.asarray(np.matmul(a, b))
    rows = a.reshape(math.prod(a.shape[:-1]), a.shape[-1])
    product: NDArray = np.matmul(rows, b)
    return product.reshape(*a.shape[:-1], b.shape[-1])


_BINARY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "pow": power,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "less": np.less,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
}
_UNARY: dict[str, Callable[..., Any]] = {
    "neg": np.negative,
    "abs": np.abs,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "floor": np.floor,
    "logical_not": np.logical_not,
}
_REDUCE: dict[str, Callable[..., Any]] = {"sum": np.sum, "mean": np.mean, "max": np.max}


@dataclass(frozen=True, eq=False)
class FloatArray(Array):
    """A NumPy array as an `Array`; its shape is made of plain integers."""

    data: NDArray

    @property
    def type(self) -> TensorType:
        """The dtype and shape of the array."""
        return TensorType(DType(str(self.data.dtype)), tuple(as_dim(n) for n in self.data.shape))

    def apply(self, definition: OpDef, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        """Widen to float64, run the body, round once to the dtype that inference gives. A scalar
        operand is what the tensors' dtype holds of it: `equal(x, 0.1)` is true where x is."""
        types = definition.result_types([each_array(o, _type) for o in operands], attrs)
        # Overflow to inf and invalid to NaN are results here, not news.
        with np.errstate(all="ignore"):
            operands = [_constant(o, self.dtype) for o in operands]
            result = definition.body(*(each_array(o, _widened) for o in operands), **attrs)
            if not isinstance(result, tuple):
                return FloatArray(_round(result.data, types[0].dtype))
            results = cast("tuple[FloatArray, ...]", result)
            return tuple(
                FloatArray(_round(r.data, t.dtype)) for r, t in zip(results, types, strict=True)
            )

    def widened(self) -> FloatArray:
        """Floats in float64, in which bodies compute; integers and bools as they are."""
        if not self.dtype.is_float:
            return self
        return FloatArray(self.data.astype(np.float64, copy=False))

    def like(self, value: ExactLike) -> FloatArray:
        """A scalar, rounded once to this dtype."""
        number = exact(value)
        return FloatArray(
            np.asarray(
                int(number.factor) if number.is_integer else float(number), dtype=self.data.dtype
            )
        )

    def unary(self, f: str) -> FloatArray:
        """Elementwise."""
        return FloatArray(erf(self.data) if f == "erf" else _UNARY[f](self.data))

    def binary(self, f: str, other: FloatArray) -> FloatArray:
        """Elementwise with broadcasting."""
        return FloatArray(_BINARY[f](self.data, other.data))

    def select(self, yes: FloatArray, no: FloatArray) -> FloatArray:
        """np.where."""
        return FloatArray(np.where(self.data, yes.data, no.data))

    def hide(self, allowed: FloatArray) -> FloatArray:
        """-inf where not allowed."""
        return FloatArray(np.where(allowed.data, self.data, self.data.dtype.type(-np.inf)))

    def empty(self, axis: int) -> FloatArray:
        """Whether a row is -inf all along."""
        return FloatArray(np.all(np.isneginf(self.data), axis=axis, keepdims=True))

    def reduce(self, f: str, axis: int) -> FloatArray:
        """Along one axis, kept, and in the same dtype (NumPy would widen small integers)."""
        result = _REDUCE[f](self.data, axis=axis, keepdims=True)
        return FloatArray(result.astype(self.data.dtype, copy=False))

    def scan(self, f: str, axis: int) -> FloatArray:
        """The running sum."""
        return FloatArray(np.cumsum(self.data, axis=axis, dtype=self.data.dtype))

    def matmul(self, other: FloatArray) -> FloatArray:
        """See the function `matmul`."""
        return FloatArray(matmul(self.data, other.data))

    def weighted_sum(self, values: FloatArray) -> FloatArray:
        """A value at a time, as defined, where any is NaN or infinite."""
        if np.isfinite(values.data).all():
            return self.matmul(values)
        weights = self.data
        total = np.matmul(np.zeros_like(weights), np.zeros_like(values.data))
        for k in range(weights.shape[-1]):
            weight, value = weights[..., k : k + 1], values.data[..., k : k + 1, :]
            total = total + np.where(weight == 0, 0, weight * value)
        return FloatArray(total)

    def reshape(self, shape: Sequence[DimLike]) -> FloatArray:
        """np.reshape."""
        return FloatArray(self.data.reshape(sizes_of(shape)))

    def transpose(self, perm: Sequence[int]) -> FloatArray:
        """np.transpose."""
        return FloatArray(self.data.transpose(perm))

    def broadcast(self, shape: Sequence[DimLike]) -> FloatArray:
        """np.broadcast_to."""
        return FloatArray(np.broadcast_to(self.data, sizes_of(shape)))

    def slice(self, axis: int, start: DimLike, stop: DimLike) -> FloatArray:
        """A window along one axis."""
        index = [slice(None)] * self.data.ndim
        index[axis] = slice(*sizes_of((start, stop)))
        return FloatArray(self.data[tuple(index)])

    def join(self, others: Sequence[FloatArray], axis: int) -> FloatArray:
        """np.concatenate."""
        return FloatArray(np.concatenate([self.data, *(o.data for o in others)], axis=axis))

    def take(self, indices: FloatArray, axis: int) -> FloatArray:
        """np.take; an index out of range raises IndexError, a negative one too."""
        _check_indices(indices.data, self.data.shape[axis])
        return FloatArray(np.take(self.data, indices.data, axis=axis))

    def take_at(self, indices: Sequence[FloatArray]) -> FloatArray:
        """NumPy's indexing by arrays; errors are those of `take`."""
        for given, size in zip(indices, self.data.shape, strict=False):
            _check_indices(given.data, size)
        return FloatArray(self.data[tuple(given.data for given in indices)])

    def topk(self, k: int) -> tuple[FloatArray, FloatArray]:
        """The k largest, NaN above all; sorted from behind, a stable sort keeps the lower index
        first among equals. (Sorting -x fails for the lowest integer, and for unsigned ones.)"""
        backwards = np.argsort(self.data[..., ::-1], axis=-1, kind="stable")[..., ::-1]
        order = (self.data.shape[-1] - 1 - backwards)[..., :k].astype(np.int64)
        return FloatArray(np.take_along_axis(self.data, order, axis=-1)), FloatArray(order)

    def iota(self, length: DimLike) -> FloatArray:
        """np.arange as int64."""
        return FloatArray(np.arange(*sizes_of((length,)), dtype=np.int64))

    def cast(self, dtype: DType) -> FloatArray:
        """Rounded to `dtype`, then widened again by the next op."""
        return FloatArray(_round(self.data, dtype))


_WIDENING = Lock()  # who needs the same array waits for it, rather than make it too


class SharedArray(FloatArray):
    """An array that several evaluations read, in any threads: what it is in float64 is made for the
    first of them and kept until `forget`."""

    @cached_property
    def _in_float64(self) -> FloatArray:
        return super().widened()

    def widened(self) -> FloatArray:
        """See `FloatArray.widened`."""
        with _WIDENING:
            return self._in_float64

    def forget(self) -> None:
        """Let go of the array in float64."""
        vars(self).pop("_in_float64", None)


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype; bfloat16 and int4 come from ml_dtypes."""
    name: Any = dtype.value
    if dtype in (DType.bfloat16, DType.int4):
        import ml_dtypes

        name = getattr(ml_dtypes, dtype.value)
    found: np.dtype[Any] = np.dtype(name)
    return found


_ERF_STEP, _ERF_REACH, _ERF_TERMS = 128, 6, 6
_PIECE = 1 << 14  # elements at a time, so that what is computed of them stays in the cache


def erf(x: NDArray) -> NDArray:
    """The error function in float64, within 2 ulp: its Taylor series around the nearest point of a
    grid of step 1/128."""
    flat = x.reshape(-1)
    found: NDArray = np.empty(flat.shape, np.float64)
    for start in range(0, flat.size, _PIECE):
        piece = slice(start, start + _PIECE)
        found[piece] = _erf_piece(flat[piece])
    return found.reshape(x.shape)


def _erf_piece(x: NDArray) -> NDArray:
    near = np.fmin(np.fmax(x.astype(np.float64), -_ERF_REACH), _ERF_REACH)  # a number for NaN, too
    nearest = np.rint(near * _ERF_STEP)
    h = near - nearest / _ERF_STEP
    at = nearest.astype(np.int64) + _ERF_REACH * _ERF_STEP
    *lower, highest = _erf_series()
    total = highest.take(at)
    for series in reversed(lower):
        total = total * h + series.take(at)
    return np.where(np.isnan(x), x, np.copysign(total, x))  # erf is odd, and erf(-0) is -0


@cache
def _erf_series() -> list[NDArray]:
    """At each grid point erf, and its derivatives over n! for n up to _ERF_TERMS, which follow the
    recurrence of Hermite's polynomials: f^(n) = -2 x f^(n-1) - 2 (n-2) f^(n-2)."""
    last = _ERF_REACH * _ERF_STEP
    grid = np.arange(-last, last + 1) / _ERF_STEP
    found = [np.array([math.erf(x) for x in grid])]
    derivative, earlier = 2 / math.sqrt(math.pi) * np.exp(-grid * grid), np.zeros_like(grid)
    for n in range(1, _ERF_TERMS + 1):
        found.append(derivative / math.factorial(n))
        derivative, earlier = -2 * grid * derivative - 2 * (n - 1) * earlier, derivative
    return found


def _check_indices(indices: NDArray, size: int) -> None:
    wrong = (indices < 0) | (indices >= size)
    if wrong.any():
        raise IndexError(f"index {indices[wrong].flat[0]} is out of range 0..{size - 1}")


def sizes_of(dims: Sequence[DimLike]) -> tuple[int, ...]:
    """Dimensions that are numbers, as such."""
    return tuple(int(as_dim(d)) for d in dims)


def each_array(operand: Any, f: Any) -> Any:
    """`f` of an array, or of each tensor of a mask; constants and sizes as they are."""
    if isinstance(operand, Mask):
        return operand.map(f)
    return operand if operand is None or isinstance(operand, Exact | Dim) else f(operand)


def _type(array: FloatArray) -> TensorType:
    return array.type


def _constant(given: Any, dtype: DType) -> Any:
    """A scalar as the element type holds it; anything else as it is."""
    if not isinstance(given, Exact) or not dtype.is_float:
        return given
    return exact(held(given, dtype))


def held(value: Exact, dtype: DType) -> float:
    """What a float type holds of a number: the nearest, infinite where it is too large."""
    with np.errstate(over="ignore"):
        return float(np.asarray(float(value)).astype(numpy_dtype(dtype)))


def _widened(array: FloatArray) -> FloatArray:
    return array.widened()


def _round(data: NDArray, dtype: DType) -> NDArray:
    target = numpy_dtype(dtype)
    return data if data.dtype == target else data.astype(target)
