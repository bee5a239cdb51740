"""cse and dce: each value computed once, and only if somebody reads it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfgraph.ir import Output, Value
from tfgraph.ops import find_op
from tfgraph.passes.draft import prune, renamed, says
from tfgraph.passes.pipeline import Pass, register_pass
from tfgraph.passes.rewrite import Rewrites

if TYPE_CHECKING:
    from tfgraph.ir import Graph, Node


def same_result(node: Node) -> object:
    """What is equal of nodes that compute the same: the op, its operands and attributes."""
    operands = node.operands
    if find_op(node.op).commutative:
        operands = tuple(sorted(operands, key=str))
    return (node.op, operands, tuple(node.attrs.items()))


@register_pass
class CommonSubexpressions(Pass):
    """Nodes that apply the same op to the same operands become one: the first, under its name or
    that of the one that says more (a label, rather than a number)."""

    name = "cse"

    def run(self, graph: Graph) -> Rewrites:
        """Every op is a function of its operands, so equal nodes have equal results."""
        first: dict[object, Node] = {}
        same: dict[Value, Value] = {}
        nodes: list[Node] = []
        for node in graph.nodes:
            node = node.map_values(lambda v: same.get(v, v))
            known = first.setdefault(same_result(node), node)
            if known is node:
                nodes.append(node)
            else:
                same.update(zip(node.outputs, known.outputs, strict=True))
        if not same:
            return Rewrites(graph)
        final: dict[Value, Value] = {}
        for gone, kept in same.items():
            if says(gone) > says(final.get(kept, kept)):
                final[kept] = gone
        nodes = [renamed(node, final) for node in nodes]
        same = {gone: final.get(kept, kept) for gone, kept in same.items()} | final
        outputs = tuple(Output(o.name, same.get(o.value, o.value)) for o in graph.outputs)
        merged = replace(graph, nodes=tuple(nodes), outputs=outputs)
        return Rewrites(merged, {"merged": len(graph.nodes) - len(nodes)})


@register_pass
class DeadCode(Pass):
    """Nodes and parameters that no output depends on are removed."""

    name = "dce"

    def run(self, graph: Graph) -> Rewrites:
        """Ops have no effects, so an unread result is not needed."""
        pruned = prune(graph)
        removed = len(graph.nodes) - len(pruned.nodes)
        return Rewrites(pruned, {"removed": removed} if removed else {})
