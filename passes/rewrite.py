"""The engine: applies rules until none applies, and collects near-misses.

It keeps the graph in order, the names of replaced values, and refuses a rewrite that would make a
cycle. May import: rule, pattern, ops, ir.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError
from tfgraph.ir import Node, Output, Value
from tfgraph.ops import Builder
from tfgraph.passes.pattern import NoMatch, Search

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfgraph.errors import Location
    from tfgraph.ir import Graph
    from tfgraph.passes.rule import Rule


@dataclass(frozen=True)
class Declined:
    """A place where a rule nearly applied, and why it did not."""

    rule: str
    at: str
    reason: str
    location: Location | None = None


@dataclass
class Rewrites:
    """What a set of rules did to a graph."""

    graph: Graph
    applied: dict[str, int] = field(default_factory=dict)
    declined: list[Declined] = field(default_factory=list)


def apply_rules(graph: Graph, rules: Sequence[Rule]) -> Rewrites:
    """Apply rules, in order of the graph, until none applies."""
    result = Rewrites(graph)
    limit = 100 * len(graph.nodes) + 1000
    start, changed = 0, True
    while start or changed:
        step = _first(result.graph, rules, start)
        if step is None:  # at the end: once more from the front, unless nothing changed since then
            start, changed = 0, changed and start > 0
            continue
        rule, result.graph, start = step
        changed = True
        result.applied[rule.name] = result.applied.get(rule.name, 0) + 1
        limit -= 1
        if not limit:
            raise TfgraphError(f"rule {rule.name} applies forever", rule.location)
    result.declined = _near_misses(result.graph, rules)
    return result


def _first(graph: Graph, rules: Sequence[Rule], start: int) -> tuple[Rule, Graph, int] | None:
    """The first rule that applies at or after node `start`, the graph after it, and where to go
    on. A pattern looks backwards from its root, so what is before the new nodes stays as it is."""
    for i in range(start, len(graph.nodes)):
        for rule in rules:
            if graph.nodes[i].op in rule.pattern.ops:
                rewritten, _ = _try(graph, graph.nodes[i], rule)
                if rewritten is not None:
                    old = {node.outputs for node in graph.nodes[:i]}
                    unchanged = 0
                    for node in rewritten.nodes:
                        if node.outputs not in old:
                            break
                        unchanged += 1
                    return rule, rewritten, max(unchanged, 1)
    return None


def _try(graph: Graph, node: Node, rule: Rule) -> tuple[Graph | None, str]:
    """The graph after the rule at `node`; or None, and the reason if it was a near-miss."""
    search = Search(graph)
    reason = ""
    for match in rule.matches(graph, node, search):
        builder = Builder("rewrite", prefix="new ")
        try:
            new = rule.replace(match, builder)
            return _splice(graph, node, builder.nodes, new), ""
        except NoMatch as declined:
            reason = str(declined) or reason
        except TfgraphError as refused:  # the fused op does not take these operands
            reason = refused.message
    if not reason and search.depth >= rule.near:
        reason = search.reason
    return None, reason


def _near_misses(graph: Graph, rules: Sequence[Rule]) -> list[Declined]:
    found: list[Declined] = []
    for node in graph.nodes:
        for rule in rules:
            if node.op in rule.pattern.ops:
                _, reason = _try(graph, node, rule)
                if reason:
                    at = f"%{node.outputs[-1].name} = {node.op}"
                    found.append(Declined(rule.name, at, reason, node.location))
    return found


def _splice(
    graph: Graph, root: Node, made: Sequence[Node], new: Mapping[Value, Value]
) -> Graph:
    """Put new nodes in place of old values. What replaces a value takes its name, unless that has
    a name of the user's graph already; further new values are called `root~number`. Unused nodes
    go."""
    fresh = {v for node in made for v in node.outputs}
    names: dict[Value, Value] = {}
    moved: dict[Value, Value] = {}
    for old, value in new.items():
        if old.type != value.type:
            raise TfgraphError(f"a rule replaced {old}: {old.type} by {value.type}", root.location)
        if value in fresh and value not in names:
            names[value] = old
        elif "~" in value.name and "~" not in old.name and value in graph.producer:
            moved[value] = old
        else:
            moved[old] = names.get(value, value)
    taken = {value.name for value in graph.values()}
    base = root.outputs[-1].name.partition("~")[0]

    def rename(value: Value) -> Value:
        if value not in fresh:
            return moved.get(value, value)
        if value not in names:
            number = len(names)
            while f"{base}~{number}" in taken:
                number += 1
            taken.add(f"{base}~{number}")
            names[value] = Value(f"{base}~{number}", value.type)
        return names[value]

    added = [_renamed(n, rename) for n in made]
    replaced = set(new)
    kept = [
        n if moved.keys().isdisjoint((*n.inputs, *n.outputs)) else _renamed(n, rename)
        for n in graph.nodes
        if replaced.isdisjoint(n.outputs)
    ]
    at = next(i for i, n in enumerate(graph.nodes) if n == root)
    before = sum(1 for n in graph.nodes[:at] if replaced.isdisjoint(n.outputs))
    nodes = _in_order([*kept[:before], *added, *kept[before:]])
    outputs = tuple(Output(o.name, rename(o.value)) for o in graph.outputs)
    return prune(replace(graph, nodes=tuple(nodes), outputs=outputs))


def _renamed(node: Node, rename: Callable[[Value], Value]) -> Node:
    return replace(node.map_values(rename), outputs=tuple(map(rename, node.outputs)))


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
        cycle = [nodes[a].outputs[0].name for a, _ in networkx.find_cycle(order)]
        path = " -> ".join(f"%{name}" for name in [*cycle, cycle[0]])
        raise NoMatch(f"the fused op would need its own result: {path}") from None


def prune(graph: Graph) -> Graph:
    """Without nodes whose results nobody reads, and without parameters that nobody reads."""
    live: set[Value] = set(graph.output_values)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if not live.isdisjoint(node.outputs):
            kept.append(node)
            live.update(node.inputs)
    params = tuple(p for p in graph.params if p.value in live)
    return replace(graph, nodes=tuple(reversed(kept)), params=params)
