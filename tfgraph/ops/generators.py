"""How examples of an input are made where its declaration does not say: as its uses tell, so that
masks are partial, segments differ and ids fit their table. May import: indices, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgraph.ir import Fill, Mask, exact
from tfgraph.ir.mask import Dense, Padding, Prefix, Segments
from tfgraph.ops.indices import Range

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfgraph.ir import Graph, Input, Node, Value

_TWO_KINDS = Fill("ids", exact(2))


def generator(graph: Graph, given: Input, ranges: Mapping[Value, Range]) -> Fill:
    """The generator of an input: the one declared, else the one that its uses ask for, else normal
    values of a float and ones of an integer or bool. `ranges` are the graph's `index_ranges`."""
    if given.fill is not None:
        return given.fill
    value = given.value
    found = [f for node in graph.users.get(value, ()) for f in _asked(node, value)]
    limit = ranges.get(value, Range()).limit
    if limit is not None and limit.is_const:  # an id must be in every table that it indexes
        return Fill("ids", exact(int(limit)))
    usual = Fill("normal", exact(1)) if value.type.dtype.is_float else Fill("ones")
    return next(iter(found), usual)


def _asked(node: Node, value: Value) -> Iterator[Fill]:
    """What a node asks of an operand."""
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
