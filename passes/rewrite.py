"""The engine: applies rules until none applies, and collects near-misses.

May import: draft, rule, pattern, ops, ir.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError
from tfgraph.ops import Builder
from tfgraph.passes.draft import Draft
from tfgraph.passes.pattern import NoMatch, Search

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfgraph.errors import Location
    from tfgraph.ir import Graph, Node
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
    applied: dict[str, int] = field(default_factory=dict[str, int])
    declined: list[Declined] = field(default_factory=list[Declined])


def apply_rules(graph: Graph, rules: Sequence[Rule]) -> Rewrites:
    """Apply rules, in order of the graph, until none applies.

    Nodes that no output depends on neither match nor hinder. Raises TfgraphError, at the rule's
    place, for a rule that names an unknown op, applies forever or whose result does not fit.
    """
    by_op: dict[str, list[Rule]] = {}
    for rule in rules:
        rule.check_ops()
        for op in rule.pattern.ops:
            by_op.setdefault(op, []).append(rule)
    draft = Draft(graph)
    applied: dict[str, int] = {}
    limit = 100 * len(graph.nodes) + 1000
    start = 0
    while True:
        found, declined = _first(draft, by_op, start)
        if found is not None:
            rule, start = found
            applied[rule.name] = applied.get(rule.name, 0) + 1
            if sum(applied.values()) == limit:
                raise TfgraphError(f"rule {rule.name} applies forever", rule.location)
        elif start:  # a change may let a rule apply further up: once more from the front
            draft, start = Draft(draft.graph()), 0
        else:  # nothing applies in the whole graph
            return Rewrites(draft.graph() if applied else graph, applied, declined)


def _first(
    draft: Draft, by_op: Mapping[str, Sequence[Rule]], start: int
) -> tuple[tuple[Rule, int] | None, list[Declined]]:
    """Apply the first rule that applies at or after node `start`. Returns it with the index to go
    on from, or None; and the near-misses on the way.

    A pattern looks backwards from its root, so what stands before the new nodes is unchanged.
    """
    declined: list[Declined] = []
    for node in draft.nodes[start:]:
        for rule in by_op.get(node.op, ()):
            changed, reason = _try(draft, node, rule)
            if changed is not None:
                return (rule, changed), declined
            if reason:
                at = f"%{node.outputs[-1].name} = {node.op}"
                declined.append(Declined(rule.name, at, reason, node.location))
    return None, declined


def _try(draft: Draft, node: Node, rule: Rule) -> tuple[int | None, str]:
    """Apply the rule at `node`. Returns the index from which the nodes changed; or None, and the
    reason if it was a near-miss."""
    search = Search(draft)
    reason = ""
    for match in rule.matches(draft, node, search):
        builder = Builder("rewrite", prefix="new ")
        try:
            replaced = rule.replace(match, builder)
            return draft.splice(node, builder.nodes, rule.checked(replaced)), ""
        except NoMatch as declined:
            reason = reason or str(declined)
    if not reason and search.depth >= rule.near:
        reason = search.reason
    return None, reason
