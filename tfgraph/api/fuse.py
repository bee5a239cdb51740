"""The passes over a graph, and the taps beside what they made. May import: backends.base, passes,
ops, ir, errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from tfgraph.backends.base import Target
from tfgraph.ir import Graph
from tfgraph.ops import verify as verify_graph
from tfgraph.passes import (
    Pass,
    PassReport,
    Tap,
    find_taps,
    parse_pipeline,
    run_pipeline,
    tap_fused,
    with_taps,
)
from tfgraph.passes.proof import READ, Proof, prove_pipeline
from tfgraph.passes.recover_masks import LEAST

AfterPass = Callable[[Pass, Graph, Graph], None]


@dataclass(frozen=True)
class Fused:
    """A graph before and after the passes, both with the tapped values as outputs; `tap_nodes` of
    the nodes after them are there for the taps alone."""

    graph: Graph
    compiled: Graph
    passes: list[PassReport]
    taps: tuple[Tap, ...] = ()
    tap_nodes: int = 0
    proof: Proof | None = None
    """Of all that: how sure it is that both mean the same; None where nobody asked."""

    @property
    def changes_empty_rows(self) -> bool:
        """Whether rows with no allowed key became zeros, which they were not in what was read."""
        return any(LEAST in report.reads for report in self.passes)


def fuse(
    graph: Graph,
    target: Target,
    passes: str,
    after: AfterPass | None = None,
    tap: str | Sequence[str] = (),
    prove: bool = False,
) -> Fused:
    """The graph, verified, and what the passes make of it: for the reference, which runs what was
    written, nothing. Taps change nothing of that, but are added to it. With `prove` all of it must
    mean what the graph means, else it raises Refuted."""
    verify_graph(graph)
    taps = find_taps(graph, tap)
    fused, reports = graph, list[PassReport]()
    if target.name != "numpy":
        fused, reports = run_pipeline(graph, parse_pipeline(passes), after, prove)
    compiled, taps = tap_fused(graph, fused, taps)
    nodes = len(compiled.nodes) - len(fused.nodes)
    tapped = with_taps(graph, taps)
    proof = _proof(reports, tapped, compiled) if prove else None
    return Fused(tapped, compiled, reports, taps, nodes, proof)


def _proof(reports: Sequence[PassReport], before: Graph, after: Graph) -> Proof:
    """That of the weakest pass, and of the whole where it was drawn; not where something was read
    for what it nearly is."""
    found = [report.proof for report in reports if report.proof is not None]
    if all(proof.kind != READ for proof in found):
        whole = prove_pipeline(before, after)
        found += [whole] if whole else []
    return reduce(Proof.and_then, found, Proof())
