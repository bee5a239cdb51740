"""Which integers an input may hold: those that index a table, also where ops move or shift them.

A kernel that is given an index out of range reads the nearest row, so what can be told before a
call is: the range that a table asks for is carried back, through what moves integers, joins them,
adds a constant or clamps them, to the inputs and constants that they come from. What is computed in
another way, or chosen by `where`, is not followed. May import: embedding_sum, ir, errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfgraph.errors import TfgraphError
from tfgraph.ir import DType, Exact, Value, as_dim
from tfgraph.ir.dim import dim_max, dim_min
from tfgraph.ops.embedding_sum import terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfgraph.ir import Dim, Graph, Node, Operand

_MOVES = ("reshape", "transpose", "broadcast_to", "slice", "concat")


@dataclass(frozen=True)
class Range:
    """Integers from `least` on that are below `limit`; None where there is no such bound."""

    least: Dim | None = None
    limit: Dim | None = None

    def __and__(self, other: Range) -> Range:
        least = [d for d in (self.least, other.least) if d is not None]
        limit = [d for d in (self.limit, other.limit) if d is not None]
        return Range(dim_max(*least) if least else None, dim_min(*limit) if limit else None)

    def __sub__(self, by: int) -> Range:
        """What x may be where x + by is in the range."""
        return Range(
            None if self.least is None else self.least - by,
            None if self.limit is None else self.limit - by,
        )

    def mirrored(self, about: int) -> Range:
        """What x may be where about - x is in the range."""
        return Range(
            None if self.limit is None else as_dim(about + 1) - self.limit,
            None if self.least is None else as_dim(about + 1) - self.least,
        )

    def __str__(self) -> str:
        low, high = self.least, None if self.limit is None else self.limit - 1
        if low is None or high is None:
            return f"at least {low}" if high is None else f"at most {high}"
        return f"{low} to {high}"

    def refuses(self, number: int) -> bool:
        """Whether the number is outside, whatever the sizes."""
        low, high = self.least, self.limit
        below = low is not None and low.is_const and number < int(low)
        return below or (high is not None and high.is_const and number >= int(high))


def index_ranges(graph: Graph) -> Mapping[Value, Range]:
    """The range of each value that is an index or becomes one. Each element is held to it, also one
    that a slice leaves out. Raises TfgraphError for a constant that is outside, at its place."""
    found: dict[Value, Range] = {}
    for node in reversed(graph.nodes):
        if node.op in ("full", "constant"):
            if node.output in found:
                _check_constant(node, found[node.output])
            continue
        for value, wanted in _asked(node, graph, found):
            found[value] = found[value] & wanted if value in found else wanted
    return found


def _asked(node: Node, graph: Graph, found: Mapping[Value, Range]) -> Iterator[tuple[Value, Range]]:
    """What a node asks of its operands, given what is asked of its result."""
    if node.op == "take":
        table, indices = node.inputs
        yield indices, Range(as_dim(0), table.type.shape[int(node.attrs["axis"])])  # type: ignore[arg-type]
        return
    if node.op in ("embedding", "embedding_sum"):
        for ids, table in terms(node.inputs):
            if ids is not None:
                yield ids, Range(as_dim(0), table.type.shape[0])
        return
    if node.op == "take_at":
        for indices, rows in zip(node.inputs[1:], node.inputs[0].type.shape, strict=False):
            yield indices, Range(as_dim(0), rows)
        return
    wanted = found.get(node.outputs[0])
    if wanted is None or not node.inputs:
        return
    if node.outputs[0].type.dtype not in (DType.int64, DType.int32):
        return  # in fewer bits integers wrap around
    if node.op in _MOVES or (node.op == "cast" and node.inputs[0].type.dtype.is_int):
        yield from ((value, wanted) for value in node.inputs)
    elif node.op in ("add", "sub", "maximum", "minimum"):
        yield from _of_two(node, graph, wanted)


def _of_two(node: Node, graph: Graph, wanted: Range) -> Iterator[tuple[Value, Range]]:
    """What an op of two operands asks of one, where the other is a number."""
    a, b = node.operands
    first, second = _number(a, graph), _number(b, graph)
    value, number = (a, second) if second is not None else (b, first)
    if number is None or not isinstance(value, Value):
        return
    if node.op == "add":
        yield value, wanted - number
    elif node.op == "sub":
        yield value, wanted - -number if value is a else wanted.mirrored(number)
    elif not wanted.refuses(number):  # the number itself may be taken: it bounds one side
        least, limit = wanted.least, wanted.limit
        if node.op == "maximum" and limit is not None:
            yield value, Range(None if _at_most(least, number) else least, limit)
        elif node.op == "minimum" and least is not None:
            yield value, Range(least, None if _at_least(limit, number + 1) else limit)


def _number(operand: Operand, graph: Graph) -> int | None:
    """The integer that an operand repeats; None if it is none."""
    held: object = operand
    if isinstance(operand, Value):
        source = graph.producer.get(operand)
        while source is not None and source.op in _MOVES[:4]:
            source = graph.producer.get(source.inputs[0])
        held = source.attrs["value"] if source is not None and source.op == "full" else None
    return int(held.factor) if isinstance(held, Exact) and held.is_integer else None


def _check_constant(node: Node, wanted: Range) -> None:
    held: Any = (node.attrs["value"],) if node.op == "full" else node.attrs["values"]
    for number in held:
        if isinstance(number, Exact) and wanted.refuses(int(number.factor)):
            raise TfgraphError(
                f"the constant {number} indexes a table, expected {wanted}", node.location
            )


def _at_most(dim: Dim | None, number: int) -> bool:
    return dim is None or (dim.is_const and int(dim) <= number)


def _at_least(dim: Dim | None, number: int) -> bool:
    return dim is None or (dim.is_const and int(dim) >= number)
