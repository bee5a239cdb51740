"""A graph taken apart: each kernel reads inputs of the graph, and each result is an output.

So one program runs every kernel alone, on whatever inputs are given: those of the reference. May
import: ir.
"""

from __future__ import annotations

from dataclasses import replace

from tfgraph.ir import Fill, Graph, Input, Node, Output, Value


def apart(graph: Graph) -> Graph:
    """Each node alone. Inputs have the names of the values that nodes read; the outputs, those of
    the values that nodes make. What weights alone make stays, as it is known at compile time."""
    weights = graph.weight_values
    nodes: list[Node] = []
    read: dict[Value, None] = {}
    outputs: list[Output] = []
    for node in graph.nodes:
        if weights.issuperset(node.outputs):
            nodes.append(node)
            continue
        read |= dict.fromkeys(v for v in node.inputs if v not in weights)
        made = {v: Value(f"{v.name}'", v.type) for v in node.outputs}
        nodes.append(replace(node, outputs=tuple(made.values())))
        outputs += [Output(v.name, result) for v, result in made.items()]
    return replace(
        graph,
        inputs=tuple(Input(v, Fill("zeros")) for v in read),
        nodes=tuple(nodes),
        outputs=tuple(outputs),
        constraints=(),
    )
