"""How examples of an input are made where its declaration does not say: as its uses tell, so that
masks are partial, segments differ and ids fit their table. May import: ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgraph.ir import Exact, Fill, Mask, exact
from tfgraph.ir.mask import Dense, Padding, Prefix, Segments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfgraph.ir import Graph, Input, Node, Value

_TWO_KINDS = Fill("ids", exact(2))


def generator(graph: Graph, given: Input) -> Fill:
    """The generator of an input: the one declared, else the one that its uses ask for, else normal
    values of a float and ones of an integer or bool."""
    if given.fill is not None:
        return given.fill
    value = given.value
    found = [f for node in graph.users.get(value, ()) for f in _asked(node, value)]
    tables = [f for f in found if f.kind == "ids" and f != _TWO_KINDS]
    if tables:  # an id must be in every table that it indexes
        return min(tables, key=lambda f: f.argument.factor if isinstance(f.argument, Exact) else 0)
    usual = Fill("normal", exact(1)) if value.type.dtype.is_float else Fill("ones")
    return next(iter(found), usual)


def _asked(node: Node, value: Value) -> Iterator[Fill]:
    """What a node asks of an operand."""
    table, axis = None, 0
    if node.op == "embedding" and node.operands[0] == value:
        table = node.inputs[1]
    elif node.op == "take" and node.operands[1] == value:
        table, axis = node.inputs[0], int(node.attrs["axis"])  # type: ignore[arg-type]
    elif node.op == "take_at" and value in node.operands[1:]:
        table, axis = node.inputs[0], node.operands.index(value, 1) - 1
    if table is not None and table.type.shape[axis].is_const:
        yield Fill("ids", exact(int(table.type.shape[axis])))
    for operand in node.operands:
        for part in operand.parts if isinstance(operand, Mask) else ():
            scores_or_keys = node.inputs[1 if node.op == "attention" else 0].type
            keys = scores_or_keys.shape[1 if node.op == "attention" else -1]
            match part:
                case Padding(keep=keep) if keep == value:
                    yield Fill("prefix") if value.type.rank == 2 else Fill("lengths", keys)
                case Prefix(length=length) if length == value:
                    yield Fill("lengths", keys)
                case Segments() if value in (part.query, part.key):
                    yield _TWO_KINDS
                case Dense(allowed=allowed) if allowed == value:
                    yield _TWO_KINDS
                case _:
                    pass
