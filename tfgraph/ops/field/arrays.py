"""`Array` over a finite field: each float is a number modulo several primes. Integers, bools and
shapes are themselves.

A number has residues modulo each p; where nothing but sums, products and quotients made it, also
modulo each q, which exp takes. -inf is a flag that exp sends to 0. May import: draw, degree,
modular, floats, array, ir.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tfgraph.ir import DType, TensorType, as_dim, exact
from tfgraph.ir.exact import sqrt
from tfgraph.ops.array import Array
from tfgraph.ops.field import modular
from tfgraph.ops.field.columns import Columns, deeper, hidden_or_none
from tfgraph.ops.field.degree import CONSTANT, VARIABLE
from tfgraph.ops.field.draw import NotInField, Redraw
from tfgraph.ops.floats import FloatArray, each_array

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfgraph.ir import DimLike, Exact, ExactLike
    from tfgraph.ops.define import OpDef
    from tfgraph.ops.field.modular import NDArray, Residues

_ODD, _EVEN = ("tanh", "erf", "sin"), ("cos", "abs")
_LARGEST_POWER = 64
_ARITHMETIC = ("add", "sub", "mul", "div")


@dataclass(frozen=True, eq=False)
class FieldArray(Columns, Array):
    """A tensor over the field, or of plain integers."""

    def apply(self, definition: OpDef, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        """Run the body on numbers that have no precision; the results are of the types inferred."""

        def type_of(x: FieldArray) -> TensorType:
            return x.type

        def widened(x: FieldArray) -> FieldArray:
            return replace(x, dtype_=DType.float64) if x.plain is None else x

        types = definition.result_types([each_array(o, type_of) for o in operands], attrs)
        result: Any = definition.body(*(each_array(o, widened) for o in operands), **attrs)
        if not isinstance(result, tuple):
            return replace(result, dtype_=types[0].dtype)
        several = cast("tuple[FieldArray, ...]", result)
        return tuple(replace(r, dtype_=t.dtype) for r, t in zip(several, types, strict=True))

    def like(self, value: ExactLike) -> FieldArray:
        """A scalar: the expression itself, modulo each prime."""
        number = exact(value)
        if self.plain is not None:
            return self.as_plain(self.plain.like(number))
        p, q = self.draw.constant(number)
        return FieldArray(self.draw, self.dtype_, p, q, value=number)

    def unary(self, f: str) -> FieldArray:
        """neg and exp are what they are; the others random functions, odd or even where theirs
        are."""
        if self.plain is not None:
            return self.as_plain(self.plain.unary(f))
        if f == "exp":
            return self._exp()
        if self.hidden is not None:
            raise NotInField(f"{f} of -inf")
        negative = self.each(modular.negative)
        if f == "neg":
            return negative
        if f == "abs":
            return self.binary("maximum", negative)
        if f in (*_ODD, *_EVEN):
            flip = self._rank() < negative._rank()
            chosen = self.where(flip, negative, self)._opaque(f)
            return (
                chosen.where(flip, chosen.each(modular.negative), chosen) if f in _ODD else chosen
            )
        if f == "sqrt" and self.value is not None:
            return self._root(self.value)
        return self._opaque(f)

    def binary(self, f: str, other: FieldArray) -> FieldArray:
        """Sums, products and quotients exactly; less, maximum and minimum by a random order."""
        if self.plain is not None:
            return self.as_plain(self.plain.binary(f, other.integer))
        if f in ("equal", "less"):
            return self._compared(f, other)
        if f in ("maximum", "minimum"):
            a, b = (self, other) if f == "maximum" else (other, self)
            return self.where(self._rank() >= other._rank(), a, b)
        if f == "pow":
            return self._power(other)
        if f not in _ARITHMETIC:
            raise NotInField(f"{f} of floats")
        return self._arithmetic(f, other)

    def select(self, yes: FieldArray, no: FieldArray) -> FieldArray:
        """np.where."""
        if yes.plain is not None:
            return self.as_plain(self.integer.select(yes.plain, no.integer))
        return yes.where(self.integer.data, yes, no)

    def hide(self, allowed: FieldArray) -> FieldArray:
        """The flag, where not allowed."""
        shape = self.numbers.shape[1:]
        keep = np.broadcast_to(
            allowed.integer.data, np.broadcast_shapes(shape, allowed.integer.data.shape)
        )
        self.draw.masked = True
        self.draw.chosen |= bool((keep.sum(axis=-1) > 1).any())
        hidden = ~keep if self.hidden is None else ~keep | self.hidden
        return replace(self.repeated(hidden.shape), hidden=hidden_or_none(hidden), value=None)

    def empty(self, axis: int) -> FieldArray:
        """Whether all along the axis is -inf."""
        none = np.zeros(self.numbers.shape[1:], np.bool_)
        hidden = none if self.hidden is None else self.hidden
        return FieldArray.integers(self.draw, np.asarray(hidden.all(axis=axis, keepdims=True)))

    def reduce(self, f: str, axis: int) -> FieldArray:
        """Along one axis, kept. The largest is that of the highest random rank."""
        if self.plain is not None:
            return self.as_plain(self.plain.reduce(f, axis))
        behind = axis % (self.numbers.ndim - 1) + 1
        if f == "max":
            return self._largest(behind)
        if self.hidden is not None:
            raise NotInField(f"the {f} of -inf")

        def total(x: Residues, moduli: tuple[int, ...]) -> Residues:
            return modular.reduce(x.sum(axis=behind, keepdims=True), moduli)

        result = self.each(total)
        return result if f == "sum" else result.binary("div", self.like(self.numbers.shape[behind]))

    def scan(self, f: str, axis: int) -> FieldArray:
        """The running sum."""
        if self.plain is not None:
            return self.as_plain(self.plain.scan(f, axis))
        if self.hidden is not None:
            raise NotInField("a running sum of -inf")
        behind = axis % (self.numbers.ndim - 1) + 1
        return self.each(lambda x, moduli: modular.reduce(x.cumsum(axis=behind), moduli))

    def matmul(self, other: FieldArray) -> FieldArray:
        """Modulo each prime."""
        if self.hidden is not None or other.hidden is not None:
            raise NotInField("a product of -inf")
        return self.with_other(other, modular.matmul, self.degree.times(other.degree))

    def reshape(self, shape: Sequence[DimLike]) -> FieldArray:
        """np.reshape."""
        sizes = _sizes(shape)
        return self.moved(lambda x, lead: x.reshape((*x.shape[:lead], *sizes)))

    def transpose(self, perm: Sequence[int]) -> FieldArray:
        """np.transpose."""
        return self.moved(
            lambda x, lead: x.transpose(*range(lead), *(axis + lead for axis in perm))
        )

    def broadcast(self, shape: Sequence[DimLike]) -> FieldArray:
        """np.broadcast_to."""
        return self.repeated(_sizes(shape))

    def slice(self, axis: int, start: DimLike, stop: DimLike) -> FieldArray:
        """A window along one axis."""
        first, last = _sizes((start, stop))

        def cut(x: NDArray, lead: int) -> NDArray:
            index = [slice(None)] * x.ndim
            index[axis % (x.ndim - lead) + lead] = slice(first, last)
            return x[tuple(index)]

        return self.moved(cut)

    def join(self, others: Sequence[FieldArray], axis: int) -> FieldArray:
        """np.concatenate."""
        if self.plain is not None:
            return self.as_plain(self.plain.join([o.integer for o in others], axis))
        parts = (self, *others)
        behind = axis % (self.numbers.ndim - 1) + 1
        p = np.concatenate([x.numbers for x in parts], axis=behind)
        qs = [x.q for x in parts if x.q is not None]
        q = np.concatenate(qs, axis=behind) if len(qs) == len(parts) else None
        hidden = None
        if any(x.hidden is not None for x in parts):
            hidden = np.concatenate([x.flags() for x in parts], axis=behind - 1)
        degree = self.degree
        for other in others:
            degree = degree.plus(other.degree)
        return FieldArray(self.draw, self.dtype_, p, q, hidden=hidden, degree=degree)

    def take(self, indices: FieldArray, axis: int) -> FieldArray:
        """np.take; an index out of range raises IndexError, as it does in floats."""
        shape = self.numbers.shape[1:] if self.plain is None else self.plain.data.shape
        at = axis % len(shape)
        FloatArray(np.empty(shape, np.bool_)).take(indices.integer, at)
        return self.moved(lambda x, lead: np.take(x, indices.integer.data, axis=at + lead))

    def take_at(self, indices: Sequence[FieldArray]) -> FieldArray:
        """NumPy's indexing by arrays; errors are those of `take`."""
        shape = self.numbers.shape[1:] if self.plain is None else self.plain.data.shape
        places = [given.integer for given in indices]
        FloatArray(np.empty(shape, np.bool_)).take_at(places)
        at: list[Any] = [place.data for place in places]
        return self.moved(lambda x, lead: x[(*[slice(None)] * lead, *at)])

    def topk(self, k: int) -> tuple[FieldArray, FieldArray]:
        """Those of the highest random ranks."""
        if self.plain is not None:
            values, order = self.plain.topk(k)
            return self.as_plain(values), self.as_plain(order)
        _, order = FloatArray(self._rank()).topk(k)

        def chosen(x: NDArray, lead: int) -> NDArray:
            index = np.broadcast_to(order.data, (*x.shape[:lead], *order.data.shape))
            return np.take_along_axis(x, index, axis=-1)

        return self.moved(chosen), FieldArray.integers(self.draw, order.data)

    def iota(self, length: DimLike) -> FieldArray:
        """np.arange as int64."""
        return FieldArray.integers(self.draw, np.arange(*_sizes((length,)), dtype=np.int64))

    def cast(self, dtype: DType) -> FieldArray:
        """Between floats nothing changes; an integer becomes a number."""
        if self.plain is None:
            if not dtype.is_float:
                raise NotInField(f"a float becomes {dtype}")
            return replace(self, dtype_=dtype)
        if not dtype.is_float:
            return self.as_plain(self.plain.cast(dtype))
        p, q = (modular.of_integers(self.plain.data, m) for m in (self.draw.p, self.draw.q))
        return FieldArray(self.draw, dtype, p, q)

    def _exp(self) -> FieldArray:
        q = self.q
        if q is None:  # of what exp or another function made: a random number for each
            q = self.draw.opaque("modulo q", self.numbers, self.degree)[1]
        p = self.draw.exp(q, self.degree)
        if self.hidden is not None:
            p = np.where(self.hidden, np.uint64(0), p)
        degree = CONSTANT if self.degree == CONSTANT else VARIABLE
        return FieldArray(self.draw, self.dtype_, p, None, degree=degree)

    def _root(self, value: Exact) -> FieldArray:
        """The square root of a constant: an expression, or where that has none, such as of a root,
        the number whose square it is. That of a negative number is a random one."""
        shape = self.numbers.shape[1:]
        if not value.factor:
            return self
        if not value.calls and value.factor > 0:
            return self.like(sqrt(value)).repeated(shape)
        rows = zip(self.draw.constant(value), (self.draw.p, self.draw.q), strict=True)
        roots = [list(map(modular.root, map(int, xs), moduli)) for xs, moduli in rows]
        if None in (*roots[0], *roots[1]):
            return self._opaque("sqrt")
        p, q = (np.array(found, np.uint64) for found in roots)
        return FieldArray(self.draw, self.dtype_, p, q).repeated(shape)

    def _opaque(self, name: str) -> FieldArray:
        p, q = self.draw.opaque(name, self.numbers, self.degree)
        return FieldArray(self.draw, self.dtype_, p, q, degree=VARIABLE)

    def _power(self, exponent: FieldArray) -> FieldArray:
        """Products, quotients and a root, of a small constant; else a random function of both."""
        number = exponent.value
        if number is None or number.calls or number.factor.denominator > 2:
            return self._of_both("pow", exponent)
        if abs(number.factor) > _LARGEST_POWER:
            return self._of_both("pow", exponent)
        whole, half = divmod(abs(number.factor).numerator, number.factor.denominator)
        result = self.like(1).broadcast(self.shape)
        for _ in range(whole):
            result = result.binary("mul", self)
        if half:
            result = result.binary("mul", self.unary("sqrt"))
        return self.like(1).binary("div", result) if number.factor < 0 else result

    def _of_both(self, name: str, other: FieldArray) -> FieldArray:
        if self.hidden is not None or other.hidden is not None:
            raise NotInField(f"{name} with -inf")
        shape = np.broadcast_shapes(self.numbers.shape[1:], other.numbers.shape[1:])
        a, b = self.repeated(shape), other.repeated(shape)
        degree = self.degree.plus(other.degree)
        p, q = self.draw.opaque(name, np.concatenate([a.numbers, b.numbers]), degree)
        return FieldArray(self.draw, self.dtype_, p, q, degree=VARIABLE)

    def _arithmetic(self, f: str, other: FieldArray) -> FieldArray:
        hidden = self._hidden_with(f, other)
        a, b = self, other
        if f == "sub":
            b = b.each(modular.negative)
        elif f == "div":
            b = b._inverse()
        combine = modular.add if f in ("add", "sub") else modular.multiply
        degree = a.degree.plus(b.degree) if f in ("add", "sub") else a.degree.times(b.degree)

        def broadcast(x: Residues, y: Residues, moduli: tuple[int, ...]) -> Residues:
            rank = max(x.ndim, y.ndim) - 1
            return combine(deeper(x, rank), deeper(y, rank), moduli)

        return replace(a.with_other(b, broadcast, degree), hidden=hidden)

    def _hidden_with(self, f: str, other: FieldArray) -> NDArray | None:
        """Where a sum is -inf; nothing else may have such operands."""
        if self.hidden is None and other.hidden is None:
            return None
        if f == "add" or (f == "sub" and other.hidden is None):
            return np.logical_or(self.flags(), other.flags())
        raise NotInField(f"{f} with -inf")

    def _inverse(self) -> FieldArray:
        if (self.numbers == 0).any() or (self.q is not None and (self.q == 0).any()):
            raise Redraw("a division by zero")
        degree = self.degree.inverse(self.numbers[0].size)
        q = None if self.q is None else modular.inverse(self.q, self.draw.q)
        p = modular.inverse(self.numbers, self.draw.p)
        return replace(self, p=p, q=q, degree=degree, value=None)

    def _compared(self, f: str, other: FieldArray) -> FieldArray:
        if self.hidden is not None or other.hidden is not None:
            raise NotInField(f"{f} with -inf")
        if f == "less":
            return FieldArray.integers(self.draw, self._rank() < other._rank())
        difference = self._arithmetic("sub", other)
        self.draw.calls["equal"] += difference.numbers[0].size
        self.draw.see(difference.degree)
        return FieldArray.integers(self.draw, (difference.numbers == 0).all(axis=0))

    def _largest(self, behind: int) -> FieldArray:
        rank = self._rank() >> np.uint64(1)
        if self.hidden is not None:
            rank = np.where(self.hidden, np.uint64(0), rank + np.uint64(1))
        best = rank.argmax(axis=behind - 1, keepdims=True)

        def chosen(x: NDArray, lead: int) -> NDArray:
            index = np.broadcast_to(best, (*x.shape[:lead], *best.shape))
            return np.take_along_axis(x, index, axis=behind - 1 + lead)

        return self.moved(chosen)

    def _rank(self) -> Residues:
        return self.draw.order(self.numbers, self.degree)


def _sizes(dims: Sequence[DimLike]) -> tuple[int, ...]:
    return tuple(int(as_dim(d)) for d in dims)
