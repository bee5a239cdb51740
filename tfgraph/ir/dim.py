"""Dimensions: integer polynomials in named symbols, with floor division, min and max.

A `Dim` is kept in normal form, so equal forms are equal objects: `seq + seq == 2*seq`. Symbols
stand for integers of at least 1. Different forms may still be equal for all sizes; the IR treats
them as different unless a constraint says otherwise. May import: errors.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from math import gcd, prod
from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RESERVED = frozenset({"true", "false", "None", "min", "max"})
"""Words of the text that no symbol may be called."""
LONGEST_SYMBOL = 480  # that its tokens, and those of names made from it, can hold
_EXTREMA = {"min": min, "max": max}
_FORMULA = re.compile(r"\s*(\w+)\s*(//|[-+*])\s*(\w+)\s*")


@dataclass(frozen=True)
class FloorDiv:
    """`numerator // divisor`, where no rule simplifies it."""

    numerator: Dim
    divisor: Dim

    @property
    def parts(self) -> tuple[Dim, ...]:
        """The dimensions that it is made of."""
        return (self.numerator, self.divisor)

    def __str__(self) -> str:
        return f"{_factor(self.numerator)}//{_factor(self.divisor)}"


@dataclass(frozen=True)
class Extremum:
    """`min(a, b, ...)` or `max(a, b, ...)` of two or more distinct dimensions."""

    kind: str
    args: tuple[Dim, ...]

    @property
    def parts(self) -> tuple[Dim, ...]:
        """The dimensions that it is made of."""
        return self.args

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(map(str, self.args))})"


Atom = str | FloorDiv | Extremum
Monomial = tuple[tuple[Atom, int], ...]


@dataclass(frozen=True)
class Dim:
    """A sum of `coefficient * monomial`, sorted; build it with `as_dim` and arithmetic."""

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: DimLike) -> Dim:
        return _sum([*self.terms, *as_dim(other).terms])

    def __mul__(self, other: DimLike) -> Dim:
        pairs = [(_times(m, n), a * b) for m, a in self.terms for n, b in as_dim(other).terms]
        return _sum(pairs)

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: DimLike) -> Dim:
        return self + -as_dim(other)

    def __rsub__(self, other: DimLike) -> Dim:
        return as_dim(other) - self

    def __floordiv__(self, other: DimLike) -> Dim:
        return _floordiv(self, as_dim(other))

    def __mod__(self, other: DimLike) -> Dim:
        return self - self // other * other

    __radd__ = __add__
    __rmul__ = __mul__

    @property
    def is_const(self) -> bool:
        """True for a plain integer."""
        return all(not monomial for monomial, _ in self.terms)

    def __int__(self) -> int:
        if not self.is_const:
            raise ValueError(f"{self} is symbolic")
        return self.terms[0][1] if self.terms else 0

    @cached_property
    def symbols(self) -> frozenset[str]:
        """The names of the symbols that occur."""
        found: set[str] = set()
        for monomial, _ in self.terms:
            for atom, _ in monomial:
                if isinstance(atom, str):
                    found.add(atom)
                else:
                    found.update(*(part.symbols for part in atom.parts))
        return frozenset(found)

    def substitute(self, sizes: Mapping[str, DimLike]) -> Dim:
        """Replace symbols by sizes or other dimensions; unknown symbols stay."""
        total = as_dim(0)
        for monomial, coefficient in self.terms:
            term = as_dim(coefficient)
            for atom, power in monomial:
                value = _substitute_atom(atom, sizes)
                for _ in range(power):
                    term = term * value
            total = total + term
        return total

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """The integer for given sizes. Raises KeyError for a symbol without one."""
        missing = self.symbols - set(sizes)
        if missing:
            raise KeyError(f"no size for {', '.join(sorted(missing))} in {self}")
        return int(self.substitute(sizes))

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        if not self.terms:
            return "0"
        text = ""
        for monomial, coefficient in sorted(self.terms, key=_print_order):
            sign = "-" if coefficient < 0 else "+"
            term = _term(monomial, abs(coefficient))
            # A leading minus before a floordiv needs parentheses: -(past//2) is not -past//2, and
            # -((past + 1)//2) is not -(past + 1)//2.
            leading = sign == "-" and not text
            if "//" in term and (leading or (text and not term.startswith("("))):
                term = f"({term})"
            text += f" {sign} {term}" if text else (f"-{term}" if sign == "-" else term)
        return text

    def __repr__(self) -> str:
        return f"Dim({self})"


DimLike = Dim | int | str


def as_dim(value: DimLike) -> Dim:
    """A dimension from an integer, a symbol's name or a dimension. Raises TfgraphError for anything
    else, 2.5 and "past + seq" among it."""
    if isinstance(value, Dim):
        return value
    if isinstance(value, str):
        check_symbol_name(value)
        return Dim(((((value, 1),), 1),))
    try:
        value = int(operator.index(value))
    except TypeError:
        raise TfgraphError(
            f"{value!r} is no size: expected an integer, a symbol's name or a Dim"
        ) from None
    return Dim((((), value),) if value else ())


def check_symbol_name(name: str) -> None:
    """Raise TfgraphError unless a symbol may be called so."""
    if name.isidentifier() and name not in RESERVED and len(name) <= LONGEST_SYMBOL:
        return
    shown = name if len(name) <= 40 else f"{name[:40]}..."
    raise TfgraphError(f"'{shown}' is not a symbol's name", hint=_written(name))


def _written(text: str) -> str | None:
    """How a formula is written in Python."""
    found = _FORMULA.fullmatch(text)
    if found is None:
        return None
    first, sign, second = found.groups()
    left, right = (part if part.isdigit() else f'"{part}"' for part in (first, second))
    if first.isdigit() and not second.isdigit():
        right = f"tfgraph.ir.as_dim({right})"
    else:
        left = f"tfgraph.ir.as_dim({left})"
    return f"write {left} {sign} {right}"


def dim_min(*args: DimLike) -> Dim:
    """The smallest of the dimensions."""
    return _extremum("min", map(as_dim, args))


def dim_max(*args: DimLike) -> Dim:
    """The largest of the dimensions."""
    return _extremum("max", map(as_dim, args))


def product(dims: Iterable[DimLike]) -> Dim:
    """The product of dimensions; 1 for none."""
    return reduce(lambda a, b: a * b, map(as_dim, dims), as_dim(1))


def _sum(terms: Iterable[tuple[Monomial, int]]) -> Dim:
    totals: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        totals[monomial] = totals.get(monomial, 0) + coefficient
    kept = [(m, c) for m, c in totals.items() if c]
    if len(kept) > 1:
        kept.sort(key=lambda t: _monomial_key(t[0]))
    return Dim(tuple(kept))


def _times(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    powers: dict[Atom, int] = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda p: str(p[0])))


def _floordiv(a: Dim, b: Dim) -> Dim:
    """Normal form of a // b: whole multiples leave, common factors cancel, divisions nest flat."""
    if not b.terms:
        raise ZeroDivisionError(f"{a} // 0")
    if a == b:
        return as_dim(1)
    if len(b.terms) != 1:
        return _atom(FloorDiv(a, b))
    monomial, k = b.terms[0]
    if k < 0:
        return _floordiv(-a, -b)
    if monomial:
        quotients = [_divide(m, monomial) for m, _ in a.terms]
        if any(q is None for q in quotients):
            return _atom(FloorDiv(a, b))
        a = _sum((q, c) for q, (_, c) in zip(quotients, a.terms, strict=True) if q is not None)
    whole = _sum((m, c // k) for m, c in a.terms)
    rest = _sum((m, c % k) for m, c in a.terms)
    if rest.is_const:
        return whole
    common = gcd(k, *(c for m, c in rest.terms if m))
    if common > 1:
        # floor((g*x + c) / (g*k)) = floor((x + floor(c/g)) / k), since x is an integer.
        rest, k = _sum((m, c // common) for m, c in rest.terms), k // common
    if k == 1:
        return whole + rest
    (inner, coefficient), *others = rest.terms
    if _sum(others).is_const and coefficient == 1 and len(inner) == 1 and inner[0][1] == 1:
        atom = inner[0][0]
        if isinstance(atom, FloorDiv) and atom.divisor.is_const:
            # (n//d + c)//k = (n + c*d)//(d*k)
            numerator = atom.numerator + _sum(others) * atom.divisor
            return whole + _floordiv(numerator, atom.divisor * k)
    return whole + _atom(FloorDiv(rest, as_dim(k)))


def _divide(a: Monomial, b: Monomial) -> Monomial | None:
    powers = dict(a)
    for atom, power in b:
        if powers.get(atom, 0) < power:
            return None
        powers[atom] -= power
    return tuple((atom, power) for atom, power in powers.items() if power)


def _extremum(kind: str, args: Iterable[Dim]) -> Dim:
    flat: list[Dim] = []
    for arg in args:
        atom = _single_atom(arg)
        flat += atom.args if isinstance(atom, Extremum) and atom.kind == kind else [arg]
    if not flat:
        raise ValueError(f"{kind} of no dimensions")
    numbers = [int(a) for a in flat if a.is_const]
    kept = {a for a in flat if not a.is_const}
    if numbers:
        bound = _EXTREMA[kind](numbers)
        bare = {a for a in kept if isinstance(_single_atom(a), str)}
        if bound <= 1 and bare and kind == "max":
            pass  # a symbol is at least 1 already
        elif bound <= 1 and kind == "min":
            kept = (kept - bare) | {as_dim(bound)}
        else:
            kept.add(as_dim(bound))
    if len(kept) == 1:
        return kept.pop()
    return _atom(Extremum(kind, tuple(sorted(kept, key=str))))


def _atom(atom: Atom) -> Dim:
    return Dim(((((atom, 1),), 1),))


def _single_atom(dim: Dim) -> Atom | None:
    if len(dim.terms) == 1:
        monomial, coefficient = dim.terms[0]
        if coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1:
            return monomial[0][0]
    return None


def _substitute_atom(atom: Atom, sizes: Mapping[str, DimLike]) -> Dim:
    if isinstance(atom, str):
        return as_dim(sizes.get(atom, atom))
    parts = [part.substitute(sizes) for part in atom.parts]
    if isinstance(atom, Extremum):
        return _extremum(atom.kind, parts)
    return _floordiv(*parts)


@lru_cache(maxsize=4096)
def _monomial_key(monomial: Monomial) -> tuple[int, str]:
    return -sum(power for _, power in monomial), _term(monomial, 1)


def _print_order(term: tuple[Monomial, int]) -> tuple[bool, int, str]:
    """Positive terms first, higher degrees before lower ones."""
    monomial, coefficient = term
    return coefficient < 0, *_monomial_key(monomial)


def _term(monomial: Monomial, coefficient: int) -> str:
    factors = [str(coefficient)] if coefficient != 1 or not monomial else []
    several = len(factors) + sum(power for _, power in monomial) > 1
    for atom, power in monomial:
        text = str(atom)
        if several and isinstance(atom, FloorDiv):
            text = f"({text})"
        factors += [text] * power
    return "*".join(factors)


def _factor(dim: Dim) -> str:
    plain = dim.is_const and int(dim) >= 0
    return str(dim) if plain or isinstance(_single_atom(dim), str | Extremum) else f"({dim})"


def size_of(dims: Iterable[Dim]) -> int | None:
    """The number of elements where every dimension is known, else None."""
    dims = tuple(dims)
    return prod(map(int, dims)) if all(d.is_const for d in dims) else None
