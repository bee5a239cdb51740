"""Parts of a graph: what makes one output; a kernel alone, with the weights that it reads.

May import: ir.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tfgraph.ir import Fill, Graph, Input, Node, Output, Symbol, Value
from tfgraph.ir.graph import dims_of


def untold(graph: Graph, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes that no input's shape tells."""
    told = {str(d) for i in graph.inputs for d in i.value.type.shape}
    used = graph.symbols
    return {s.name: sizes[s.name] for s in used if s.name not in told and s.name in sizes}


def only(graph: Graph, output: str) -> Graph:
    """The part of the graph that makes one output."""
    (chosen,) = (o for o in graph.outputs if o.name == output)
    needed = {chosen.value}
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            nodes.append(node)
            needed.update(node.inputs)
    return replace(
        graph,
        inputs=tuple(i for i in graph.inputs if i.value in needed),
        params=tuple(p for p in graph.params if p.value in needed),
        nodes=tuple(reversed(nodes)),
        outputs=(chosen,),
    )


@dataclass(frozen=True)
class Kernel:
    """A node alone: `graph` has the values that it reads as inputs and its results as outputs, both
    under their names. What it reads through slices, which kernels do in place, it slices itself;
    weights that are computed are computed in it."""

    node: Node
    graph: Graph

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the values that it reads."""
        return tuple(i.value.name for i in self.graph.inputs)

    @property
    def place(self) -> str | None:
        """Where the user's file has it."""
        return str(self.node.location) if self.node.location else None


def kernels(graph: Graph) -> Iterator[Kernel]:
    """Every node that runs, in order. Those that compute weights run when an artifact is made, and
    are left out unless what they compute is an output."""
    for node in graph.nodes:
        known = graph.weight_values.issuperset(node.outputs)
        if not known or not graph.output_values.isdisjoint(node.outputs):
            yield Kernel(node, alone(graph, node))


def alone(graph: Graph, node: Node) -> Graph:
    """The node, what computes its weights, and the slices that it reads; the rest is given."""
    needed: set[Value] = set(node.inputs)
    nodes = [node]
    for other in reversed(graph.nodes):
        known = graph.weight_values.issuperset(other.outputs)
        if needed.isdisjoint(other.outputs) or not (known or _is_window(other, node)):
            continue
        nodes.append(other)
        needed.update(other.inputs)
    made = {value for other in nodes for value in other.outputs}
    fills = {i.value: i for i in graph.inputs}
    given = [v for n in reversed(nodes) for v in n.inputs]
    given = [v for v in dict.fromkeys(given) if v not in made and v not in graph.param_values]
    return replace(
        graph,
        inputs=tuple(fills.get(v, Input(v, Fill("zeros"))) for v in given),
        params=tuple(p for p in graph.params if p.value in needed),
        nodes=tuple(reversed(nodes)),
        outputs=tuple(Output(v.name, v) for v in node.outputs),
        symbols=_used(graph, nodes),
        constraints=(),
    )


def _is_window(node: Node, reader: Node) -> bool:
    return node.op == "slice" and reader.op != "slice" and node.outputs[0] in reader.inputs


def _used(graph: Graph, nodes: Sequence[Node]) -> tuple[Symbol, ...]:
    """The symbols that the nodes' types and attributes name."""
    used: set[str] = set()
    for node in nodes:
        types = [d for v in (*node.inputs, *node.outputs) for d in v.type.shape]
        inside = [d for a in (*node.attrs.values(), *node.operands) for d in dims_of(a)]
        used |= {name for d in (*types, *inside) for name in d.symbols}
    return tuple(s for s in graph.symbols if s.name in used)
