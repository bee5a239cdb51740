"""Compare two backends on the same inputs, and name the first culprit of a difference.

Each backend runs what it compiled as it is: nothing is tapped. What its kernels give in between is
replayed kernel by kernel (`replay`). Outputs beyond their bounds are judged by float64 (`blame`);
for a backend that is worse than honest arithmetic `diagnose` finds out why. May import: blame,
differ, comparison, diagnose, feeds, side, backends, ir, errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.api.blame import Judgement, judge
from tfgraph.api.comparison import Comparison, Divergence, Origin
from tfgraph.api.diagnose import diagnose
from tfgraph.api.differ import Triple, carried
from tfgraph.api.feeds import feed
from tfgraph.api.side import Side, open_side, reference_values
from tfgraph.backends.base import Weights
from tfgraph.errors import TfgraphError
from tfgraph.ir import DType, Graph, Value

if TYPE_CHECKING:
    from pathlib import Path

    from tfgraph.api.bounds import Difference
    from tfgraph.api.source import Source

NDArray = np.ndarray[Any, Any]


def compare(
    source: Source,
    backends: Sequence[str] = ("numpy", "cpu"),
    inputs: Mapping[str, NDArray] | None = None,
    *,
    weights: Weights | None = None,
    dims: Mapping[str, int] | None = None,
    passes: str | None = None,
    dtype: str | DType | None = None,
    seed: int = 0,
    threads: int | None = None,
    artifact: str | Path | None = None,
    intermediates: bool = True,
) -> Comparison:
    """Run two backends on the same inputs and compare outputs, and what they compute in between.
    `source` and `weights` are what `compile` takes; `onnxruntime` and `onnx-reference` are backends
    too, which run the exported graph, or the very file that an ONNX model was read from; with a
    `dtype`, see `compile`, the exported graph.

    Inputs left out are made by the graph's generators, at sizes that agree with the given inputs
    and `dims`, else at the symbols' examples. The first backend is the reference of the bounds.
    `artifact` is a compiled one that runs in place of the second backend. Without `intermediates`
    nothing is replayed unless an output differs. Raises TfgraphError, MissingTool.
    """
    if len(backends) != 2:
        raise TfgraphError(f"compare takes two backends, got {len(backends)}")
    fed = feed(source, weights, inputs, dims, seed, dtype, passes)
    opened, arrays, feeds, sizes = fed.opened, fed.weights, fed.feeds, fed.sizes
    graph = opened.graph
    with ExitStack() as stack:

        def side(name: str, file: str | Path | None) -> Side:
            target = replace(opened.choose(name, dtype), threads=threads)
            opening = open_side(opened, arrays, target, fed.passes, feeds, sizes, file)
            opened_side = stack.enter_context(opening)
            _ = opened_side.outputs  # the reference's errors come first: they tell the most
            return opened_side

        a, b = side(backends[0], None), side(backends[1], artifact)
        outputs, empty_rows = _outputs(a, b), 0
        found = _intermediates(a, b) if intermediates else []
        zeroed = [s for s in (a, b) if s.changes_empty_rows]
        if zeroed and not all(d.ok for d in (*outputs, *found)):
            written = reference_values(graph, arrays, feeds, sizes)
            empty_rows = max(s.read_as_written(graph, written) for s in zeroed)
            outputs, found = _outputs(a, b), _intermediates(a, b) if intermediates else []
        judgements = _judged(graph, arrays, feeds, sizes, a, b, outputs)
        wrong = {judgement.output for judgement in judgements if judgement.blamed}
        blamed = {name for judgement in judgements for name in judgement.blamed}
        suspects = [s for s in (b, a) if s.name in blamed]
        if not suspects and any(not d.ok for d in found):
            suspects = [s for s in (b, a) if s.replays]
        culprits = (
            diagnose(s, graph, found, [d for d in outputs if d.name in wrong]) for s in suspects
        )
        first = next((culprit for culprit in culprits if culprit is not None), None)
        if first is None and blamed:
            first = _unexplained(outputs, judgements)
        of = sum(len(node.outputs) for node in b.graph.nodes) if intermediates else 0
        left_out, origins = _left_out(a, b, found), _origins(b.graph)
    return Comparison(
        first is None,
        a.name,
        b.name,
        sizes,
        outputs,
        tuple(found),
        of,
        first,
        left_out,
        origins,
        judgements,
        empty_rows,
    )


def _outputs(a: Side, b: Side) -> tuple[Difference, ...]:
    found = [(o.name, o.value, a.outputs[o.name], b.outputs[o.name]) for o in a.graph.outputs]
    return tuple(_carried(a, b, found))


def _carried(a: Side, b: Side, found: Sequence[Triple]) -> list[Difference]:
    targets = a.target, b.target
    return carried(a.graph, a.weights, a.feeds, a.sizes, targets, found)


def _judged(
    graph: Graph,
    weights: Weights,
    feeds: Mapping[str, NDArray],
    sizes: Mapping[str, int],
    a: Side,
    b: Side,
    outputs: Sequence[Difference],
) -> tuple[Judgement, ...]:
    """What float64 says of the outputs that exceed their bounds."""
    names = [d.name for d in outputs if not d.ok]
    return tuple(
        judge(
            graph,
            name,
            weights,
            sizes,
            feeds,
            [(side.name, side.outputs[name]) for side in (a, b)],
        )
        for name in names
    )


def _intermediates(a: Side, b: Side) -> list[Difference]:
    """Every value that both compute, in the order of `b`."""
    if not any(side.replays for side in (a, b)) and a.graph is not b.graph:
        return []
    mine, theirs = a.values, b.values
    shared = [v for v in _shared(a.graph, b.graph) if v.name in mine and v.name in theirs]
    return _carried(a, b, [(v.name, v, mine[v.name], theirs[v.name]) for v in shared])


def _shared(a: Graph, b: Graph) -> list[Value]:
    """The computed values of equal name and type in both graphs, in the order of `b`."""
    weights = a.weight_values | b.weight_values
    mine = {v for node in a.nodes for v in node.outputs}
    return [v for n in b.nodes for v in n.outputs if v in mine and v not in weights]


def _left_out(a: Side, b: Side, found: Sequence[Difference]) -> dict[str, int]:
    """How many values of `b` were not compared, by the reason."""
    weights = a.graph.weight_values | b.graph.weight_values
    theirs = {v for node in a.graph.nodes for v in node.outputs}
    values = [v for node in b.graph.nodes for v in node.outputs]
    of_weights = sum(v in weights for v in values)
    alone = sum(v not in weights and v not in theirs for v in values)
    when = "before" if b.name == "numpy" else "after"
    rest = len(values) - of_weights - alone - len(found)
    reasons = {
        f"exist only {when} the passes": alone,
        "depend on weights alone": of_weights,
        "do not run alone": rest,
    }
    return {why: n for why, n in reasons.items() if n}


def _origins(graph: Graph) -> dict[str, Origin]:
    """Where values come from, by the labels of the table."""
    found: dict[str, Origin] = {}
    for value, node in graph.producer.items():
        found[f"%{value.name}"] = Origin(node.op, str(node.location or ""))
    for output in graph.outputs:
        made = found.get(f"%{output.value.name}", Origin("input", ""))
        found[f"output {output.name}"] = made
    return found


def _unexplained(outputs: Sequence[Difference], judgements: Sequence[Judgement]) -> Divergence:
    """An output that is wrong where nothing that was looked at is."""
    name = next(j.output for j in judgements if j.blamed)
    worst = next(d for d in outputs if d.name == name)
    return Divergence(
        f"output {name}",
        "",
        None,
        None,
        worst.max_abs,
        worst.bound,
        "between kernels",
        worst.worst_index,
        "what is wrong is not known",
    )
