"""Sizes of an ONNX file: names of dimensions become symbols, and symbols that must be equal become
one. May import: ir, errors.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError
from tfgraph.ir import Dim, as_dim, dim_max, dim_min
from tfgraph.ir.dim import Extremum, FloorDiv, check_symbol_name
from tfgraph.ir.legal import check_dim

if TYPE_CHECKING:
    from collections.abc import Sequence

HIGHEST = 65536
"""The range of a symbol, where nothing in the file limits it, goes up to this."""
_LONGEST = 200  # characters of a dimension's name that is read as a formula


class Equal(Exception):
    """Two sizes must be equal: a symbol is to be replaced everywhere, and the import begun anew."""

    def __init__(self, symbol: str, size: Dim, why: str) -> None:
        super().__init__(f"{symbol} is {size}")
        self.symbol, self.size, self.why = symbol, size, why


class AtMost(Exception):
    """A symbol must not be above a number, and the import is to be begun anew."""

    def __init__(self, symbol: str, high: int, why: str) -> None:
        super().__init__(f"{symbol} is at most {high}")
        self.symbol, self.high, self.why = symbol, high, why


@dataclass
class Sizes:
    """The symbols of a file by their names there, those that equal others, and ranges."""

    equal: dict[str, Dim] = field(default_factory=dict[str, Dim])
    order: list[str] = field(default_factory=list[str])
    high: dict[str, int] = field(default_factory=dict[str, int])
    _names: dict[str, str] = field(default_factory=dict[str, str])

    def named(self, text: str, fallback: str) -> Dim:
        """The size that a file calls `text`: `batch`, `past + seq`, or any other words."""
        try:
            tree = ast.parse(text.strip(), mode="eval").body if len(text) <= _LONGEST else None
            size = None if tree is None else self._formula(tree)
            if size is not None:
                check_dim(size)
                return self.normal(size)
        except (SyntaxError, ValueError, TfgraphError, RecursionError, MemoryError):
            pass
        return self.normal(self._symbol(text or fallback))

    def normal(self, size: Dim) -> Dim:
        """The size with symbols that equal others replaced."""
        while size.symbols & self.equal.keys():
            size = size.substitute(self.equal)
        return size

    def replace(self, found: Equal) -> None:
        """From now on the symbol is this size."""
        self.equal[found.symbol] = found.size
        self.equal = {name: self.normal(size) for name, size in self.equal.items()}

    def require_equal(self, a: Dim, b: Dim, why: str) -> None:
        """Raise Equal where a symbol can be replaced so that both are equal; TfgraphError where
        they cannot be."""
        if a == b:
            return
        for smaller, other in ((a, b), (b, a)):
            self._limit(smaller, other, why)
        solved = self._solve(a - b)
        if solved is None:
            raise TfgraphError(f"{why}: {a} against {b}")
        raise Equal(*solved, why)

    def _limit(self, smaller: Dim, other: Dim, why: str) -> None:
        """min(seq, 512) is seq where seq is at most 512."""
        match smaller.terms:
            case ((((Extremum(kind="min", args=args), 1),), 1),) if other in args:
                highs = [int(arg) for arg in args if arg.is_const]
                names = list(other.symbols)
                if len(args) == 2 and highs and other == as_dim(names[0]):
                    raise AtMost(names[0], highs[0], why)
            case _:
                pass

    def can_equal(self, a: Dim, b: Dim) -> bool:
        """Whether a symbol can be replaced so that both are equal, or they are."""
        return a == b or self._solve(a - b) is not None

    def _solve(self, difference: Dim) -> tuple[str, Dim] | None:
        """The youngest symbol that stands alone in the difference, with what makes that 0."""
        for name in reversed(self.order):
            monomial = ((name, 1),)
            rest = Dim(tuple(t for t in difference.terms if t[0] != monomial))
            found = [c for m, c in difference.terms if m == monomial]
            if not found or name in rest.symbols:
                continue
            size = -rest // found[0]
            if size * found[0] != -rest:
                continue
            if self.bounds(size)[1] is not None and (self.bounds(size)[1] or 0) < 1:
                continue
            return name, size
        return None

    def bounds(self, size: Dim) -> tuple[int | None, int | None]:
        """The least and the largest number that a size can be; None where that is unknown."""
        low, high = 0, 0
        for monomial, coefficient in size.terms:
            lows, highs = 1, 1
            for atom, power in monomial:
                at_least, at_most = self._atom(atom)
                if at_least is None or at_most is None or at_least < 0:
                    return None, None
                lows, highs = lows * at_least**power, highs * at_most**power
            if coefficient < 0:
                lows, highs = highs, lows
            low, high = low + coefficient * lows, high + coefficient * highs
        return low, high

    def _atom(self, atom: str | FloorDiv | Extremum) -> tuple[int | None, int | None]:
        if isinstance(atom, str):
            return 1, self.high.get(atom, HIGHEST)
        parts = [self.bounds(part) for part in atom.parts]
        if any(low is None or high is None for low, high in parts):
            return None, None
        lows, highs = [p[0] or 0 for p in parts], [p[1] or 0 for p in parts]
        if isinstance(atom, Extremum):
            f = min if atom.kind == "min" else max
            return f(lows), f(highs)
        if lows[0] < 0 or lows[1] < 1:
            return None, None
        return lows[0] // highs[1], highs[0] // lows[1]

    def _symbol(self, text: str) -> Dim:
        if text not in self._names:
            words = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
            name = f"n{words}" if words[:1].isdigit() else words or "size"
            try:
                check_symbol_name(name)
            except TfgraphError:
                name = f"size_{len(self.order)}"
            taken, number, base = set(self.order), 1, name
            while name in taken:
                number += 1
                name = f"{base}_{number}"
            self._names[text] = name
            self.order.append(name)
        return as_dim(self._names[text])

    def _formula(self, tree: ast.expr) -> Dim | None:
        """The size that a formula of names, + - * // and numbers means; None if it is none."""
        match tree:
            case ast.Name(id=name):
                return self._symbol(name)
            case ast.Constant(value=int(value)) if type(value) is int:
                return as_dim(value)
            case ast.BinOp(left=left, op=op, right=right):
                a, b = self._formula(left), self._formula(right)
                if a is None or b is None:
                    return None
                match op:
                    case ast.Add():
                        return a + b
                    case ast.Sub():
                        return a - b
                    case ast.Mult():
                        return a * b
                    case ast.FloorDiv() if b.terms:
                        return a // b
                    case _:
                        return None
            case ast.Call(func=ast.Name(id="floor" | "min" | "max" | "Min" | "Max" as name)):
                args = [self._formula(arg) for arg in tree.args]
                known = [arg for arg in args if arg is not None]
                if not known or len(known) < len(args):
                    return None
                if name == "floor":
                    return known[0] if len(known) == 1 else None
                return (dim_min if name.lower() == "min" else dim_max)(*known)
            case _:
                pass
        return None


def quotient(whole: Sequence[Dim], parts: Sequence[Dim]) -> Dim | None:
    """The size that the product of `parts` lacks to be the product of `whole`; None where that is
    no polynomial."""
    left, right = list(whole), list(parts)
    for part in parts:
        if part in left:
            left.remove(part)
            right.remove(part)
    return _divided(_product(left), _product(right))


def _divided(top: Dim, bottom: Dim) -> Dim | None:
    """The size that times `bottom` is `top`, by long division of polynomials; None if none is."""
    if not bottom.terms:
        return None
    total, rest, divisor = as_dim(0), top, _leading(bottom)
    while rest.terms:
        first = _leading(rest)
        part = first // divisor
        if part * divisor != first:
            return None
        total, rest = total + part, rest - part * bottom
    return total


def _leading(size: Dim) -> Dim:
    """The term with the highest power of the first symbol, of those the next, and so on."""
    atoms = sorted({atom for monomial, _ in size.terms for atom, _ in monomial}, key=str)
    return Dim((max(size.terms, key=lambda term: [dict(term[0]).get(a, 0) for a in atoms]),))


def _product(sizes: Sequence[Dim]) -> Dim:
    total = as_dim(1)
    for size in sizes:
        total = total * size
    return total
