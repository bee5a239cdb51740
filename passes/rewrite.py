"""The engine: applies rules until none applies, and collects near-misses.

May import: draft, rule, region, pattern, ops, ir.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError
from tfgraph.ops import Builder
from tfgraph.passes.draft import Draft
from tfgraph.passes.pattern import NoMatch, Search
from tfgraph.passes.region import Region

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from tfgraph.errors import Location
    from tfgraph.ir import Graph, Node, Value
    from tfgraph.passes.rule import Match, Rule


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
    regions: list[Region] | None = None
    """What rules replaced, in order; None where something else changed the graph."""


_most: ContextVar[int | None] = ContextVar("most", default=None)


@contextmanager
def at_most(applications: int) -> Generator[None]:
    """Inside, `apply_rules` stops after so many applications: who looks for a wrong one repeats a
    pass with fewer."""
    token = _most.set(applications)
    try:
        yield
    finally:
        _most.reset(token)


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
    regions: list[Region] = []
    limit = 100 * len(graph.nodes) + 1000
    start, most = 0, _most.get()
    while True:
        if len(regions) == most:
            return Rewrites(draft.graph() if applied else graph, applied, [], regions)
        found, declined = _first(draft, by_op, start)
        if found is not None:
            rule, start, region = found
            regions.append(region)
            applied[rule.name] = applied.get(rule.name, 0) + 1
            if sum(applied.values()) == limit:
                raise TfgraphError(f"rule {rule.name} applies forever", rule.location)
        elif start:  # a change may let a rule apply further up: once more from the front
            draft, start = Draft(draft.graph()), 0
        else:  # nothing applies in the whole graph
            changed = draft.graph() if applied else graph
            return Rewrites(changed, applied, declined, regions)


def _first(
    draft: Draft, by_op: Mapping[str, Sequence[Rule]], start: int
) -> tuple[tuple[Rule, int, Region] | None, list[Declined]]:
    """Apply the first rule that applies at or after node `start`. Returns it with the index to go
    on from, or None; and the near-misses on the way.

    A pattern looks backwards from its root, so what stands before the new nodes is unchanged.
    """
    declined: list[Declined] = []
    for node in draft.nodes[start:]:
        for rule in by_op.get(node.op, ()):
            changed, reason = _try(draft, node, rule)
            if changed is not None:
                return (rule, *changed), declined
            if reason:
                at = f"%{node.outputs[-1].name} = {node.op}"
                declined.append(Declined(rule.name, at, reason, node.location))
    return None, declined


def _try(draft: Draft, node: Node, rule: Rule) -> tuple[tuple[int, Region] | None, str]:
    """Apply the rule at `node`. Returns the index from which the nodes changed, and what was
    replaced; or None, and the reason if it was a near-miss."""
    search = Search(draft)
    reason = ""
    for match in rule.matches(draft, node, search):
        builder = Builder("rewrite", prefix="new ")
        try:
            replaced = rule.checked(rule.replace(match, builder))
            region = _region(draft, rule, match, builder.nodes, replaced)
            return (draft.splice(node, builder.nodes, replaced), region), ""
        except NoMatch as declined:
            reason = reason or str(declined)
    if not reason and search.depth >= rule.near:
        reason = search.reason
    return None, reason


def _region(
    draft: Draft, rule: Rule, match: Match, made: Sequence[Node], replaced: Mapping[Value, Value]
) -> Region:
    """What is replaced; constants that it reads belong to it, since a rule may look at them."""
    matched = [*(node for node, _ in match.state.nodes), *match.seen.values()]
    read = [value for node in (*matched, *made) for value in node.inputs]
    sources = [draft.producer[v] for v in dict.fromkeys(read) if v in draft.producer]
    constants = [node for node in sources if not node.inputs]
    nodes = (*constants, *matched)
    return Region(rule.name, rule.location, nodes, tuple(made), replaced, rule.reads)
