"""Which pass, and which of its rules, first changes what a graph computes.

After every pass the reference runs on the same inputs, and what the pass did is checked exactly
(`passes.proof`), each application of a rule by itself. Where only the numbers tell, the pass is
repeated with fewer and fewer applications of its rules. May import: blame, bounds, comparison,
import_check, part, source, backends, passes, weights, ir, errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.api.blame import judge
from tfgraph.api.comparison import Divergence
from tfgraph.api.differ import carried
from tfgraph.api.empty_rows import as_written
from tfgraph.api.part import untold
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.errors import TfgraphError
from tfgraph.ops import verify
from tfgraph.passes import Pass, Rewrites, run_pass
from tfgraph.passes.proof import Proof, Refuted, prove_pass, prove_regions
from tfgraph.passes.recover_masks import LEAST
from tfgraph.passes.rewrite import at_most

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfgraph.api.bounds import Difference
    from tfgraph.backends.base import Weights
    from tfgraph.ir import Graph, Node
    from tfgraph.passes.region import Region

NDArray = np.ndarray[Any, Any]
Arrays = Mapping[str, NDArray]


@dataclass(frozen=True)
class Culprit:
    """What a wrong pass did first: the rule, where it is written, and the node that it replaced."""

    why: str
    rule: str = ""
    rule_place: str | None = None
    node: Node | None = None


@dataclass(frozen=True)
class Step:
    """One pass: whether it changed the graph, what the exact check says, the output that comes
    nearest to its bound, and what is wrong."""

    name: str
    changed: bool
    proof: Proof | None = None
    worst: Difference | None = None
    culprit: Culprit | None = None

    def to_json(self) -> dict[str, Any]:
        """The object under "passes"."""
        return {
            "name": self.name,
            "changed": self.changed,
            "proof": None if self.proof is None else self.proof.to_json(),
            "output": None if self.worst is None else self.worst.to_json(),
            "ok": self.culprit is None,
        }


@dataclass(frozen=True)
class Reference:
    """The graph as it was written, and what the reference gives for it."""

    graph: Graph
    weights: Weights
    feeds: Arrays
    sizes: Mapping[str, int]

    def outputs(self, graph: Graph) -> dict[str, NDArray]:
        """What the reference gives for a graph of the same inputs."""
        inputs = {i.value.name: self.feeds[i.value.name] for i in graph.inputs}
        run = NumpyExecutable(graph, self.weights)
        return run(dims=untold(graph, self.sizes), **inputs)

    @cached_property
    def want(self) -> Arrays:
        """What the graph gives."""
        return self.outputs(self.graph)

    def worst(self, graph: Graph, zeroed: bool) -> tuple[Difference | None, bool]:
        """The output of a rewritten graph that comes nearest to its bound; and whether all of them
        are right: none is worse than honest arithmetic. `zeroed` says that passes made rows with
        no allowed key zeros."""
        got = self.outputs(graph)
        if zeroed:
            got, _ = as_written(self.want, got, graph, self.weights, self.feeds, self.sizes)
        given = self.weights, self.feeds, self.sizes, ("numpy", "numpy")
        pairs = [(o.name, o.value, self.want[o.name], got[o.name]) for o in self.graph.outputs]
        found = carried(self.graph, *given, pairs)
        worst = max(found, key=lambda d: (not d.ok, d.severity), default=None)
        wrong = any(self._blamed(d, got[d.name]) for d in found if not d.ok)
        return worst, not wrong

    def keeps(self, graph: Graph, zeroed: bool) -> bool:
        """Whether a rewritten graph gives the same outputs."""
        return self.worst(graph, zeroed)[1]

    def _blamed(self, found: Difference, got: NDArray) -> bool:
        results = [("after", got)]
        judged = judge(self.graph, found.name, self.weights, self.sizes, self.feeds, results)
        return bool(judged.blamed)


def steps(reference: Reference, passes: Sequence[Pass]) -> Iterator[Step]:
    """Each pass in order, up to the first that is wrong."""
    graph, zeroed = reference.graph, False
    for item in passes:
        result = run_pass(item, graph)
        if result.graph is graph:
            yield Step(str(item), False)
            continue
        try:
            verify(result.graph)
        except TfgraphError as error:
            yield Step(str(item), True, culprit=Culprit(f"it leaves an invalid graph: {error}"))
            return
        culprit, proof = _proved(item, graph, result)
        zeroed = zeroed or any(region.reads == LEAST for region in result.regions or ())
        worst, right = reference.worst(result.graph, zeroed)
        if culprit is None and not right and worst is not None:
            said = f"output '{worst.name}' differs by {worst.max_abs:.2e}, bound {worst.bound:.2e}"
            culprit = _by_numbers(item, graph, result, reference, zeroed, said)
        yield Step(str(item), True, proof, worst, culprit)
        if culprit is not None:
            return
        graph = result.graph


def _proved(item: Pass, graph: Graph, result: Rewrites) -> tuple[Culprit | None, Proof | None]:
    """What the exact check says: the first application of a rule that it refutes, or a proof."""
    for region in result.regions or ():
        try:
            prove_regions(graph, [region])
        except Refuted as refuted:
            return _of_region(region, refuted.message), None
    try:
        return None, prove_pass(item.name, graph, result)
    except Refuted as refuted:
        return Culprit(refuted.message), None


def _by_numbers(
    item: Pass,
    graph: Graph,
    result: Rewrites,
    reference: Reference,
    zeroed: bool,
    said: str,
) -> Culprit:
    """The first application of a rule after which the numbers are wrong, by halving."""
    if not result.regions:
        return Culprit(said)
    right, wrong = 0, len(result.regions)
    while wrong - right > 1:
        middle = (right + wrong) // 2
        with at_most(middle):
            part = run_pass(item, graph).graph
        if reference.keeps(part, zeroed):
            right = middle
        else:
            wrong = middle
    return _of_region(result.regions[wrong - 1], said)


def _of_region(region: Region, said: str) -> Culprit:
    """The node that is named has the place in the user's file: the root, whose result it was."""
    roots = [n for n in region.matched if set(n.outputs) & set(region.replaced)]
    places = [n for n in (*roots, *region.matched) if n.location is not None]
    node = (places or [*roots, *region.matched])[0]
    return Culprit(said, region.rule, str(region.location) if region.location else None, node)


def first_wrong_pass(reference: Reference, passes: Sequence[Pass]) -> Divergence | None:
    """The first pass that changes what the graph computes; None if all are right."""
    for step in steps(reference, passes):
        if step.culprit is not None:
            return as_divergence(step)
    return None


def as_divergence(step: Step) -> Divergence:
    """A wrong pass as what `compare` reports."""
    culprit, worst = step.culprit, step.worst
    assert culprit is not None
    node = culprit.node
    place = node.location if node else None
    rule = f"rule {culprit.rule} ({culprit.rule_place}): " if culprit.rule else ""
    return Divergence(
        node.outputs[0].name if node else (worst.name if worst else ""),
        node.op if node else "",
        str(place) if place else None,
        None,
        worst.max_abs if worst else float("nan"),
        worst.bound if worst else 0.0,
        "pass",
        worst.worst_index if worst else (),
        f"pass {step.name}, {rule}{culprit.why}",
    )
