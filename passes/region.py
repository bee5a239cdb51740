"""What a rule replaced and by what, as two small graphs over the values at the border.

May import: ir.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfgraph.ir import Graph, Input, Node, Output, Param, Value
from tfgraph.ir.graph import dims_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tfgraph.errors import Location


@dataclass(frozen=True)
class Region:
    """One application of a rule: the nodes that it matched, those it made, and which of their
    values stands for which."""

    rule: str
    location: Location | None
    matched: tuple[Node, ...]
    made: tuple[Node, ...]
    replaced: Mapping[Value, Value]
    reads: str = ""
    """What the rule takes for something that it nearly is, see `Rule.reads`."""

    def graphs(self, graph: Graph) -> tuple[Graph, Graph]:
        """Before and after, with the same inputs, named by their order: equal regions are equal
        graphs. `graph` tells ranges and constraints of the symbols."""
        before = _graph(graph, self.matched, tuple(self.replaced))
        after = _graph(graph, (*self.matched, *self.made), tuple(self.replaced.values()))
        border = dict.fromkeys(i.value for g in (before, after) for i in g.inputs)
        names = {value: Value(f"x{i}", value.type) for i, value in enumerate(border)}
        return _renamed(before, names), _renamed(after, names)


def _graph(graph: Graph, nodes: Sequence[Node], results: Sequence[Value]) -> Graph:
    """The nodes that the results need, in order; what they do not make is given."""
    producer = {value: node for node in nodes for value in node.outputs}
    order: dict[tuple[Value, ...], Node] = {}
    inputs: dict[Value, None] = {}

    def visit(values: Iterable[Value]) -> None:
        for value in values:
            node = producer.get(value)
            if node is None:
                inputs[value] = None
            elif node.outputs not in order:
                visit(node.inputs)
                order[node.outputs] = node

    visit(results)
    used = {s for node in order.values() for s in _symbols(node)}
    return Graph(
        name="region",
        inputs=tuple(Input(value) for value in inputs),
        params=(),
        nodes=tuple(order.values()),
        outputs=tuple(Output(f"y{i}", value) for i, value in enumerate(results)),
        symbols=tuple(s for s in graph.symbols if s.name in used),
        constraints=tuple(
            c for c in graph.constraints if (c.left.symbols | c.right.symbols) <= used
        ),
    )


def _symbols(node: Node) -> Iterator[str]:
    """The symbols that a node's types and attributes name."""
    for value in (*node.inputs, *node.outputs):
        for dim in value.type.shape:
            yield from dim.symbols
    for part in (*node.attrs.values(), *node.operands):
        for dim in dims_of(part):
            yield from dim.symbols


def _renamed(graph: Graph, names: Mapping[Value, Value]) -> Graph:
    """All border values as inputs, whether this side reads them or not; others numbered."""
    known = dict(names)

    def name(value: Value) -> Value:
        return known.setdefault(value, Value(str(len(known)), value.type))

    nodes = tuple(
        replace(n.map_values(name), outputs=tuple(map(name, n.outputs)), location=None)
        for n in graph.nodes
    )
    return replace(
        graph,
        inputs=tuple(Input(value) for value in names.values()),
        nodes=nodes,
        outputs=tuple(Output(o.name, name(o.value)) for o in graph.outputs),
    )


def as_inputs(graph: Graph, params: Sequence[Param]) -> Graph:
    """The graph with its parameters as inputs, those that it no longer reads among them."""
    return replace(graph, inputs=(*graph.inputs, *(Input(p.value) for p in params)), params=())
