"""Nodes that run in float32, between casts from and to floats of 16 bits: what an op means there.

May import: define, ir.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tfgraph.ir import DType, Graph, Mask, Node, Value, as_dim
from tfgraph.ops.define import find_op

NARROW = frozenset({DType.float16, DType.bfloat16})
"""The floats of 16 bits: ops widen them, run, and round once."""


def computes_narrow(node: Node) -> bool:
    """Whether a node computes with floats of 16 bits; what only moves is exact in any type."""
    if not any(v.type.dtype in NARROW for v in (*node.inputs, *node.outputs)):
        return False
    types = [
        o.map(lambda v: v.type) if isinstance(o, Mask) else o.type if isinstance(o, Value) else o
        for o in node.operands
    ]
    return find_op(node.op).flops(types, node.attrs) != as_dim(0)


def in_float32(graph: Graph, nodes: Collection[Node]) -> Graph:
    """The graph with these nodes in float32, their floats of 16 bits cast before and behind.

    Results keep their names; new values are `name~number`.
    """
    taken = {value.name for value in graph.values()}
    made = [
        part for node in graph.nodes for part in (_wide(node, taken) if node in nodes else [node])
    ]
    return replace(graph, nodes=tuple(made))


def fresh(value: Value, dtype: DType, taken: set[str]) -> Value:
    """A value for what a value is in another type, of a name that is not taken, and then is."""
    base, number = value.name.partition("~")[0], 1
    while f"{base}~{number}" in taken:
        number += 1
    taken.add(f"{base}~{number}")
    return Value(f"{base}~{number}", value.type.with_dtype(dtype))


def _wide(node: Node, taken: set[str]) -> list[Node]:
    def wide(value: Value) -> Value:
        return fresh(value, DType.float32, taken)

    def cast(value: Value, result: Value) -> Node:
        return Node("cast", (value,), (result,), {"dtype": result.type.dtype}, node.location)

    inputs = {v: wide(v) for v in dict.fromkeys(node.inputs) if v.type.dtype in NARROW}
    outputs = {v: wide(v) for v in node.outputs if v.type.dtype in NARROW}
    run = node.map_values(lambda v: inputs.get(v, v))
    run = replace(run, outputs=tuple(outputs.get(v, v) for v in node.outputs))
    before = [cast(value, widened) for value, widened in inputs.items()]
    return [*before, run, *(cast(widened, value) for value, widened in outputs.items())]
