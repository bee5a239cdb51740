"""Exact constants: a rational, or an expression such as `rsqrt(64)`, never rounded in the IR.

Each evaluator rounds a constant once, in its own arithmetic. May import: the standard library.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

FUNCTIONS: dict[str, Callable[[float], float]] = {
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1.0 / math.sqrt(x),
    "exp": math.exp,
    "log": math.log,
}


def _with_number(
    operator: Callable[[Exact, Exact], Exact],
) -> Callable[[Exact, ExactLike], Exact]:
    """The operator for any number, which it gets as exact; Python asks the other operand else."""

    @functools.wraps(operator)
    def apply(self: Exact, other: Any) -> Any:
        known = isinstance(other, Exact | Fraction | int | float)
        return operator(self, exact(other)) if known else NotImplemented

    return apply


@dataclass(frozen=True)
class Exact:
    """`factor` times the product of `function(argument)` over `calls`, all rational and exact.

    + - * / with numbers are exact too; a sum or quotient that has no such form is a ValueError."""

    factor: Fraction
    calls: tuple[tuple[str, Fraction], ...] = ()

    def __float__(self) -> float:
        value = float(self.factor)
        for function, argument in self.calls:
            value *= FUNCTIONS[function](float(argument))
        return value

    @_with_number
    def __mul__(self, other: Exact) -> Exact:
        return _normal(self.factor * other.factor, self.calls + other.calls)

    @_with_number
    def __truediv__(self, other: Exact) -> Exact:
        return self * other._inverse()

    @_with_number
    def __rtruediv__(self, other: Exact) -> Exact:
        return other * self._inverse()

    @_with_number
    def __add__(self, other: Exact) -> Exact:
        if not self.factor or not other.factor:
            return self if self.factor else other
        if self.calls != other.calls:
            raise ValueError(f"{self} + {other} has no exact form")
        return _normal(self.factor + other.factor, self.calls)

    @_with_number
    def __sub__(self, other: Exact) -> Exact:
        return self + -other

    @_with_number
    def __rsub__(self, other: Exact) -> Exact:
        return other + -self

    def __neg__(self) -> Exact:
        return Exact(-self.factor, self.calls)

    __rmul__, __radd__ = __mul__, __add__

    def _inverse(self) -> Exact:
        result = Exact(1 / self.factor)
        for function, argument in self.calls:
            if function == "log":
                raise ValueError(f"1/{function}({argument}) has no exact form")
            if function == "exp":
                result *= call("exp", -argument)
            else:
                result *= rsqrt(argument) if function == "sqrt" else sqrt(argument)
        return result

    @property
    def is_integer(self) -> bool:
        """True for a plain integer."""
        return not self.calls and self.factor.denominator == 1

    def __str__(self) -> str:
        calls = [f"{function}({_number(argument)})" for function, argument in self.calls]
        if not calls:
            return _number(self.factor)
        if self.factor == 1:
            return "*".join(calls)
        return "*".join([_number(self.factor), *calls])

    def __repr__(self) -> str:
        return f"Exact({self})"


ExactLike = Exact | Fraction | int | float


def exact(value: ExactLike) -> Exact:
    """An exact constant. A float is read as the shortest decimal that prints as it, so 1e-6 is
    one millionth. Raises ValueError for NaN and infinities."""
    if isinstance(value, Exact):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a finite constant")
        return Exact(Fraction(repr(float(value))))  # float: NumPy's float64 prints otherwise
    return Exact(Fraction(value))


def sqrt(value: ExactLike) -> Exact:
    """The exact square root of a positive rational."""
    return _call("sqrt", value)


def rsqrt(value: ExactLike) -> Exact:
    """One over the exact square root of a positive rational."""
    return _call("rsqrt", value)


def call(function: str, value: ExactLike) -> Exact:
    """An exact `function(value)`; `function` is one of FUNCTIONS."""
    return _call(function, value)


def _call(function: str, value: ExactLike) -> Exact:
    argument = exact(value)
    if argument.calls:
        raise ValueError(f"{function}({argument}): the argument must be rational")
    if function in ("sqrt", "rsqrt", "log") and argument.factor <= 0:
        raise ValueError(f"{function}({argument}): the argument must be positive")
    return _normal(Fraction(1), ((function, argument.factor),))


def _normal(factor: Fraction, calls: tuple[tuple[str, Fraction], ...]) -> Exact:
    """Perfect squares leave their root, and equal roots multiply to a rational."""
    kept: list[tuple[str, Fraction]] = []
    for function, argument in sorted(calls):
        root = _perfect_root(argument) if function in ("sqrt", "rsqrt") else None
        if root is not None:
            factor *= root if function == "sqrt" else 1 / root
        elif kept and kept[-1] == (function, argument) and function in ("sqrt", "rsqrt"):
            kept.pop()
            factor *= argument if function == "sqrt" else 1 / argument
        else:
            kept.append((function, argument))
    return Exact(factor, tuple(kept) if factor else ())


def _perfect_root(value: Fraction) -> Fraction | None:
    top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
    return Fraction(top, bottom) if Fraction(top * top, bottom * bottom) == value else None


def _number(value: Fraction) -> str:
    """An integer, a decimal where it is exact and short, else a ratio."""
    if value.denominator == 1:
        # 1e30 reads better than thirty zeros, and means the same.
        short = repr(float(value)) if 10**16 <= abs(value) < 10**308 else ""
        return short if short and Fraction(short) == value else str(value.numerator)
    decimal = repr(float(value)) if abs(value) < 10**30 else ""
    return decimal if decimal and Fraction(decimal) == value else f"{value}"
