"""Checks that a pass changed nothing but the form: exactly, without a tolerance.

What a rule replaced and what it put there are compared as two small graphs, on fresh inputs at
their border; equal regions are checked once, so that a model's depth costs nothing. Four kinds:

- PROVED: both are the same nodes, composite ops taken apart, for all sizes.
- FIELD-TESTED: both give equal numbers in a finite field, at three sizes or more, with the
  probability that different ones would have too (see `tfgraph.ops.field`).
- TESTED: both agree in float64 within its rounding, where a field has no meaning for an op.
- READ: what an exporter wrote is taken for what it nearly is, a rounded constant or the least
  number of a type. Nothing is checked here; the artifact is verified against what was written.

May import: region, structure, samples, pipeline, text, ops, ir, cache.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tfgraph.cache import active
from tfgraph.errors import CheckFailed
from tfgraph.ir import product
from tfgraph.ops.field import NotInField
from tfgraph.passes.region import as_inputs
from tfgraph.passes.samples import agree_in_field, agree_in_floats
from tfgraph.passes.structure import same_structure
from tfgraph.text import parse_graph, print_graph

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfgraph.ir import Graph
    from tfgraph.passes.region import Region
    from tfgraph.passes.rewrite import Rewrites

PROVED, FIELD_TESTED, TESTED, READ = KINDS = "PROVED", "FIELD-TESTED", "TESTED", "READ"
"""From the strongest to the weakest."""

ERROR = 2.0**-60
"""Draws go on until the probability of a wrong verdict is below this."""

_KIND = "proofs"  # in the cache
_HINT = "--print-after all shows what it does; --no-prove compiles nonetheless"
WHOLE = 10_000_000
"""Parameters up to which a whole graph is drawn."""


@dataclass(frozen=True)
class Proof:
    """How sure it is that a pass kept what the graph means. `error`: the probability that the
    check would not have seen a difference, None where it is not known; `opaque`: the functions
    that took part as random ones."""

    kind: str = PROVED
    error: float | None = 0.0
    opaque: tuple[str, ...] = ()

    def and_then(self, other: Proof) -> Proof:
        """The weaker kind; errors add up."""
        known = self.error is not None and other.error is not None
        error = (self.error or 0.0) + (other.error or 0.0) if known else None
        kind = max(self.kind, other.kind, key=KINDS.index)
        return Proof(kind, error, tuple(sorted({*self.opaque, *other.opaque})))

    def to_json(self) -> dict[str, Any]:
        """The object in `compile --json`."""
        return {"kind": self.kind, "error": self.error, "opaque": list(self.opaque)}

    def __str__(self) -> str:
        if self.kind == PROVED:
            return "proved for all sizes"
        if self.kind == READ:
            return "but what was read for what it nearly is"
        if self.error is None:
            return "tested in float64"
        power = math.ceil(math.log2(self.error)) if self.error else -1074
        return f"field-tested, chance of error below 2^{power}"


class Refuted(CheckFailed):
    """A rewrite changes what the graph means."""


def prove_regions(graph: Graph, regions: Iterable[Region]) -> Proof:
    """Each application of a rule. Raises Refuted, at the rule, for one that changes a result."""
    proof = Proof()
    for region in regions:
        if region.reads:
            proof = proof.and_then(Proof(READ, None))
            continue
        before, after = (print_graph(g) for g in region.graphs(graph))
        found = _prove(before, after)
        if isinstance(found, str):
            raise Refuted(
                f"rule {region.rule} changes what it replaces: {found}",
                region.location,
                _HINT,
            )
        proof = proof.and_then(found)
    return proof


def prove_pass(name: str, before: Graph, result: Rewrites) -> Proof:
    """What a pass did to a graph: the regions of its rules, or else the whole of it. Raises
    Refuted."""
    if result.regions is not None:
        return prove_regions(before, result.regions)
    return prove_graphs(f"pass {name}", before, result.graph)


def prove_pipeline(before: Graph, after: Graph) -> Proof | None:
    """All passes at once, which tells that regions were put together right; None of a graph with
    more than `WHOLE` parameters. Raises Refuted."""
    sizes = (product(p.value.type.shape) for p in before.params)
    if sum(int(size) for size in sizes) > WHOLE:
        return None
    return prove_graphs("the pipeline", before, after)


def prove_graphs(what: str, before: Graph, after: Graph) -> Proof:
    """Two whole graphs of the same inputs and parameters. Raises Refuted, which says that `what`
    changes what the graph computes."""
    if before is after or same_structure(before, after):
        return Proof()
    found = _compare(*(as_inputs(graph, before.params) for graph in (before, after)))
    if isinstance(found, str):
        raise Refuted(f"{what} changes what the graph computes: {found}", hint=_HINT)
    return found


@lru_cache(maxsize=512)
def _prove(before: str, after: str) -> Proof | str:
    """Of two regions as text, which is the key of the cache; or how they differ."""
    graphs = parse_graph(before), parse_graph(after)
    return Proof() if same_structure(*graphs) else _compare(*graphs)


def _compare(before: Graph, after: Graph) -> Proof | str:
    """What an earlier compilation found of the same two graphs holds; else they are drawn."""
    cache, key = active(), (print_graph(before), print_graph(after))
    known = None if cache is None else cache.get(_KIND, *key)
    if known is not None:
        kind, error, opaque = json.loads(known)
        return Proof(kind, error, tuple(opaque))
    found = _drawn(before, after)
    if cache is not None and isinstance(found, Proof):
        cache.put(_KIND, json.dumps([found.kind, found.error, found.opaque]).encode(), *key)
    return found


def _drawn(before: Graph, after: Graph) -> Proof | str:
    try:
        found = agree_in_field(before, after, ERROR)
    except NotInField:
        return agree_in_floats(before, after) or Proof(TESTED, None)
    return found if isinstance(found, str) else Proof(FIELD_TESTED, *found)
