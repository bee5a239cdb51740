"""Interventions: heads and hidden units scaled or silenced, rows of weights replaced, in the graph.

The result is a graph like any other, over the same parameters. What flows on keeps its name: the
value before a head was silenced is `context~0`, after it `context`. What an edit adds depends on
weights alone but for one `where` or `mul` a value, so that nothing fuses less. `Graph.intervene` is
this. May import: targets, dim, exact, graph, legal, types,
verify, errors.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

from tfgraph.errors import TfgraphError
from tfgraph.ir.dim import as_dim
from tfgraph.ir.exact import exact
from tfgraph.ir.graph import Graph, Node, Output, Value
from tfgraph.ir.legal import check_fits
from tfgraph.ir.targets import Part, Row, find_target
from tfgraph.ir.types import DType, TensorType
from tfgraph.ir.verify import verify_structure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfgraph.errors import Location
    from tfgraph.ir.dim import Dim
    from tfgraph.ir.exact import Exact
    from tfgraph.ir.graph import Attr, Operand

Numbers = list["Exact"]
Shape = tuple["Dim", ...]


def intervene(graph: Graph, edits: Mapping[str, Any]) -> Graph:
    """See `Graph.intervene`."""
    factors: dict[Value, Numbers] = {}
    rows: dict[tuple[Value, int], dict[int, Numbers]] = {}
    errors: list[TfgraphError] = []
    for name, given in edits.items():
        try:
            target = find_target(graph, name)
            if isinstance(target, Row):
                numbers = _numbers(name, given, target.length, target.value.type.dtype)
                rows.setdefault((target.value, target.axis), {})[target.index] = numbers
            else:
                _multiply(factors, target, *_numbers(name, given, 1, target.value.type.dtype))
        except TfgraphError as error:
            errors.append(error)
    if errors:
        first, *rest = errors
        raise TfgraphError(first.message, first.location, first.hint, rest)
    for (param, axis), replaced in rows.items():
        graph = _with_rows(graph, param, axis, replaced)
    for value, numbers in factors.items():
        graph = _scaled(graph, value, numbers)
    verify_structure(graph)
    return graph


def _multiply(factors: dict[Value, Numbers], part: Part, factor: Exact) -> None:
    one = exact(1)
    of = factors.setdefault(part.value, [one] * int(part.value.type.shape[-1]))
    of[part.start : part.stop] = [f * factor for f in of[part.start : part.stop]]


def _numbers(name: str, given: Any, length: int, dtype: DType) -> Numbers:
    """`length` numbers that the dtype holds; one is taken for all of them."""
    plain: Any = given.tolist() if hasattr(given, "tolist") else given
    many = isinstance(plain, list | tuple)
    listed = list(cast("Sequence[Any]", plain)) if many else [plain] * length
    try:
        if any(isinstance(x, bool | str) for x in listed):
            raise TypeError
        numbers = [exact(x) for x in listed]
    except (TypeError, ValueError, OverflowError):
        what = "a number" if length == 1 else f"a number, or {length} of them"
        raise TfgraphError(f"{name} = {plain!r:.60}: expected {what}, finite") from None
    if len(numbers) != length:
        what = "one number" if length == 1 else f"{length} numbers, or one for all"
        raise TfgraphError(f"{name} takes {what}, got {len(numbers)}")
    for number in numbers:
        try:
            check_fits(number, dtype)
        except TfgraphError as error:
            raise TfgraphError(f"{name}: {error.message}", hint=error.hint) from error
    return numbers


class _Nodes:
    """Makes nodes at one place of a graph, with names that are free there."""

    def __init__(self, graph: Graph, location: Location | None) -> None:
        self.made: list[Node] = []
        self._location = location
        self._taken = {value.name for value in graph.values()}

    def free(self, name: str) -> str:
        """`name`, or `name_1` and on where there is one."""
        numbered = (f"{name}_{i}" if i else name for i in range(len(self._taken) + 1))
        found = next(n for n in numbered if n not in self._taken)
        self._taken.add(found)
        return found

    def add(self, op: str, operands: Sequence[Operand], result: Value, **attrs: Attr) -> Value:
        """A node; its result."""
        self.made.append(Node(op, tuple(operands), (result,), attrs, self._location))
        return result

    def row(self, name: str, numbers: Numbers, dtype: DType) -> Value:
        """The row of these numbers: a `full` for each run of equal ones, joined."""
        runs = [(number, len(list(same))) for number, same in groupby(numbers)]
        parts = [
            self.full(name if len(runs) == 1 else f"{name}.{i}", (length,), number, dtype)
            for i, (number, length) in enumerate(runs)
        ]
        return self.joined(parts, name, 0)

    def full(self, name: str, shape: tuple[int, ...], number: Exact, dtype: DType) -> Value:
        """A tensor whose elements are all that number."""
        sizes = tuple(map(as_dim, shape))
        value = Value(self.free(name), TensorType(dtype, sizes))
        return self.add("full", (), value, shape=sizes, value=number, dtype=dtype)

    def joined(self, parts: Sequence[Value], name: str, axis: int) -> Value:
        """The parts one after another; the only one as it is."""
        if len(parts) == 1:
            return parts[0]
        shape = list(parts[0].type.shape)
        shape[axis] = sum((p.type.shape[axis] for p in parts[1:]), start=shape[axis])
        value = Value(self.free(name), parts[0].type.with_shape(shape))
        return self.add("concat", parts, value, axis=axis)


def _scaled(graph: Graph, value: Value, factors: Numbers) -> Graph:
    """The last axis of the value times the factors. Where one is 0 the result is 0, whatever the
    value holds: zeros select, NaN times 0 is not 0."""
    at = next(i for i, node in enumerate(graph.nodes) if value in node.outputs)
    maker, dtype = graph.nodes[at], value.type.dtype
    nodes = _Nodes(graph, maker.location)
    number = 0
    while f"{value.name}~{number}" in {v.name for v in graph.values()}:
        number += 1
    before = x = Value(nodes.free(f"{value.name}~{number}"), value.type)
    silent = [exact(int(f == exact(0))) for f in factors]
    scale = [exact(1) if s == exact(1) else f for f, s in zip(factors, silent, strict=True)]
    if any(f != exact(1) for f in scale):
        row = nodes.row(f"{value.name}.factors", scale, dtype)
        x = nodes.add("mul", (x, row), Value(nodes.free(f"{value.name}.scaled"), value.type))
    if exact(1) in silent:
        where = nodes.row(f"{value.name}.silent", silent, DType.bool_)
        zero = nodes.full(f"{value.name}.zero", (), exact(0), dtype)
        x = nodes.add(
            "where", (where, zero, x), Value(nodes.free(f"{value.name}.kept"), value.type)
        )
    if x is before:  # all factors are 1
        return graph
    last = replace(nodes.made.pop(), outputs=(value,))
    renamed = tuple(before if v == value else v for v in maker.outputs)
    changed = (replace(maker, outputs=renamed), *nodes.made, last)
    return replace(graph, nodes=(*graph.nodes[:at], *changed, *graph.nodes[at + 1 :]))


def _with_rows(graph: Graph, param: Value, axis: int, rows: Mapping[int, Numbers]) -> Graph:
    """All that reads the parameter, or what an intervention before this one made of it, reads it
    with these rows, or columns for axis 1, in place of its own."""
    at, current = 0, param
    for i, node in enumerate(graph.nodes):
        if node.outputs[0].name.startswith(f"{param.name}~edited"):
            at, current = i + 1, node.output
    reader = next((n for n in graph.nodes if current in n.inputs), None)
    nodes = _Nodes(graph, reader.location if reader else None)
    shape, dtype = current.type.shape, current.type.dtype
    parts: list[Value] = []
    edited_name = f"{param.name}~edited"

    def part(op: str, operands: Sequence[Operand], sizes: Shape, **attrs: Attr) -> None:
        name = edited_name if sizes == shape else f"{param.name}~{len(parts)}"
        value = Value(nodes.free(name), current.type.with_shape(sizes))
        parts.append(nodes.add(op, operands, value, **attrs))

    def sized(length: int) -> Shape:
        return (*shape[:axis], as_dim(length), *shape[axis + 1 :])

    def kept(start: int, stop: int) -> None:
        if stop > start:
            ends = {"start": as_dim(start), "stop": as_dim(stop)}
            part("slice", (current,), sized(stop - start), axis=axis, **ends)

    def replaced(numbers: Numbers) -> None:
        made: dict[str, Attr] = {"shape": sized(1), "dtype": dtype}
        if len(set(numbers)) == 1:
            part("full", (), sized(1), value=numbers[0], **made)
        else:
            part("constant", (), sized(1), values=tuple(numbers), **made)

    end = 0
    for index in sorted(rows):
        kept(end, index)
        replaced(rows[index])
        end = index + 1
    kept(end, int(shape[axis]))
    edited = nodes.joined(parts, edited_name, axis)

    def read(value: Value) -> Value:
        return edited if value == current else value

    readers = (node.map_values(read) for node in graph.nodes[at:])
    outputs = tuple(Output(o.name, read(o.value)) for o in graph.outputs)
    return replace(graph, nodes=(*graph.nodes[:at], *nodes.made, *readers), outputs=outputs)
