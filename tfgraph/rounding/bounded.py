"""The domain of error bounds: each float is what exact arithmetic gives, and how far from it a
kernel may be.

Running error analysis (Wilkinson 1963; Higham, Accuracy and Stability of Numerical Algorithms,
2002, section 3.3): every primitive carries on the errors of its operands, in full and not to first
order, and adds its own roundings. A bound covers both sides of a comparison, the kernel's roundings
and the one that the reference makes at the end of every op. See docs/tolerances.md. May import:
arithmetic, backends.rounding, ops, ir.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tfgraph.backends.rounding import LARGEST, SMALLEST, UNITS, Rounding
from tfgraph.ir import DType, TensorType, as_dim, exact
from tfgraph.ops import FloatArray
from tfgraph.ops.floats import each_array, matmul, numpy_dtype
from tfgraph.rounding import carried
from tfgraph.rounding.carried import Error, NDArray, both, gamma, times
from tfgraph.rounding.moves import Moves
from tfgraph.rounding.unsure import unsure_integer, unsure_less, unsure_order

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfgraph.ir import DimLike, ExactLike
    from tfgraph.ops import OpDef

_ANYTHING = -np.inf
_POLES = ("div", "pow", "log")


@dataclass(frozen=True, eq=False)
class Bounded(Moves):
    """A tensor and the bounds of its errors.

    `data` is float64, or integers or bools as they are; `error` is None where it is exact, infinite
    where an integer or bool may be another. `rounding` is that of the kernel that works on it.
    `least` is a number that no element, errors included, is below; `open` says that arithmetic made
    the array, and that the op has not ended, at which the reference rounds.
    """

    data: NDArray
    dtype_: DType
    error: NDArray | None = None
    rounding: Rounding = Rounding()
    least: float = _ANYTHING
    open: bool = False

    @property
    def type(self) -> TensorType:
        """The dtype in the graph, and the shape."""
        return TensorType(self.dtype_, tuple(as_dim(n) for n in self.data.shape))

    def apply(self, definition: OpDef, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        """The body, and the rounding at the end of each op: the reference's, of a graph that is not
        fused, too."""
        types = definition.result_types([each_array(o, _type) for o in operands], attrs)
        result = definition.body(*operands, **attrs)
        several = cast("tuple[Bounded, ...]", result if isinstance(result, tuple) else (result,))
        ended = tuple(r._ended(t.dtype) for r, t in zip(several, types, strict=True))
        return ended if isinstance(result, tuple) else ended[0]

    def _ended(self, dtype: DType) -> Bounded:
        if not self.open or not dtype.is_float:
            return replace(self, dtype_=dtype, open=False)
        roundings = 1 if self.rounding.arithmetic is None else 2
        unit = roundings * UNITS[dtype.value]
        own = unit * np.abs(self.data) + SMALLEST[dtype.value]
        return replace(
            self.made(self.data, self.error, own, self.least, True), dtype_=dtype, open=False
        )

    def like(self, value: ExactLike) -> Bounded:
        """A scalar; where the dtype does not hold it, either side may round it."""
        number = exact(value)
        if not self.is_float:
            return self._integers(FloatArray(self.data).like(number).data)
        wide = np.asarray(float(number), np.float64)
        held = float(wide.astype(numpy_dtype(self.dtype_)))
        slack = 2 * self.unit * abs(float(wide)) if held != float(number) else 0.0
        error = np.asarray(slack) if slack else None
        return replace(self, data=wide, error=error, least=float(wide) - slack, open=False)

    def unary(self, f: str) -> Bounded:
        """Elementwise."""
        x = self.data
        if not self.is_float:
            return self._integers(FloatArray(x).unary(f).data, self.error)
        with np.errstate(all="ignore"):
            y = FloatArray(x).unary(f).data
            if f in ("neg", "abs"):
                least = 0.0 if f == "abs" else _ANYTHING
                return replace(self, data=y, least=least)
            error = None if self.error is None else carried.UNARY[f](x, y, self.error, self.least)
            if f == "floor":
                return replace(self, data=y, error=error, least=_ANYTHING)
            accuracy = self.rounding.accuracy(f)
            own = accuracy.relative * self.steps(f) * np.abs(y) + accuracy.absolute
            if accuracy.argument:
                moved = np.abs(x * carried.SLOPES[f](x, y))
                # At an end, such as exp of a hidden score, that is infinity times 0: there is none.
                own = own + accuracy.argument * np.where(np.isnan(moved), 0.0, moved)
            least = _ANYTHING
            if f == "exp":
                least = 0.0
            elif f == "sqrt" and self.least >= 0:
                least = float(np.sqrt(self.least)) * (1 - 2 * self.unit)
            return self.made(y, error, self.unit * own + self.floor, least, f in _POLES)

    def binary(self, f: str, other: Bounded) -> Bounded:
        """Elementwise with broadcasting."""
        a, b, ea, eb = self.data, other.data, self.error, other.error
        with np.errstate(all="ignore"):
            y = FloatArray(a).binary(f, FloatArray(b)).data
            if f in ("less", "equal"):
                near = None if ea is None and eb is None else unsure_less(a, b, both(ea, eb))
                return replace(self._integers(y, near), dtype_=DType.bool_)
            if not self.is_float:
                return self._integers(y, both(ea, eb))
            if f in ("maximum", "minimum"):
                pick = np.maximum if f == "maximum" else np.minimum
                least = float(pick(self.least, other.least))
                return replace(self.made(y, carried.larger(ea, eb), None, least), open=self.open)
            error = carried.BINARY[f](a, b, y, ea, eb, other.least)
            own = self.steps(f) * self.unit * np.abs(y) + self.floor
            if f == "div" and self.arithmetic != "float64":
                # A divisor that is too large for the kernel makes 0 of a tiny quotient.
                huge = np.abs(b) + _or_zero(eb) > LARGEST[self.arithmetic]
                own = own + np.where(huge, np.abs(y), 0.0)
            if f == "pow":
                own = own * self.rounding.accuracy("pow").relative
            return self.made(y, error, own, _least(f, self, other), f in _POLES)

    def select(self, yes: Bounded, no: Bounded) -> Bounded:
        """np.where; where the condition is unsure, it may be either."""
        c, sure = self.data, self.error is None or not self.error.any()
        y = np.where(c, yes.data, no.data)
        error: Error = None
        if yes.error is not None or no.error is not None or not sure:
            error = np.where(c, yes.errors, no.errors)
        if error is not None and not sure:
            with np.errstate(all="ignore"):
                apart = np.abs(np.subtract(yes.data, no.data, dtype=np.float64))
            apart = apart + np.maximum(yes.errors, no.errors)
            apart = np.where(apart > 0, apart if yes.is_float else np.inf, 0.0)
            error = np.where(self.errors > 0, apart, error)
        if not yes.is_float:
            return yes._integers(y, error)
        made = yes.made(y, error, None, min(yes.least, no.least))
        return replace(made, open=yes.open or no.open)

    def hide(self, allowed: Bounded) -> Bounded:
        """-inf, exactly, where not allowed."""
        y = np.where(allowed.data, self.data, -np.inf)
        unsure = None if allowed.error is None else np.broadcast_to(allowed.error, y.shape)
        error = None if self.error is None else np.where(allowed.data, self.error, 0.0)
        return replace(self, data=y, error=both(error, unsure), least=_ANYTHING)

    def empty(self, axis: int) -> Bounded:
        """Whether a row is -inf all along."""
        y = np.all(np.isneginf(self.data), axis=axis, keepdims=True)
        return replace(self._integers(y), dtype_=DType.bool_)

    def reduce(self, f: str, axis: int) -> Bounded:
        """Along one axis, kept."""
        x, n = self.data, self.data.shape[axis]
        with np.errstate(all="ignore"):
            y = FloatArray(x).reduce(f, axis).data
            worst = None if self.error is None else self.error.max(axis=axis, keepdims=True)
            if not self.is_float:
                return self._integers(y, worst)
            if f == "max":
                return replace(self.made(y, worst, None, self.least), open=self.open)
            last = axis % x.ndim == x.ndim - 1
            depth = (self.rounding.along if last else self.rounding.across)(n)
            size, carry = np.abs(x).sum(axis=axis, keepdims=True), np.zeros(())
            if self.error is not None:
                carry = np.asarray(self.error.sum(axis=axis, keepdims=True))
            if f == "mean":
                size, carry = size / n, carry / n
            size = size + carry
            own = self.gamma(depth, n) * size + self.floor
            if f == "mean":
                own = own + self.unit * self.steps("mean") * np.abs(y)
            least = self.least if f == "mean" else self.least * n
            return self.made(y, carry, own, least if self.least >= 0 else _ANYTHING)

    def scan(self, f: str, axis: int) -> Bounded:
        """The running sum, one after another."""
        y = FloatArray(self.data).scan(f, axis).data
        if not self.is_float:
            error = None if self.error is None else np.cumsum(self.error, axis=axis)
            return self._integers(y, error)
        n = self.data.shape[axis]
        with np.errstate(all="ignore"):
            carry = None if self.error is None else np.cumsum(self.error, axis=axis)
            size = np.cumsum(np.abs(self.data), axis=axis) + _or_zero(carry)
            return self.made(y, carry, self.gamma(n, n) * size)

    def matmul(self, other: Bounded) -> Bounded:
        """gamma_h times the actual sum of |a||b|."""
        with np.errstate(all="ignore"):
            y = matmul(self.data, other.data)
        return self._product(other, y, self.rounding.matmul, self.rounding.factors)

    def weighted_sum(self, values: Bounded) -> Bounded:
        """The same; a weight of 0 takes nothing."""
        with np.errstate(all="ignore"):
            y = FloatArray(self.data).weighted_sum(FloatArray(values.data)).data
        finite = replace(values, data=np.where(np.isfinite(values.data), values.data, 0.0))
        return self._product(finite, y, self.rounding.weighted_sum)

    def _product(
        self, other: Bounded, y: NDArray, depth: Callable[[int], float], factors: float = 0.0
    ) -> Bounded:
        n = self.data.shape[-1]
        a, b = np.abs(self.data), np.abs(other.data)
        with np.errstate(all="ignore"):
            moved = times(a, b, self.error, other.error, matmul)
            size = matmul(a, b) + _or_zero(moved)
            share = (1 + self.gamma(depth(n), n)) * (1 + factors) ** 2 - 1
            own = share * size + n * self.floor
            return self.made(y, moved, own)

    def join(self, others: Sequence[Bounded], axis: int) -> Bounded:
        """np.concatenate."""
        parts = (self, *others)
        y = np.concatenate([p.data for p in parts], axis=axis)
        error = None
        if any(p.error is not None for p in parts):
            error = np.concatenate([p.errors for p in parts], axis=axis)
        least, opened = min(p.least for p in parts), any(p.open for p in parts)
        return replace(self, data=y, error=error, least=least, open=opened)

    def take(self, indices: Bounded, axis: int) -> Bounded:
        """np.take; anything may stand where the index is unsure."""
        taken = super().take(indices, axis)
        if indices.error is None:
            return taken
        behind = self.data.ndim - axis % self.data.ndim - 1
        unsure = indices.error.reshape((*indices.data.shape, *[1] * behind))
        return replace(taken, error=both(taken.error, unsure))

    def take_at(self, indices: Sequence[Bounded]) -> Bounded:
        """NumPy's indexing by arrays, likewise."""
        taken = super().take_at(indices)
        unsure: Error = None
        for index in indices:
            unsure = both(unsure, index.error)
        if unsure is None:
            return taken
        unsure = unsure.reshape((*unsure.shape, *[1] * (self.data.ndim - len(indices))))
        return replace(taken, error=both(taken.error, unsure))

    def topk(self, k: int) -> tuple[Bounded, Bounded]:
        """The values move by no more than any of their row does; an index is unsure where the next
        value is as near as that."""
        values, order = FloatArray(self.data).topk(k)
        if self.error is None:
            indices = self._integers(order.data)
            return replace(self, data=values.data), replace(indices, dtype_=DType.int64)
        worst = self.error.max(axis=-1, keepdims=True)
        unsure = unsure_order(self.data, worst, k)
        moved = np.broadcast_to(worst, values.data.shape)
        found = self.made(values.data, moved, None, self.least)
        indices = replace(self._integers(order.data, unsure), dtype_=DType.int64)
        return replace(found, open=self.open), indices

    def iota(self, length: DimLike) -> Bounded:
        """np.arange as int64."""
        return replace(self._integers(FloatArray(self.data).iota(length).data), dtype_=DType.int64)

    def cast(self, dtype: DType) -> Bounded:
        """Between floats a rounding; to an integer, unsure where the truncation is."""
        cast = replace(self, dtype_=dtype)
        if not dtype.is_float:
            y = FloatArray(self.data).cast(dtype).data
            unsure = self.error
            if self.is_float and unsure is not None:
                unsure = unsure_integer(self.data, unsure, dtype)
            return cast._integers(y, unsure)
        y = self.data.astype(np.float64)
        least = self.least if self.is_float else _ANYTHING
        own = cast.unit * np.abs(y)
        if not self.is_float:
            own = np.where(y.astype(numpy_dtype(dtype)).astype(np.float64) == y, 0.0, own)
        elif UNITS[self.dtype_.value] <= UNITS[dtype.value] and self.dtype_ != dtype:
            own = own + SMALLEST[dtype.value]
        else:
            return replace(cast, data=y)
        return cast.made(y, self.error, own, least)

    # What the primitives share.

    @property
    def is_float(self) -> bool:
        """Whether the elements are floats."""
        return self.dtype_.is_float

    @property
    def errors(self) -> NDArray:
        """The bounds, an array of the shape."""
        return np.broadcast_to(np.asarray(_or_zero(self.error), np.float64), self.data.shape)

    @property
    def arithmetic(self) -> str:
        """The dtype in which the kernel computes."""
        return self.rounding.arithmetic or self.dtype_.value

    @property
    def unit(self) -> float:
        """u of the kernel's arithmetic."""
        return UNITS[self.arithmetic]

    @property
    def floor(self) -> float:
        """What one rounding may do to the smallest of numbers."""
        return max(SMALLEST[self.arithmetic], self.rounding.flush)

    def steps(self, primitive: str) -> int:
        """How many roundings of the kernel a primitive stands for."""
        return self.rounding.steps.get(primitive, 1)

    def gamma(self, depth: float, n: int) -> float:
        """That of the kernel's sum of n terms, and of the reference's, which is in float64."""
        return gamma(depth, self.unit) + gamma(n, UNITS["float64"])

    def made(
        self,
        y: NDArray,
        carry: Error,
        own: Error = None,
        least: float = _ANYTHING,
        pole: bool = False,
    ) -> Bounded:
        """The result of a primitive, from what its operands' errors do and its own roundings. What
        is not finite is so on both sides, unless a `pole` may be met; where no bound can be told,
        it is infinite."""
        finite = np.isfinite(y)
        if own is not None:
            own = np.where(finite, own, 0.0)
        if carry is not None:
            carry = np.where(np.isnan(carry), np.inf, carry)
            carry = np.where(finite | (np.isposinf(carry) & pole), carry, 0.0)
        return replace(self, data=y, error=both(carry, own), least=least, open=True)

    def moved(self, f: Callable[[NDArray, int], NDArray]) -> Bounded:
        """A movement of elements, and of their bounds."""
        error = None if self.error is None else f(self.errors, 0)
        return replace(self, data=f(self.data, 0), error=error)

    def _integers(self, y: NDArray, unsure: NDArray | None = None) -> Bounded:
        if unsure is not None:
            unsure = np.broadcast_to(np.where(unsure > 0, np.inf, 0.0), y.shape)
        return replace(self, data=y, error=unsure, least=_ANYTHING, open=False)


def _type(array: Bounded) -> TensorType:
    return array.type


def _least(f: str, a: Bounded, b: Bounded) -> float:
    """What a sum or a square is not below."""
    below = 1 - 4 * a.unit
    if f == "mul" and a.data is b.data:
        return 0.0
    if f == "add" and a.least >= 0 and b.least >= 0:
        return (a.least + b.least) * below
    if f in ("mul", "div") and a.least >= 0 and b.least >= 0:
        return 0.0
    return _ANYTHING


def _or_zero(error: Any) -> Any:
    return 0.0 if error is None else error
