"""recover-indices: rows taken from a table are an embedding, and indices of single elements are
those that were there before they were repeated and widened for a gather."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tfgraph.ir import DType, as_dim
from tfgraph.ops import Traced, current, embedding, take_at
from tfgraph.passes.pattern import NoMatch, call, var
from tfgraph.passes.pipeline import RulePass, register_pass
from tfgraph.passes.rule import Match, Rule, rule

if TYPE_CHECKING:
    from tfgraph.ir import Node, Value

_SILENT = 10**6
_MOST_AXES = 4


@rule(call("take", var("table"), var("ids"), attrs={"axis": 0}), near=_SILENT)
def rows_of_a_table(table: Any, ids: Any, match: Match) -> Any:
    """take(table, ids) -> embedding(ids, table), of a matrix of floats, or one that is given."""
    given = table.value not in match.graph.producer
    if len(table.shape) != 2 or not (given or table.dtype.is_float):
        raise NoMatch
    return embedding(ids, table)


def _plain_indices(count: int) -> Rule:
    """The rule for elements by indices on so many axes."""

    def plain_indices(x: Any, out: Node, match: Match) -> Any:
        """take_at(x, broadcast_to(i), ...) -> take_at(x, i, ...)."""
        given = [_source(value, match) for value in out.inputs[1:]]
        if given == [*out.inputs[1:]] or len({value.type.dtype for value in given}) > 1:
            raise NoMatch
        found = take_at(x, *(Traced(current(), value) for value in given))
        if found.type != out.output.type:
            raise NoMatch
        return found

    indices = (var(f"i{axis}") for axis in range(count))
    return rule(call("take_at", var("x"), *indices, name="out"), near=_SILENT)(plain_indices)


def _source(value: Value, match: Match) -> Value:
    """What an index was before it was put beside others, widened and repeated."""
    node = match.makers.get(value)
    while node is not None:
        inner = node.inputs[0] if node.inputs else value
        if node.op == "reshape":
            inner = _column(inner, match)
            column = match.makers.get(inner)
            if column is None or column.op != "reshape":
                break
            inner = column.inputs[0]
            if inner.type.shape != value.type.shape:
                break
        elif node.op != "broadcast_to" and (node.op != "cast" or inner.type.dtype != DType.int32):
            break
        value = inner
        node = match.makers.get(value)
    return value


def _column(value: Value, match: Match) -> Value:
    """The part of a concatenation that a slice is; else the value itself."""
    node = match.makers.get(value)
    if node is None or node.op != "slice":
        return value
    joined = match.makers.get(node.inputs[0])
    if joined is None or joined.op != "concat":
        return value
    start, axis = as_dim(0), node.attrs["axis"]
    assert isinstance(axis, int)
    for part in joined.inputs:
        if node.attrs["start"] == start and part.type == value.type:
            return part
        start = start + part.type.shape[axis]
    return value


@register_pass
class RecoverIndices(RulePass):
    """What is read by index."""

    name = "recover-indices"
    rules: ClassVar[list[Rule]] = [
        rows_of_a_table,
        *(_plain_indices(count) for count in range(1, _MOST_AXES + 1)),
    ]
