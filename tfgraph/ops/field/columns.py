"""Arrays of residues: what holds them, and how they move.

A number has residues modulo each p; where nothing but sums, products and quotients made it, also
modulo each q, which exp takes. Integers and bools are plain. May import: draw, degree, modular,
floats, ir.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from tfgraph.ir import DType, Exact, TensorType, as_dim
from tfgraph.ops.field.degree import CONSTANT, VARIABLE, Degree
from tfgraph.ops.field.draw import Draw, NotInField
from tfgraph.ops.floats import FloatArray

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.ops.field.modular import NDArray, Residues


@dataclass(frozen=True, eq=False)
class Columns:
    """Numbers p [primes, ...] and perhaps q [primes, ...]; or plain integers and bools."""

    draw: Draw
    dtype_: DType
    p: Residues | None = None
    q: Residues | None = None
    plain: FloatArray | None = None
    hidden: NDArray | None = None
    """Where an element is -inf; None: nowhere."""
    degree: Degree = CONSTANT
    value: Exact | None = None
    """What all elements are, of a constant."""

    @classmethod
    def integers(cls, draw: Draw, array: NDArray) -> Self:
        """Integers or bools, as they are."""
        return cls(draw, DType(str(array.dtype)), plain=FloatArray(array))

    @classmethod
    def variables(cls, draw: Draw, dtype: DType, shape: tuple[int, ...]) -> Self:
        """Floats drawn at random."""
        return cls(draw, dtype, *draw.numbers(shape), degree=VARIABLE)

    @property
    def type(self) -> TensorType:
        """The dtype and shape of the array."""
        shape = self.numbers.shape[1:] if self.plain is None else self.plain.data.shape
        return TensorType(self.dtype_, tuple(as_dim(n) for n in shape))

    @property
    def numbers(self) -> Residues:
        """The residues modulo each p. Raises NotInField for an array of integers."""
        if self.p is None:
            raise NotInField(f"{self.dtype_} stands where a float is expected")
        return self.p

    @property
    def integer(self) -> FloatArray:
        """The integers. Raises NotInField for an array of floats."""
        if self.plain is None:
            raise NotInField("a float stands where an integer is expected")
        return self.plain

    def differs(self, other: Columns) -> str:
        """How this array differs from another, in words; "" where it doesn't."""
        if self.type != other.type:
            return f"{other.type}"
        if self.plain is not None:
            return "" if np.array_equal(self.plain.data, other.integer.data) else "other integers"
        self.draw.see(self.degree.plus(other.degree))
        if not np.array_equal(self.flags(), other.flags()):
            return "-inf in other places"
        wrong = (self.numbers != other.numbers).any(axis=0) & ~self.flags()
        return f"{int(wrong.sum())} of {wrong.size} numbers are others" if wrong.any() else ""

    def where(self, condition: NDArray, yes: Columns, no: Columns) -> Self:
        """`yes` where the condition holds, else `no`; all broadcast."""
        rank = max(condition.ndim, yes.numbers.ndim - 1, no.numbers.ndim - 1)

        def chosen(x: Residues, y: Residues) -> Residues:
            return np.where(condition, deeper(x, rank), deeper(y, rank))

        q = None if yes.q is None or no.q is None else chosen(yes.q, no.q)
        hidden = None
        if yes.hidden is not None or no.hidden is not None:
            hidden = np.where(condition, yes.flags(), no.flags())
        return self.__class__(
            self.draw,
            self.dtype_,
            chosen(yes.numbers, no.numbers),
            q,
            hidden=hidden_or_none(hidden),
            degree=yes.degree.plus(no.degree),
        )

    def flags(self) -> NDArray:
        """Where an element is -inf."""
        return np.zeros(self.numbers.shape[1:], np.bool_) if self.hidden is None else self.hidden

    def each(self, f: Callable[[Residues, tuple[int, ...]], Residues]) -> Self:
        """A function modulo each prime that leaves the degree as it is."""
        q = None if self.q is None else f(self.q, self.draw.q)
        return replace(self, p=f(self.numbers, self.draw.p), q=q, value=None)

    def with_other(
        self,
        other: Columns,
        f: Callable[[Residues, Residues, tuple[int, ...]], Residues],
        degree: Degree,
    ) -> Self:
        """A function of two modulo each prime, whose results are of that degree."""
        q = None if self.q is None or other.q is None else f(self.q, other.q, self.draw.q)
        p = f(self.numbers, other.numbers, self.draw.p)
        return self.__class__(self.draw, self.dtype_, p, q, degree=degree)

    def moved(self, f: Callable[[NDArray, int], NDArray]) -> Self:
        """A movement of elements; `f` is told how many axes are in front of them."""
        if self.plain is not None:
            return self.as_plain(FloatArray(f(self.plain.data, 0)))
        q = None if self.q is None else f(self.q, 1)
        hidden = None if self.hidden is None else f(self.hidden, 0)
        return replace(self, p=f(self.numbers, 1), q=q, hidden=hidden)

    def repeated(self, sizes: tuple[int, ...]) -> Self:
        """Axes of 1 repeated, and axes added in front."""

        def wide(x: NDArray, lead: int) -> NDArray:
            ones = [1] * (len(sizes) - (x.ndim - lead))
            shaped = x.reshape((*x.shape[:lead], *ones, *x.shape[lead:]))
            return np.broadcast_to(shaped, (*x.shape[:lead], *sizes))

        return self.moved(wide)

    def as_plain(self, array: FloatArray) -> Self:
        """Integers or bools of the same draw."""
        return self.integers(self.draw, array.data)


def hidden_or_none(flags: NDArray | None) -> NDArray | None:
    """The flags, None where all are off."""
    return flags if flags is not None and flags.any() else None


def deeper(x: Residues, rank: int) -> Residues:
    """With axes of 1 behind that of the primes, so that `rank` are behind it."""
    return x.reshape(x.shape[0], *[1] * (rank + 1 - x.ndim), *x.shape[1:])
