"""Whether two graphs are the same computation node for node, sizes left symbolic.

Every value gets a number, by hash-consing: equal ops of equal operands have equal numbers. Ops that
are made of others are taken apart first, and operands of commutative ones are ordered; nothing else
is known of any op, so equal numbers hold for all sizes, in every arithmetic. May import: ops, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgraph.ir import Mask, Value
from tfgraph.ops import expand, find_op

if TYPE_CHECKING:
    from tfgraph.ir import Graph, Node


class Structure:
    """Numbers of values; those of inputs and parameters are their names."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def outputs(self, graph: Graph) -> list[int]:
        """The number of each output of a graph."""
        graph = in_parts(graph)
        given = [i.value for i in graph.inputs] + [p.value for p in graph.params]
        known = {value: self._number(value.name) for value in given}
        for node in graph.nodes:
            number = self._key(node, known)
            for i, value in enumerate(node.outputs):
                known[value] = self._number((number, i))
        return [known[output.value] for output in graph.outputs]

    def _key(self, node: Node, known: dict[Value, int]) -> int:
        operands = [_operand(o, known) for o in node.operands]
        if find_op(node.op).commutative:
            operands = sorted(operands, key=str)
        attrs = tuple((name, str(attr)) for name, attr in sorted(node.attrs.items()))
        return self._number((node.op, tuple(operands), attrs))

    def _number(self, key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def same_structure(before: Graph, after: Graph) -> bool:
    """Whether both give the same outputs by the same nodes."""
    numbers = Structure()
    return numbers.outputs(before) == numbers.outputs(after)


def _operand(operand: Any, known: dict[Value, int]) -> Any:
    if isinstance(operand, Value):
        return known[operand]
    if isinstance(operand, Mask):
        return str(operand.map(lambda v: Value(f"#{known[v]}", v.type)))
    return None if operand is None else str(operand)


def in_parts(graph: Graph) -> Graph:
    """The graph with composite ops as their parts."""
    while True:
        parts = expand(graph)
        if parts is graph or len(parts.nodes) == len(graph.nodes):
            return parts
        graph = parts
