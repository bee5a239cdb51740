"""A graph while rules rewrite it: who makes and who reads each value is kept up to date, so that a
rewrite costs about what it touches.

It keeps the nodes in order and the names of replaced values, and refuses a rewrite that would make
a cycle. May import: pattern, ir.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfgraph.ir import Node, Output, Value
from tfgraph.passes.pattern import NoMatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfgraph.ir import Graph


class Draft:
    """The nodes of a graph that its outputs depend on, open to change.

    Unlike a graph's, its maps change with it: `producer` (inputs and parameters have none) and
    `users` (each node once; in order as long as nothing has changed).
    """

    def __init__(self, graph: Graph) -> None:
        pruned = prune(graph)
        self._graph = pruned
        self.nodes = list(pruned.nodes)
        self.outputs = pruned.outputs
        self.output_values = pruned.output_values
        self.param_values = pruned.param_values
        self.producer: dict[Value, Node] = {}
        self.users: dict[Value, list[Node]] = {}
        self._names = {v.name for v in (*self._inputs(), *self.param_values)}
        for node in self.nodes:
            self._link(node)

    def graph(self) -> Graph:
        """The graph as it stands, without parameters that nobody reads any more."""
        params = tuple(
            p
            for p in self._graph.params
            if self.users.get(p.value) or p.value in self.output_values
        )
        return replace(self._graph, nodes=tuple(self.nodes), params=params, outputs=self.outputs)

    def splice(self, root: Node, made: Sequence[Node], new: Mapping[Value, Value]) -> int:
        """Put the nodes `made` before `root`, and each value of `new` in place of its key, which
        a node at or before the root makes. Nodes that nobody reads any more go.

        Returns the index from which the nodes differ. Raises NoMatch, with nothing changed, if the
        result would be a cycle.
        """
        final = self._final_names(root, made, new)
        gone = {id(self.producer[old]): self.producer[old] for old in new}
        touched = {
            id(node): node
            for value in final
            for node in (*self._made_by(value), *self.users.get(value, ()))
            if id(node) not in gone
        }
        again = {key: renamed(node, final) for key, node in touched.items()}

        def kept(nodes: Iterable[Node]) -> list[Node]:
            return [again.get(id(n), n) for n in nodes if id(n) not in gone]

        last = next(i for i, node in enumerate(self.nodes) if node is root)
        first = next(i for i, n in enumerate(self.nodes) if id(n) in gone)
        added = [renamed(node, final) for node in made]
        window = _in_order([*kept(self.nodes[first:last]), *added])

        before = kept(self.nodes[:first])
        self.nodes = [*before, *window, *kept(self.nodes[last:])]
        for node in (*gone.values(), *touched.values()):
            self._unlink(node)
        for node in (*added, *again.values()):
            self._link(node)
        self.outputs = tuple(Output(o.name, final.get(o.value, o.value)) for o in self.outputs)
        self.output_values = frozenset(o.value for o in self.outputs)
        unread = self._drop_unread([*added, *self._producers(gone.values())])
        return sum(1 for node in before if id(node) not in unread)

    def _final_names(
        self, root: Node, made: Sequence[Node], new: Mapping[Value, Value]
    ) -> dict[Value, Value]:
        """What each new value, and each old one that changes its name or gives way, is from now on.

        A new value takes the name of the one that it replaces; further new values are called
        `root~number`. An old value that replaces another keeps its name or takes the other's,
        whichever says more: a label, then a number, then a name made by a pass.
        """
        fresh = [value for node in made for value in node.outputs]
        final: dict[Value, Value] = {}
        for old, value in new.items():
            if value in final:  # it replaces two
                final[old] = final[value]
            elif value in fresh or (value in self.producer and says(value) < says(old)):
                final[value] = old
            else:
                final[old] = value
        base = root.outputs[-1].name.partition("~")[0]
        number = len(final)
        for value in fresh:
            if value not in final:
                while f"{base}~{number}" in self._names:
                    number += 1
                final[value] = Value(f"{base}~{number}", value.type)
                number += 1
        return final

    def _drop_unread(self, suspects: list[Node]) -> dict[int, Node]:
        """Remove those of the nodes that nobody reads, and what only they read; they by id."""
        unread: dict[int, Node] = {}
        while suspects:
            node = suspects.pop()
            if id(node) not in unread and not any(map(self._is_read, node.outputs)):
                unread[id(node)] = node
                self._unlink(node)
                suspects += self._producers([node])
        self.nodes = [node for node in self.nodes if id(node) not in unread]
        return unread

    def _is_read(self, value: Value) -> bool:
        return bool(self.users.get(value)) or value in self.output_values

    def _producers(self, nodes: Iterable[Node]) -> list[Node]:
        return [made for node in nodes for value in node.inputs for made in self._made_by(value)]

    def _made_by(self, value: Value) -> tuple[Node, ...]:
        node = self.producer.get(value)
        return () if node is None else (node,)

    def _link(self, node: Node) -> None:
        for value in node.outputs:
            self.producer[value] = node
            self._names.add(value.name)
        for value in dict.fromkeys(node.inputs):
            self.users.setdefault(value, []).append(node)

    def _unlink(self, node: Node) -> None:
        for value in node.outputs:
            del self.producer[value]
            self._names.discard(value.name)
        for value in dict.fromkeys(node.inputs):
            self.users[value] = [user for user in self.users[value] if user is not node]

    def _inputs(self) -> list[Value]:
        return [item.value for item in self._graph.inputs]


def prune(graph: Graph) -> Graph:
    """Without nodes whose results nobody reads, and without parameters that nobody reads."""
    live: set[Value] = set(graph.output_values)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if not live.isdisjoint(node.outputs):
            kept.append(node)
            live.update(node.inputs)
    params = tuple(p for p in graph.params if p.value in live)
    if len(kept) == len(graph.nodes) and len(params) == len(graph.params):
        return graph
    return replace(graph, nodes=tuple(reversed(kept)), params=params)


def says(value: Value) -> int:
    """How much a name tells a reader: `layers.0.context`, then `12`, then `12~1`."""
    return 0 if "~" in value.name else 1 if value.name.isdigit() else 2


def renamed(node: Node, final: Mapping[Value, Value]) -> Node:
    """The node with the values of `final` in place of their keys."""

    def name(value: Value) -> Value:
        return final.get(value, value)

    return replace(node.map_values(name), outputs=tuple(map(name, node.outputs)))


def _in_order(nodes: list[Node]) -> list[Node]:
    """The nodes so that each follows what it reads, otherwise as they stand. Raises NoMatch for a
    cycle, naming its path."""
    position = {value: i for i, node in enumerate(nodes) for value in node.outputs}
    if all(position.get(v, -1) < i for i, node in enumerate(nodes) for v in node.inputs):
        return nodes
    import networkx

    order: networkx.DiGraph[int] = networkx.DiGraph()
    order.add_nodes_from(range(len(nodes)))
    order.add_edges_from(
        (position[v], i) for i, node in enumerate(nodes) for v in node.inputs if v in position
    )
    try:
        return [nodes[i] for i in networkx.lexicographical_topological_sort(order)]
    except networkx.NetworkXUnfeasible:
        edges: list[tuple[int, int]] = list(networkx.find_cycle(order))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        cycle = [nodes[a].outputs[0] for a, _ in edges]
        path = " -> ".join(map(str, [*cycle, cycle[0]]))
        raise NoMatch(f"the fused op would need its own result: {path}") from None
