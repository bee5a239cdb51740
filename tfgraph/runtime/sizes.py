"""Sizes of a call: symbols bound from the shapes of the inputs, ranges and constraints checked.

Dimensions are texts such as `batch` or `2*seq + past//2`, as the textual IR prints them. May
import: the standard library, errors.
"""

from __future__ import annotations

import ast
import operator
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: lambda a, b: a // b,
}
_SYMBOL = re.compile(r"\b(?!(?:min|max)\()[^\W\d]\w*")


@dataclass(frozen=True)
class Port:
    """An input or output: its name, NumPy dtype and shape (numbers and texts of dimensions)."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    fill: str = "normal(1)"
    limit: int | str | None = None
    """Integer values must be below this dimension: they index a table (`ops.indices`)."""
    attention: bool = False
    """Whether it is an output that holds attention weights [batch, heads, query, key]."""
    least: int | str | None = None
    """Integer values must be at least this dimension."""

    @property
    def is_state(self) -> bool:
        """Whether it is an input that a run replaces by the output of its name."""
        return self.fill == "state()"

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class SymbolRange:
    """The sizes that a symbol may take, both ends included, and an example."""

    low: int
    high: int
    example: int

    def holds(self, size: int) -> bool:
        """Whether it is a size in range."""
        return self.low <= size <= self.high

    def check(self, name: str, size: int, where: str) -> None:
        """Raise TfgraphError for a size out of range; `where` says what gave it."""
        if not self.holds(size):
            raise TfgraphError(f"{name} is {size} in {where}, expected {self.low} to {self.high}")


def evaluate(dim: int | str, sizes: Mapping[str, int]) -> int:
    """The value of a dimension. Raises KeyError for a symbol without a size."""
    return dim if isinstance(dim, int) else _evaluator(dim)(sizes)


def symbols_of(dim: int | str) -> frozenset[str]:
    """The symbols of a dimension."""
    return frozenset() if isinstance(dim, int) else frozenset(_SYMBOL.findall(dim))


@lru_cache(maxsize=4096)
def _evaluator(text: str) -> Callable[[Mapping[str, int]], int]:
    # An underscore before each symbol: one may be called as a keyword of Python is.
    return _function(ast.parse(_SYMBOL.sub(r"_\g<0>", text), mode="eval").body)


def _function(node: ast.expr) -> Callable[[Mapping[str, int]], int]:
    """The expression as a function of the sizes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        value = node.value
        return lambda sizes: value
    if isinstance(node, ast.Name):
        return operator.itemgetter(node.id[1:])
    if isinstance(node, ast.BinOp):
        f, left, right = _OPERATORS[type(node.op)], _function(node.left), _function(node.right)
        return lambda sizes: f(left(sizes), right(sizes))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        operand = _function(node.operand)
        return lambda sizes: -operand(sizes)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        chosen: Callable[..., int] = {"min": min, "max": max}[node.func.id]
        among = [_function(a) for a in node.args]
        return lambda sizes: chosen(*[a(sizes) for a in among])
    raise ValueError(f"not a dimension: {ast.unparse(node)}")


def bind_sizes(
    inputs: Sequence[Port],
    shapes: Mapping[str, tuple[int, ...]],
    symbols: Mapping[str, SymbolRange],
    constraints: Sequence[str],
    given: Mapping[str, int],
) -> dict[str, int]:
    """The size of each symbol. Raises TfgraphError where shapes contradict each other, a size is
    out of range or a constraint does not hold; the message names the inputs."""
    return _checked(inputs, shapes, symbols, constraints, *_told(inputs, shapes, given))


def told_sizes(
    inputs: Sequence[Port], shapes: Mapping[str, tuple[int, ...]], given: Mapping[str, int]
) -> dict[str, int]:
    """The sizes that are given or that shapes tell. Raises TfgraphError where those contradict."""
    return _told(inputs, shapes, given)[0]


def complete_sizes(
    inputs: Sequence[Port],
    shapes: Mapping[str, tuple[int, ...]],
    symbols: Mapping[str, SymbolRange],
    constraints: Sequence[str],
    given: Mapping[str, int],
) -> dict[str, int]:
    """As `bind_sizes`, with the example size of each symbol that neither `given` nor a shape tells.

    One after the other, since one may tell the next: of `past + seq` each tells the other. Where an
    example leaves none for the next, the least or the greatest size may.
    """
    sizes, source = _told(inputs, shapes, given)
    for name, bounds in symbols.items():
        if name in sizes:
            continue
        tries: list[tuple[dict[str, int], dict[str, str]]] = []
        for size in (bounds.example, bounds.low, bounds.high):
            tries.append(({**sizes, name: size}, {**source, name: "its example"}))
            _solve_all(inputs, shapes, *tries[-1])
        fits = (t for t in tries if all(symbols[n].holds(t[0][n]) for n in t[0] if n not in sizes))
        sizes, source = next(fits, tries[0])
    return _checked(inputs, shapes, symbols, constraints, sizes, source)


def _told(
    inputs: Sequence[Port], shapes: Mapping[str, tuple[int, ...]], given: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, str]]:
    """The sizes that are given or that shapes tell, and what told each."""
    sizes = dict(given)
    source = dict.fromkeys(given, "dims")
    for port in inputs:
        shape = shapes[port.name]
        if len(shape) != len(port.shape):
            raise TfgraphError(f"input '{port.name}' has shape {list(shape)}, expected {port}")
        for axis, (dim, size) in enumerate(zip(port.shape, shape, strict=True)):
            if isinstance(dim, str) and dim.isidentifier():
                known = sizes.setdefault(dim, size)
                here = f"axis {axis} of '{port.name}'"
                if known != size:
                    raise TfgraphError(f"{dim} is {known} in {source[dim]}, but {size} in {here}")
                source.setdefault(dim, here)
    _solve_all(inputs, shapes, sizes, source)
    return sizes, source


def _solve_all(
    inputs: Sequence[Port],
    shapes: Mapping[str, tuple[int, ...]],
    sizes: dict[str, int],
    source: dict[str, str],
) -> None:
    """Add the sizes that follow from others, until there are no more."""
    sums = [
        (dim, size, f"axis {axis} of '{port.name}'")
        for port in inputs
        for axis, (dim, size) in enumerate(zip(port.shape, shapes[port.name], strict=True))
        if isinstance(dim, str) and not dim.isidentifier()
    ]
    known = -1
    while sums and known < len(sizes):
        known = len(sizes)
        for dim, size, here in sums:
            found = _solve(dim, size, sizes)
            sizes |= found
            source |= dict.fromkeys(found, here)


def _checked(
    inputs: Sequence[Port],
    shapes: Mapping[str, tuple[int, ...]],
    symbols: Mapping[str, SymbolRange],
    constraints: Sequence[str],
    sizes: dict[str, int],
    source: Mapping[str, str],
) -> dict[str, int]:
    """The sizes, if all are there, in range and in agreement."""
    for name, bounds in symbols.items():
        if name not in sizes:
            raise TfgraphError(
                f"no input gives the size of '{name}'", hint=f"pass dims={{'{name}': ...}}"
            )
        bounds.check(name, sizes[name], source[name])
    for port in inputs:
        for axis, (dim, size) in enumerate(zip(port.shape, shapes[port.name], strict=True)):
            if evaluate(dim, sizes) != size:
                raise TfgraphError(
                    f"axis {axis} of '{port.name}' is {size}, expected {dim}"
                    + ("" if isinstance(dim, int) else _derived(dim, sizes, source))
                )
    for text in constraints:
        _check_constraint(text, sizes, source)
    return sizes


def _derived(dim: str, sizes: Mapping[str, int], source: Mapping[str, str]) -> str:
    """The size that a dimension has, and what told the sizes of its symbols."""
    names = dict.fromkeys(_SYMBOL.findall(dim))
    told = ", ".join(f"{n} = {sizes[n]} ({source[n]})" for n in names if n in sizes)
    return f" = {evaluate(dim, sizes)}: {told}" if told else f" = {evaluate(dim, sizes)}"


def _solve(dim: str, size: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """The one symbol of `dim` that is not known yet, where dim = a symbol + b: `past + seq` gives
    past once seq is known. Whether dim is of that form shows when its size is checked."""
    unknown = symbols_of(dim) - set(sizes)
    if len(unknown) != 1:
        return {}
    (name,) = unknown
    base, next_ = (evaluate(dim, {**sizes, name: value}) for value in (0, 1))
    slope = next_ - base
    return {name: (size - base) // slope} if slope else {}


def _check_constraint(text: str, sizes: Mapping[str, int], source: Mapping[str, str]) -> None:
    relation = "<=" if "<=" in text else "=="
    left, right = (evaluate(part.strip(), sizes) for part in text.split(relation))
    if (left > right) if relation == "<=" else (left != right):
        names = set(_SYMBOL.findall(text))
        used = [f"{n} = {sizes[n]} ({where})" for n, where in source.items() if n in names]
        raise TfgraphError(f"{text} does not hold: {', '.join(used)}")
