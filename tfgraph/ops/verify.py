"""The verifier: structure, the types of every node, the use of states, constant indices.

May import: cache, define, indices, trace, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError
from tfgraph.ir import verify_structure
from tfgraph.ops.cache import check_states
from tfgraph.ops.define import find_op
from tfgraph.ops.indices import index_ranges
from tfgraph.ops.trace import map_traced

if TYPE_CHECKING:
    from tfgraph.ir import Graph, TensorType, Value


def verify(graph: Graph) -> None:
    """Check a graph. Raises TfgraphError that names the node and its place in the user's file."""
    verify_structure(graph)
    for node in graph.nodes:
        try:
            definition = find_op(node.op)
            operands = definition.bind_operands(node.operands)
            attrs = definition.bind_attrs(node.attrs)
            types = definition.node_types([map_traced(o, _type_of) for o in operands], attrs)
        except TfgraphError as error:
            raise TfgraphError(
                f"%{node.outputs[0].name} = {node.op}: {error.message}",
                error.location or node.location,
                error.hint,
            ) from error
        declared = tuple(value.type for value in node.outputs)
        if types != declared:
            raise TfgraphError(
                f"%{node.outputs[0].name} = {node.op}: the result is "
                f"{', '.join(map(str, types))}, not {', '.join(map(str, declared))}",
                node.location,
            )
    check_states(graph)
    index_ranges(graph)


def _type_of(value: Value) -> TensorType:
    return value.type
