"""Two graphs of the same inputs, run on random ones: in a finite field, or in float64.

May import: structure, text, ops, ir; numpy.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.errors import TfgraphError
from tfgraph.ir import Dim, Mask
from tfgraph.ir.points import settle
from tfgraph.ops import FloatArray, evaluate, in_float64
from tfgraph.ops.field import Draw, FieldArray, NotInField, Redraw
from tfgraph.ops.generators import generator
from tfgraph.ops.indices import index_ranges
from tfgraph.ops.limits import implied_constraints
from tfgraph.passes.structure import in_parts
from tfgraph.text import print_graph

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfgraph.ir import Graph, Input, Value

    NDArray = np.ndarray[Any, Any]

SIZES = (5, 3, 7, 2, 4, 6)
"""Of symbols, in turn: each symbol gets another one in each draw."""

DRAWS, MOST_DRAWS = 3, 12
LARGEST = 1 << 24
"""Elements of an input that are drawn at most."""
_OF_EXP = ("exp", "softmax")
"""The core ops whose bodies call exp. Of one that is not listed an exponent is a random number."""

FARTHEST, MOST_FAR = 300, 4
"""The longest reach of a mask, and how many of them, beyond which lengths are drawn."""


def agree_in_field(
    before: Graph, after: Graph, enough: float
) -> tuple[float, tuple[str, ...]] | str:
    """The probability that different graphs would agree as these did, and the random functions
    that took part; or how the outputs differ. Raises NotInField."""
    error, opaque, counted = 1.0, set[str](), 0
    far = _far(before, after)
    exponents = any(n.op in _OF_EXP for g in (before, after) for n in in_parts(g).nodes)
    key = hashlib.sha256((print_graph(before) + print_graph(after)).encode()).digest()
    for attempt in range(4 * MOST_DRAWS):
        seed = int.from_bytes(key[:6], "little") + attempt
        # Lengths beyond the reach of masks that differ are drawn last, since they take longest.
        length = far[-1] if far and counted >= DRAWS else None
        sizes = _sizes(before, after, attempt, length)
        try:
            draw = Draw(seed, exponents)
            given = {i.value.name: _drawn(draw, before, after, i, sizes) for i in before.inputs}
            like = FieldArray.integers(draw, np.zeros((), np.int64))
            pairs = [_outputs(g, given, sizes, like) for g in (before, after)]
        except Redraw:
            continue
        for output, a, b in zip(before.outputs, *pairs, strict=True):
            if difference := a.differs(b):
                return f"{difference} in {output.value.type} {_at(sizes)}".strip()
        if draw.masked and not draw.chosen:
            continue  # of one allowed key softmax says nothing
        error, opaque, counted = error * draw.error, opaque | set(draw.calls), counted + 1
        if length is not None:
            far.pop()  # not where the draw said nothing
        if not far and (counted >= MOST_DRAWS or (counted >= DRAWS and error < enough)):
            return error, tuple(sorted(opaque))
    raise NotInField("no draw said anything")


def _far(before: Graph, after: Graph) -> list[int]:
    """Lengths at which the masks and windows show in which the graphs differ."""
    reaches = [set(_reaches(graph)) for graph in (before, after)]
    found = {reach for _, reach in reaches[0] ^ reaches[1]}
    return sorted({reach + 3 for reach in found if max(SIZES) - 2 < reach <= FARTHEST})[-MOST_FAR:]


def _reaches(graph: Graph) -> Iterator[tuple[str, int]]:
    """The numbers in masks, and those at which slices of symbolic sizes start and end."""
    for node in graph.nodes:
        for operand in node.operands:
            for part in operand.parts if isinstance(operand, Mask) else ():
                for dim in part.dims():
                    if dim.is_const:
                        yield str(part.map(lambda v: replace(v, name=""))), abs(int(dim))
        if node.op == "slice" and not node.inputs[0].type.shape[int(node.attrs["axis"])].is_const:  # type: ignore[arg-type]
            for name in ("start", "stop"):
                end = node.attrs[name]
                if isinstance(end, Dim) and end.is_const:
                    yield f"slice {name}", int(end)


def agree_in_floats(before: Graph, after: Graph) -> str:
    """How the outputs differ by more than rounding in float64; "" where they don't."""
    for attempt in range(DRAWS):
        sizes, rng = _sizes(before, after, attempt), np.random.default_rng(attempt)
        given: dict[str, FloatArray] = {}
        for item in before.inputs:
            dtype, shape = item.value.type.dtype, _shape(item.value, sizes)
            if dtype.is_float:
                array = rng.standard_normal(shape)
            else:
                below = _below(before, after, item, sizes)
                array = rng.integers(0, below, shape).astype(dtype.value)
            given[item.value.name] = FloatArray(array)
        like = FloatArray(np.zeros((), np.float64))
        pairs = [_outputs(in_float64(g), given, sizes, like) for g in (before, after)]
        for output, a, b in zip(before.outputs, *pairs, strict=True):
            if not np.allclose(a.data, b.data, rtol=1e-9, atol=1e-12, equal_nan=True):
                return f"another value in {output.value.type} {_at(sizes)}".strip()
    return ""


def _outputs(graph: Graph, given: Mapping[str, Any], sizes: Mapping[str, int], like: Any) -> Any:
    known = dict(given)
    wanted = {o.value.name for o in graph.outputs}
    try:
        for node, results in evaluate(graph, given, sizes, like):
            for value, result in zip(node.outputs, results, strict=True):
                if value.name in wanted:
                    known[value.name] = result
    except TfgraphError as refused:  # an index out of range, which a draw may give
        raise Redraw(refused.message) from refused
    return [known[o.value.name] for o in graph.outputs]


def _sizes(before: Graph, after: Graph, attempt: int, length: int | None = None) -> dict[str, int]:
    """Small sizes within ranges and constraints, others in each attempt; with `length` that of all
    that are more than the size of a batch."""
    graphs = (before, after)
    values = [v for g in graphs for v in g.values()]
    names = {s for v in values for d in v.type.shape for s in d.symbols}
    names |= {s.name for g in graphs for s in g.symbols}
    lengths = {s for v in values for d in v.type.shape[1:] for s in d.symbols}
    symbols = [before.symbol(name) for name in sorted(names)]
    wanted = {s.name: SIZES[(i + attempt) % len(SIZES)] for i, s in enumerate(symbols)}
    if length is not None:
        wanted = {name: length if name in lengths else 2 for name in wanted}
    wanted = {s.name: min(max(wanted[s.name], s.low), s.high) for s in symbols}
    constraints = [c for g in graphs for c in (*g.constraints, *implied_constraints(g))]
    settled = settle(wanted, symbols, constraints)
    if settled is None:
        raise NotInField("no small sizes meet the constraints")
    return settled


def _drawn(
    draw: Draw, before: Graph, after: Graph, item: Input, sizes: Mapping[str, int]
) -> FieldArray:
    """A random input: any numbers, integers as their uses ask."""
    shape, dtype = _shape(item.value, sizes), item.value.type.dtype
    if math.prod(shape) > LARGEST:
        raise NotInField(f"{item.value.type} is too large to draw")
    if dtype.is_float:
        return FieldArray.variables(draw, dtype, shape)
    integers = draw.integers(_below(before, after, item, sizes), shape)
    return FieldArray.integers(draw, integers.astype(dtype.value))


def _below(before: Graph, after: Graph, item: Input, sizes: Mapping[str, int]) -> int:
    """What integers are drawn below: the rows of tables that they index, lengths, else 2: so half
    of the keys of a mask are hidden."""
    below: list[int] = []
    for graph in (before, after):
        fill = generator(graph, item, index_ranges(graph))
        if isinstance(fill.argument, Dim):
            below.append(fill.argument.evaluate(sizes) + 1)
        elif fill.kind == "ids" and fill.argument is not None:
            below.append(int(float(fill.argument)))
    return max(1, min(below, default=2))


def _shape(value: Value, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(d.evaluate(sizes) for d in value.type.shape)


def _at(sizes: Mapping[str, int]) -> str:
    return "at " + ", ".join(f"{n}={size}" for n, size in sizes.items()) if sizes else ""
