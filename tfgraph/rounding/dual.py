"""The domain of duals: each float with what a few sets of random roundings make of it.

A primitive carries the roundings of its operands on by its derivative and adds its own, of the size
that they have statistically; see docs/tolerances.md. Roundings of elements, which are independent,
are kept as a variance until the op ends, or until they are summed. May import: draws, slopes, sums,
moves, backends.rounding, ops, ir.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tfgraph.backends.rounding import LARGEST, UNITS, Rounding
from tfgraph.ir import DType, TensorType, as_dim, exact
from tfgraph.ops import FloatArray
from tfgraph.ops.floats import each_array, matmul, numpy_dtype
from tfgraph.rounding import slopes
from tfgraph.rounding.draws import SIZE, Noise, factor
from tfgraph.rounding.moves import Moves
from tfgraph.rounding.sums import repeats_of, summed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfgraph.ir import DimLike, ExactLike
    from tfgraph.ops import OpDef

NDArray = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Dual(Moves):
    """A tensor and its errors.

    `data` is float32 or float64, or integers or bools; `tangent` [draws, *shape] what each set of
    roundings adds, None where it is exact; `variance` that of roundings of the op that runs.
    `sure` is false where a discrete result upstream may be another: then errors say nothing. `open`
    says that arithmetic made the array, and that the op has not ended; `inside`, that it is a part
    of a composite op, so that its roundings are not drawn yet.
    """

    data: NDArray
    dtype_: DType
    noise: Noise
    tangent: NDArray | None = None
    variance: NDArray | None = None
    rounding: Rounding = Rounding()
    sure: bool = True
    open: bool = False
    inside: bool = False

    @property
    def type(self) -> TensorType:
        """The dtype in the graph, and the shape."""
        return TensorType(self.dtype_, tuple(as_dim(n) for n in self.data.shape))

    def apply(self, definition: OpDef, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        """The body, and the reference's rounding at the end of each op."""
        types = definition.result_types([each_array(o, _type) for o in operands], attrs)
        outer = definition.kind == "composite" and not self.inside
        if outer:
            operands = [each_array(o, _enter) for o in operands]
        result = definition.body(*operands, **attrs)
        several = cast("tuple[Dual, ...]", result if isinstance(result, tuple) else (result,))
        if outer:
            several = tuple(replace(r, inside=False) for r in several)
        ended = tuple(r._ended(t.dtype) for r, t in zip(several, types, strict=True))
        return ended if isinstance(result, tuple) else ended[0]

    def _ended(self, dtype: DType) -> Dual:
        ended = self
        if self.open and dtype.is_float:
            roundings = 1 if self.rounding.arithmetic is None else 2
            ended = self._rounded(roundings * (UNITS[dtype.value] * SIZE * self.data) ** 2)
        return replace(ended if self.inside else ended.settled, dtype_=dtype, open=False)

    @property
    def settled(self) -> Dual:
        """With the roundings of elements drawn."""
        if self.variance is None:
            return self
        with np.errstate(all="ignore"):
            size = np.sqrt(self.variance)
            size = np.where(np.isfinite(self.data) & np.isfinite(size), size, 0).astype(size.dtype)
        drawn = self.noise.of(self.data) * size
        tangent = drawn if self.tangent is None else self.tangent + drawn
        return replace(self, tangent=tangent, variance=None)

    def like(self, value: ExactLike) -> Dual:
        """A scalar; one that the dtype does not hold is off by a rounding."""
        number = exact(value)
        if not self.is_float:
            return self._plain(FloatArray(self.data).like(number).data)
        wide = np.asarray(float(number), np.float64)
        held = float(wide.astype(numpy_dtype(self.dtype_)))
        made = self._plain(wide.astype(self.data.dtype))
        if held == float(number):
            return made
        return made._rounded(np.square(self.unit * SIZE * made.data)).settled

    def unary(self, f: str) -> Dual:
        """Elementwise."""
        x = self.data
        with np.errstate(all="ignore"):
            y = FloatArray(x).unary(f).data
            if not self.is_float:
                return self._plain(y)
            y = y.astype(x.dtype, copy=False)
            if f == "floor":
                near = self.far(np.abs(x - np.rint(x)))
                return replace(self._plain(y), sure=self.sure and not near)
            if f in ("neg", "abs"):
                sign = -1 if f == "neg" else np.sign(x)
                tangent = None if self.tangent is None else self.tangent * sign
                return replace(self, data=y, tangent=tangent)
            slope = slopes.UNARY[f](x, y)
            tangent = None if self.tangent is None else self.tangent * slope
            if f == "sqrt" and self.tangent is not None:
                tangent = slopes.of_sqrt(x, y, self.tangent)
            variance = None if self.variance is None else self.variance * slope * slope
            accuracy = self.rounding.accuracy(f)
            own = accuracy.relative * np.abs(y) + accuracy.absolute
            own = own + accuracy.argument * np.abs(x * slope)
            made = self._made(y, tangent, variance)
            if f == "log" and self.far(np.abs(x)):
                made = replace(made, sure=False)
            return made._rounded(np.square(self.unit * SIZE * own) * self.steps(f))

    def binary(self, f: str, other: Dual) -> Dual:
        """Elementwise with broadcasting."""
        a, b = self.data, other.data
        sure = self.sure and other.sure
        with np.errstate(all="ignore"):
            y = FloatArray(a).binary(f, FloatArray(b)).data
            if f in ("less", "equal"):
                near = self.is_float and self._tied(other)
                return replace(self._plain(y), dtype_=DType.bool_, sure=sure and not near)
            if not self.is_float:
                return replace(self._plain(y), sure=sure)
            of_a, of_b = slopes.BINARY[f](a, b, y)
            rank = y.ndim
            tangent = slopes.total(
                _lifted(self.tangent, rank), of_a, _lifted(other.tangent, rank), of_b
            )
            variance = slopes.total(self.variance, np.square(of_a), other.variance, np.square(of_b))
            if f == "div" and other.far(np.abs(b)):
                sure = False
            made = replace(self._made(y, tangent, variance), sure=sure)
            if f in ("maximum", "minimum"):
                return replace(made, open=self.open or other.open)
            times = self.rounding.accuracy("pow").relative ** 2 if f == "pow" else 1
            own = np.square(self.unit * SIZE * y) * self.steps(f) * times
            if f == "div" and self.arithmetic != "float64":
                # A divisor that is too large for the kernel makes 0 of a tiny quotient.
                own = own + np.where(np.abs(b) > LARGEST[self.arithmetic], np.square(y), 0)
            return made._rounded(own)

    def _tied(self, other: Dual) -> bool:
        """Whether elements that differ by roundings may come out in another order."""
        a, b = self.settled, other.settled
        rank = max(a.data.ndim, b.data.ndim)
        apart = slopes.total(_lifted(a.tangent, rank), 1, _lifted(b.tangent, rank), -1)
        if apart is None:
            return False
        reach = factor(self.noise.draws) * np.abs(apart).max(axis=0)
        return bool(((np.abs(a.data - b.data) <= reach) & (reach > 0)).any())

    def far(self, room: NDArray) -> bool:
        """Whether roundings reach as far as `room` anywhere."""
        settled = self.settled
        if settled.tangent is None:
            return False
        reach = factor(self.noise.draws) * np.abs(settled.tangent).max(axis=0)
        return bool(((room <= reach) & (reach > 0)).any())

    def select(self, yes: Dual, no: Dual) -> Dual:
        """np.where."""
        c, rank = self.data, max(self.data.ndim, yes.data.ndim, no.data.ndim)
        yes, no = yes.settled, no.settled
        y = np.where(c, yes.data, no.data)
        tangent = None
        if yes.tangent is not None or no.tangent is not None:
            left, right = _lifted(yes.tangent, rank), _lifted(no.tangent, rank)
            tangent = np.where(c, 0 if left is None else left, 0 if right is None else right)
            shape = (self.noise.draws, *y.shape)
            tangent = np.broadcast_to(tangent.astype(y.dtype, copy=False), shape)
        sure = self.sure and yes.sure and no.sure
        return replace(yes, data=y, tangent=tangent, sure=sure, open=yes.open or no.open)

    def hide(self, allowed: Dual) -> Dual:
        """-inf, exactly, where not allowed."""
        x = self.settled
        y = np.where(allowed.data, x.data, x.data.dtype.type(-np.inf))
        tangent = (
            None if x.tangent is None else np.where(allowed.data, x.tangent, x.data.dtype.type(0))
        )
        return replace(x, data=y, tangent=tangent, sure=x.sure and allowed.sure)

    def empty(self, axis: int) -> Dual:
        """Whether a row is -inf all along."""
        y = np.all(np.isneginf(self.data), axis=axis, keepdims=True)
        return replace(self._plain(y), dtype_=DType.bool_)

    def reduce(self, f: str, axis: int) -> Dual:
        """Along one axis, kept."""
        x = self.settled
        at, n = axis % x.data.ndim, x.data.shape[axis]
        with np.errstate(all="ignore"):
            y = FloatArray(x.data).reduce(f, at).data
            if not self.is_float:
                return self._plain(y)
            if f == "max":
                place = np.expand_dims(x.data.argmax(axis=at), at)
                return replace(x.moved(lambda z, lead: _along(z, place, at, lead)), data=y)
            share = 1 / n if f == "mean" else 1
            tangent = (
                None if x.tangent is None else x.tangent.sum(axis=at + 1, keepdims=True) * share
            )
            last = at == x.data.ndim - 1
            depth = (self.rounding.along if last else self.rounding.across)(n)
            squares = np.square(x.data).sum(axis=at, keepdims=True) * share**2
            own = self.unit**2 * summed(depth, squares, y, repeats_of(x.data, at))
            if f == "mean":
                own = own + np.square(self.unit * SIZE * y) * self.steps("mean")
            return self._made(y, _cast(tangent, y), None)._rounded(own).settled

    def scan(self, f: str, axis: int) -> Dual:
        """The running sum, one after another."""
        x = self.settled
        at = axis % x.data.ndim
        y = FloatArray(x.data).scan(f, at).data
        if not self.is_float:
            return self._plain(y)
        tangent = None if x.tangent is None else np.cumsum(x.tangent, axis=at + 1)
        count = x.data.shape[at]
        depths = np.arange(1.0, count + 1).reshape((count, *[1] * (x.data.ndim - at - 1)))
        squares = np.cumsum(np.square(x.data), axis=at)
        own = self.unit**2 * summed(depths, squares, y, repeats_of(x.data, at))
        return self._made(y, tangent, None)._rounded(own).settled

    def matmul(self, other: Dual) -> Dual:
        """The product, and that of the squares for the size of its roundings."""
        with np.errstate(all="ignore"):
            y = matmul(self.data, other.data)
        return self._product(other, y, self.rounding.matmul, self.rounding.factors)

    def weighted_sum(self, values: Dual) -> Dual:
        """The same; a weight of 0 takes nothing."""
        with np.errstate(all="ignore"):
            y = FloatArray(self.data).weighted_sum(FloatArray(values.data)).data
        finite = replace(values, data=np.nan_to_num(values.data, posinf=0, neginf=0))
        return self._product(finite, y, self.rounding.weighted_sum)

    def _product(
        self, other: Dual, y: NDArray, depth: Callable[[int], float], factors: float = 0.0
    ) -> Dual:
        a, b = self.settled, other.settled
        rank = y.ndim
        with np.errstate(all="ignore"):
            tangent = None
            if a.tangent is not None:
                tangent = matmul(cast("NDArray", _lifted(a.tangent, rank)), b.data)
            if b.tangent is not None:
                moved = np.matmul(a.data, cast("NDArray", _lifted(b.tangent, rank)))
                tangent = moved if tangent is None else tangent + moved
            squares = matmul(np.square(a.data), np.square(b.data))
            repeats = repeats_of(a.data, -1)
            if repeats.max(initial=1) >= 2:  # else those of b, a sort of a weight, hardly matter
                repeats = np.minimum(repeats, repeats_of(b.data, -2))
            own = self.unit**2 * summed(depth(a.data.shape[-1]), squares, y, repeats)
            if factors:  # of equal terms they are rounded alike
                own = own + 2 * np.square(factors * SIZE) * repeats * squares
            made = replace(self._made(y, tangent, None), sure=a.sure and b.sure)
            return made._rounded(own)

    def join(self, others: Sequence[Dual], axis: int) -> Dual:
        """np.concatenate."""
        parts = [p.settled for p in (self, *others)]
        at = axis % self.data.ndim
        y = np.concatenate([p.data for p in parts], axis=at)
        tangent = None
        if any(p.tangent is not None for p in parts):
            tangent = np.concatenate([p.tangents for p in parts], axis=at + 1)
        sure, opened = all(p.sure for p in parts), any(p.open for p in parts)
        return replace(parts[0], data=y, tangent=tangent, sure=sure, open=opened)

    def take(self, indices: Dual, axis: int) -> Dual:
        """np.take."""
        return replace(super().take(indices, axis), sure=self.sure and indices.sure)

    def take_at(self, indices: Sequence[Dual]) -> Dual:
        """NumPy's indexing by arrays."""
        sure = self.sure and all(i.sure for i in indices)
        return replace(super().take_at(indices), sure=sure)

    def topk(self, k: int) -> tuple[Dual, Dual]:
        """The errors go with their elements; unsure where the next is as near."""
        x = self.settled
        values, order = FloatArray(x.data).topk(k)
        sure = x.sure
        if x.tangent is not None:
            every = FloatArray(x.data).topk(x.data.shape[-1])[1].data
            ranked = x.moved(lambda z, lead: _along(z, every, x.data.ndim - 1, lead))
            apart = np.abs(np.diff(ranked.tangents, axis=-1)).max(axis=0)
            room = factor(self.noise.draws) * apart
            with np.errstate(all="ignore"):
                gaps = ranked.data[..., :-1] - ranked.data[..., 1:]
            sure = sure and not bool(((gaps <= room) & (room > 0))[..., :k].any())
            x = replace(ranked.slice(x.data.ndim - 1, 0, k), data=values.data)
        chosen = replace(x, data=values.data, sure=sure)
        return chosen, replace(self._plain(order.data), dtype_=DType.int64, sure=sure)

    def iota(self, length: DimLike) -> Dual:
        """np.arange as int64."""
        return replace(self._plain(FloatArray(self.data).iota(length).data), dtype_=DType.int64)

    def cast(self, dtype: DType) -> Dual:
        """Between floats a rounding."""
        if not dtype.is_float:
            made = replace(self._plain(FloatArray(self.data).cast(dtype).data), dtype_=dtype)
            near = self.is_float and self.far(np.abs(self.data - np.rint(self.data)))
            return replace(made, sure=self.sure and not near)
        if self.is_float and UNITS[self.dtype_.value] >= UNITS[dtype.value]:
            return replace(self, dtype_=dtype)
        wide = self.data.dtype if self.is_float else np.dtype(self.noise.dtype)
        made = replace(self, data=self.data.astype(wide), dtype_=dtype, open=True)
        return made._rounded(np.square(made.unit * SIZE * made.data))

    # What the primitives share.

    @property
    def is_float(self) -> bool:
        """Whether the elements are floats."""
        return self.dtype_.is_float

    @property
    def tangents(self) -> NDArray:
        """The errors of each draw, zeros where it is exact."""
        shape = (self.noise.draws, *self.data.shape)
        return np.zeros(shape, self.data.dtype) if self.tangent is None else self.tangent

    @property
    def arithmetic(self) -> str:
        """The dtype in which the kernel computes."""
        return self.rounding.arithmetic or self.dtype_.value

    @property
    def unit(self) -> float:
        """u of the kernel's arithmetic."""
        return UNITS[self.arithmetic]

    def steps(self, primitive: str) -> int:
        """How many roundings of the kernel a primitive stands for."""
        return self.rounding.steps.get(primitive, 1)

    def moved(self, f: Callable[[NDArray, int], NDArray]) -> Dual:
        """A movement of elements, and of their errors."""
        x = self.settled
        tangent = None if x.tangent is None else f(x.tangent, 1)
        return replace(x, data=f(x.data, 0), tangent=tangent)

    def _made(self, y: NDArray, tangent: NDArray | None, variance: NDArray | None) -> Dual:
        """The result of arithmetic; what is not finite has no error."""
        if tangent is not None:
            tangent = np.where(np.isfinite(y) & np.isfinite(tangent), tangent, y.dtype.type(0))
        return replace(self, data=y, tangent=tangent, variance=variance, open=True)

    def _rounded(self, own: NDArray) -> Dual:
        """With roundings of that variance more."""
        total = own if self.variance is None else self.variance + own
        return replace(self, variance=np.asarray(total, self.data.dtype))

    def _plain(self, y: NDArray) -> Dual:
        return replace(self, data=y, tangent=None, variance=None, open=False)


def _type(array: Dual) -> TensorType:
    return array.type


def _enter(array: Dual) -> Dual:
    return replace(array, inside=True)


def _cast(tangent: NDArray | None, y: NDArray) -> NDArray | None:
    return None if tangent is None else tangent.astype(y.dtype, copy=False)


def _lifted(tangent: NDArray | None, rank: int) -> NDArray | None:
    """A tangent with axes of 1 behind the draws', so that its array is of that rank."""
    if tangent is None:
        return None
    draws, *shape = tangent.shape
    return tangent.reshape(draws, *[1] * (rank - len(shape)), *shape)


def _along(x: NDArray, places: NDArray, axis: int, lead: int) -> NDArray:
    shape = np.broadcast_shapes((*x.shape[:lead], *[1] * places.ndim), (1,) * lead + places.shape)
    return np.take_along_axis(x, np.broadcast_to(places, shape), axis=axis + lead)
