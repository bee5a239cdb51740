"""Why a backend differs: the first culprit, looked for from the graph down to the kernels.

1. The passes: does the reference compute the same from the graph before and after them?
2. The weights: does the artifact hold the model's?
3. The kernels: is each right on the reference's inputs?
4. If so, do they give the wrong output one after another (errors accumulate), or is it what stands
   between them, the plan of memory and the calls?

For a witness that ran the ONNX file of the model: which node was not translated right? May import:
comparison, differ, import_check, replay, side, stored, wrong_pass, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgraph.api.comparison import Divergence, Reproduction
from tfgraph.api.differ import apart
from tfgraph.api.replay import Isolated, isolated_failures
from tfgraph.api.stored import wrong_weights
from tfgraph.api.wrong_pass import Reference, first_wrong_pass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgraph.api.bounds import Difference
    from tfgraph.api.side import Side
    from tfgraph.ir import Graph


def diagnose(
    side: Side, graph: Graph, accumulated: Sequence[Difference], outputs: Sequence[Difference]
) -> Divergence | None:
    """The first culprit on that side. `graph` is the model's, `accumulated` are the differences of
    intermediate values, and `outputs` those of the outputs that exceed their bounds; None where
    nothing is wrong that was looked at, and no output is."""
    if side.original is not None:
        from tfgraph.api.import_check import check_import  # needs onnx, as the file did

        given = side.weights, side.feeds, side.sizes
        return check_import(side.original, side.name, graph, *given).first
    made = Reference(graph, side.weights, side.feeds, side.sizes)
    if side.graph is not graph and not made.keeps(side.graph, side.changes_empty_rows):
        return first_wrong_pass(made, side.passes or ()) or _other_graph(outputs)
    artifact = side.artifact
    if artifact is not None:
        for weight in wrong_weights(artifact, side.graph, side.weights):
            return Divergence(
                weight.name,
                "",
                None,
                None,
                weight.max_abs,
                0.0,
                "weight",
                weight.index,
                f"as stored in the artifact, it is not the model's: {weight}",
            )
    for isolated in isolated_failures(side.replay, side.reference, side.sizes):
        return _of_kernel(side, isolated)
    return _between(side, accumulated, outputs) if outputs else None


def _other_graph(outputs: Sequence[Difference]) -> Divergence:
    """What the artifact was compiled from does not compute what the model does."""
    worst = outputs[0]
    return Divergence(
        f"output {worst.name}",
        "",
        None,
        None,
        worst.max_abs,
        worst.bound,
        "pass",
        worst.worst_index,
        "the graph in the artifact does not compute what the model does: compile it again",
    )


def _of_kernel(side: Side, isolated: Isolated) -> Divergence:
    kernel, found = isolated.kernel, isolated.found
    name = found.name
    chained = side.values.get(name)
    accumulated = found.max_abs
    if chained is not None:
        accumulated = apart(side.reference[name], chained)
    reproduction = Reproduction(
        kernel, side.name, side.target.threads, side.weights, isolated.arrays, side.sizes
    )
    return Divergence(
        name,
        kernel.node.op,
        kernel.place,
        found.error,
        accumulated,
        found.bound,
        "kernel",
        found.worst_index,
        str(isolated.judgement),
        reproduction,
        found.max_abs,
    )


def _between(
    side: Side, accumulated: Sequence[Difference], outputs: Sequence[Difference]
) -> Divergence:
    """An output is wrong, and every kernel is right alone."""
    graph = side.graph
    worst = outputs[0]
    value = next(o.value for o in graph.outputs if o.name == worst.name)
    chained = side.values.get(value.name)
    node = graph.producer.get(value)
    op, place = (node.op, node.location) if node else ("", None)
    same = chained is not None and 2 * apart(side.outputs[worst.name], chained) < worst.max_abs
    if same:
        first = next((d for d in accumulated if not d.ok), worst)
        makers = {v.name: n for v, n in graph.producer.items()}
        node = makers.get(first.name, node)
        op, place = (node.op, node.location) if node else ("", None)
        why = "every kernel is right on the reference's inputs: their errors grow"
        value_name, kind = first.name, "accumulated"
    else:
        first, value_name, kind = worst, value.name, "between kernels"
        why = (
            "every kernel is right alone, and so are they one after another: the fault is in what "
            "stands between them, the plan of memory or the calls"
        )
    return Divergence(
        value_name,
        op,
        str(place) if place else None,
        None,
        first.max_abs,
        first.bound,
        kind,
        first.worst_index,
        why,
    )
