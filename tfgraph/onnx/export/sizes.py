"""Sizes of a graph as ONNX computes them: from the shapes of inputs, each once for the whole file.

May import: ir, errors.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError
from tfgraph.ir import Dim, as_dim
from tfgraph.ir.dim import Atom, Extremum, FloorDiv, Monomial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgraph.ir import DimLike, Graph
    from tfgraph.onnx.export.emit import Emitter

_SHAPE_OF_PART = 15  # since when Shape takes `start` and `end`


class Sizes:
    """Writes sizes as i64 tensors."""

    def __init__(self, to: Emitter) -> None:
        self._to = to
        self._places = _places(to.graph)

    def vector(self, size: DimLike) -> str:
        """A size as i64[1]."""
        dim = as_dim(size)
        if dim.is_const:
            return self._to.ints(int(dim))
        with self._to.shared(f"size/{dim}".replace("//", ":")):
            return self._sum(dim)

    def scalar(self, size: DimLike) -> str:
        """A size as i64[]."""
        dim = as_dim(size)
        if dim.is_const:
            from tfgraph.ir import DType

            return self._to.scalar(int(dim), DType.int64)
        vector = self.vector(dim)
        with self._to.shared(f"size/{dim}".replace("//", ":")):
            return str(self._to.node("Squeeze", vector, self._to.ints(0)))

    def shape(self, sizes: Sequence[DimLike]) -> str:
        """Several sizes as i64[n]; numbers next to each other are one constant."""
        dims = [as_dim(size) for size in sizes]
        parts: list[str] = []
        numbers: list[int] = []
        for dim in dims:
            if dim.is_const:
                numbers.append(int(dim))
                continue
            parts += [self._to.ints(*numbers)] if numbers else []
            numbers = []
            parts.append(self.vector(dim))
        if numbers or not dims:
            parts.append(self._to.ints(*numbers))
        if len(parts) == 1:
            return parts[0]
        with self._to.shared("size"):
            return str(self._to.node("Concat", *parts, axis=0))

    def _sum(self, dim: Dim) -> str:
        """Positive terms first, so that nothing starts with a negative number."""
        terms = sorted(dim.terms, key=lambda term: term[1] < 0)
        total = ""
        for monomial, coefficient in terms:
            term = self._product(monomial, abs(coefficient) if total else coefficient)
            if total:
                total = self._to.node("Sub" if coefficient < 0 else "Add", total, term)
            else:
                total = term
        return total or self._to.ints(0)

    def _product(self, monomial: Monomial, coefficient: int) -> str:
        factors = [self._atom(atom) for atom, power in monomial for _ in range(power)]
        if coefficient != 1 or not factors:
            factors.insert(0, self._to.ints(coefficient))
        return reduce(lambda a, b: str(self._to.node("Mul", a, b)), factors)

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, str):
            return self._symbol(atom)
        parts = [self.vector(part) for part in atom.parts]
        if isinstance(atom, Extremum):
            return str(self._to.node(atom.kind.capitalize(), *parts))
        return self._quotient(atom, *parts)

    def _quotient(self, atom: FloorDiv, a: str, b: str) -> str:
        """a // b: ONNX's Div of integers rounds towards 0, which differs below 0."""
        if any(coefficient < 0 for _, coefficient in atom.numerator.terms):
            a = self._to.node("Sub", a, self._to.node("Mod", a, b))
        return str(self._to.node("Div", a, b))

    def _symbol(self, name: str) -> str:
        if name not in self._places:
            raise TfgraphError(
                f"no input's shape tells the size '{name}', and ONNX has no other sizes",
                hint="give it a number, or make it a size of an input",
            )
        given, axis, rest, factor = self._places[name]
        to = self._to
        with to.shared(f"size/{name}"):
            if to.opset >= _SHAPE_OF_PART:
                found = to.node("Shape", given, start=axis, end=axis + 1)
            else:
                found = to.node("Gather", to.node("Shape", given), to.ints(axis), axis=0)
            if rest.terms:
                found = to.node("Sub", found, self.vector(rest))
            if factor != 1:
                found = to.node("Div", found, to.ints(factor))
        return str(found)


Place = tuple[str, int, Dim, int]
"""An input, the axis, and what to subtract from its size and then divide it by."""


def _places(graph: Graph) -> dict[str, Place]:
    """Where each symbol's size can be read: where it stands alone, else where others that are known
    stand beside it."""
    found: dict[str, Place] = {}
    shapes = [
        (item.value.name, axis, dim)
        for item in graph.inputs
        for axis, dim in enumerate(item.value.type.shape)
    ]
    for name, axis, dim in shapes:
        for symbol in dim.symbols:
            if dim == as_dim(symbol):
                found.setdefault(symbol, (name, axis, as_dim(0), 1))
    while True:
        before = len(found)
        for name, axis, dim in shapes:
            unknown = dim.symbols - found.keys()
            if len(unknown) == 1:
                (symbol,) = unknown
                solved = _solve(dim, symbol)
                if solved is not None:
                    found[symbol] = (name, axis, *solved)
        if len(found) == before:
            return found


def _solve(dim: Dim, symbol: str) -> tuple[Dim, int] | None:
    """The rest and the factor where the size is factor * symbol + rest."""
    alone = ((symbol, 1),)
    rest = Dim(tuple(term for term in dim.terms if term[0] != alone))
    factors = [coefficient for monomial, coefficient in dim.terms if monomial == alone]
    return (rest, factors[0]) if factors and symbol not in rest.symbols else None
