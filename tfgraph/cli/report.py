"""What several verbs print about a graph: its head, its ports, what the passes did.

May import: ir, backends.base, passes, cost; output.
"""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING

from tfgraph.cli.output import Output, at_sizes, count, plural, size
from tfgraph.cli.source import short_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfgraph.api import CompileReport, Verification
    from tfgraph.ir import Graph, TensorType
    from tfgraph.model import Model
    from tfgraph.passes import Declined, PassReport, Tap
    from tfgraph.runtime.sizes import Port

_GLUE = "\N{NO-BREAK SPACE}"
_EACH = 3  # places of a reason that are printed without --verbose


def print_model(out: Output, spec: str, model: Model, dtype: str | None = None) -> None:
    """What was read, its ports in the float type that it is compiled in, by default its own."""
    from tfgraph.cost import cost

    graph = model.graph
    parameters = int(cost(graph, {}).total.parameters)
    stored = (
        "no parameters"
        if not graph.params
        else f"{count(parameters)} parameters, {_origin(model, dtype)}"
    )
    head = out.style(short_path(spec), "bold")
    out.print(f"{head}: {graph.name}, {plural(len(graph.nodes), 'node')}, {stored}")
    print_graph_ports(out, graph, dtype)


def _origin(model: Model, dtype: str | None) -> str:
    """Where the weights come from, and what they take where they are wider than their file, and not
    compiled in another type."""
    from tfgraph.weights import Weights

    if model.seeded:
        return "seeded"
    if not isinstance(model.weights, Weights) or not model.weights.widened[0]:
        return "from a file"
    names, before, after = model.weights.widened
    file = f"from a file in {' and '.join(names)}"
    if dtype is not None:
        return file
    return f"{file}, widened to {model.dtype.value}: {size(before)} to {size(after)}"


def print_graph_ports(out: Output, graph: Graph, dtype: str | None = None) -> None:
    """Inputs, outputs and symbols as a table, and what is required of sizes."""
    from tfgraph.backends.base import input_ports, output_ports, symbol_ranges
    from tfgraph.ir import dtype as dtype_of

    floats = None if dtype is None else dtype_of(dtype).value

    def shown(port: Port) -> str:
        return _type(replace(port, dtype=floats) if floats and "float" in port.dtype else port)

    rows = [("input", p.name, shown(p), p.fill) for p in input_ports(graph)]
    rows += [("output", p.name, shown(p), "") for p in output_ports(graph)]
    rows += [
        ("size", name, f"{s.low} to {s.high}", f"example {s.example}")
        for name, s in symbol_ranges(graph).items()
    ]
    out.rows(rows)
    for constraint in graph.constraints:
        out.print(f"  requires {constraint}")


def print_passes(out: Output, before: int, after: int, reports: Sequence[PassReport]) -> None:
    """How many nodes there were before and after; each pass with how often its rules applied, then
    what could not be fused, and why."""
    head = out.style("passes", "bold")
    if not reports:
        out.print(f"{head}  none ran")
        return
    out.print(f"{head}  {before} -> {plural(after, 'node')}")
    rows = [(report.name, str(report.count), _applied(report)) for report in reports]
    names, numbers = (max(len(row[i]) for row in rows) for i in (0, 1))
    for name, number, rules in (row for row in rows if row[2]):
        for i, line in enumerate(_wrap(rules, 74 - names - numbers)):
            start = (name, number) if i == 0 else ("", "")
            out.print(f"  {start[0].ljust(names)}  {start[1].rjust(numbers)}  {line}".rstrip())
    busy = {name for name, _, rules in rows if rules}
    if idle := ", ".join(dict.fromkeys(name for name, *_ in rows if name not in busy)):
        for line in _wrap(f"no change: {idle}", 78):
            out.print(out.style(f"  {line}", "dim"))
    print_declined(out, [d for report in reports for d in report.declined])


def print_taps(out: Output, report: CompileReport) -> None:
    """The tapped values that are further outputs, and what it takes to give them out."""
    added = [tap for tap in report.taps if tap.added]
    again = [tap for tap in added if tap.recomputed]
    if not report.taps:
        return
    told = plural(len(added), "further output")
    if again:
        nodes = plural(report.tap_nodes, "node")
        told += f"; {len(again)} fused away, recomputed by {nodes} beside the model's"
    out.print(f"{out.style('taps', 'bold')}    {told}")
    shown = report.taps if out.verbose else report.taps[:_EACH]
    out.rows([(t.value.name, str(t.value.type), _given(t)) for t in shown])
    if len(report.taps) > len(shown):
        out.print(f"  and {len(report.taps) - len(shown)} more, which -v lists")


def _given(tap: Tap) -> str:
    """How a tapped value is given out."""
    if not tap.added:
        return f"the output {tap.output} already"
    return "recomputed" if tap.recomputed else ""


def _applied(report: PassReport) -> str:
    """What a pass did, its clean-ups last; of the lowering, the kernels that it calls."""
    told = {rule: f"{rule}{_GLUE}{n}" for rule, n in report.applied.items()}
    main = ", ".join(text for rule, text in told.items() if rule not in report.cleanups)
    tidied = ", ".join(text for rule, text in told.items() if rule in report.cleanups)
    if main and report.name == "lower":
        main = f"nodes by kernel: {main}"
    return "; ".join(filter(None, (main, tidied and f"clean-ups: {tidied}")))


def print_declined(out: Output, declined: Sequence[Declined]) -> None:
    """Near-misses, those of one rule and reason together."""
    groups: dict[tuple[str, str], list[Declined]] = {}
    for item in declined:
        # A reason that names the place itself differs from place to place.
        groups.setdefault((item.rule, item.reason), []).append(item)
    if not groups:
        return
    out.print(out.style("not fused", "bold"))
    for (rule, reason), items in groups.items():
        out.print(f"  {rule}: {reason}")
        shown = items if out.verbose else items[:_EACH]
        out.rows(
            [("at", item.at, short_location(item) if item.location else "") for item in shown],
            indent=4,
        )
        if len(items) > len(shown):
            out.print(f"    and {len(items) - len(shown)} more, which -v lists")


def short_location(declined: Declined) -> str:
    """The place of a near-miss, its file as a person would write it here."""
    where = declined.location
    return "" if where is None else str(replace(where, file=short_path(where.file)))


def print_verification(out: Output, outcome: Verification) -> None:
    """How the reference was met, with the observed error and bound of each output."""
    head = out.style("verify", "bold")
    if outcome.ok is None:
        reason = (outcome.reason or "").removeprefix("not run: ")
        out.print(f"{head}  {out.verdict(None)}: {reason}")
        if outcome.instead:
            out.print(f"        checked instead: {outcome.instead}  {out.verdict(True)}")
        return
    at = f" at {plural(len(outcome.dims), 'size')}" if len(outcome.dims) > 1 else ""
    before = ", when the same bytes were compiled before" if outcome.remembered else ""
    out.print(f"{head}  {out.verdict(outcome.ok)} against {outcome.against}{at}{before}")
    rows = [("output", "observed", "bound", "")]
    rows += [
        (d.name, f"{d.max_abs:.2e}", f"{d.bound:.2e}", out.verdict(d.ok)) for d in outcome.outputs
    ]
    for sizes in filter(None, outcome.dims):
        out.print(f"  {at_sizes(sizes)}")
    out.rows(rows, right=(1, 2))
    if outcome.empty_rows:
        out.print(
            f"  in {plural(outcome.empty_rows, 'row')} no key is allowed, or they depend on such: "
            "compared with zeros there"
        )


def peak_bytes(graph: Graph, sizes: Mapping[str, int]) -> int:
    """The most bytes of activations that are alive at once: each from the node that makes it to
    the last that reads it, outputs to the end. Weights, and what is computed from them, apart."""
    weights = graph.weight_values
    nodes = [n for n in graph.nodes if not weights.issuperset(n.outputs)]
    last = {v: i for i, node in enumerate(nodes) for v in node.inputs}
    last |= {v: len(nodes) for v in graph.output_values}
    alive = {i.value for i in graph.inputs}
    peak = 0
    for i, node in enumerate(nodes):
        alive.update(node.outputs)
        peak = max(peak, sum(_bytes(v.type, sizes) for v in alive))
        alive = {v for v in alive if last.get(v, -1) > i}
    return peak


def print_memory(out: Output, graph: Graph, weight_bytes: int, sizes: dict[str, int]) -> None:
    """Weights as kernels read them, in tiles padded to full, and activations at the example
    sizes."""
    at = f" at {at_sizes(sizes)}" if sizes else ""
    out.print(
        f"{out.style('memory', 'bold')}  weights {size(weight_bytes)} packed, activations "
        f"{size(peak_bytes(graph, sizes))}{at}"
    )


def _bytes(type_: TensorType, sizes: Mapping[str, int]) -> int:
    from tfgraph.ir import product

    return (product(type_.shape).evaluate(sizes) * type_.dtype.bits + 7) // 8


def _type(port: Port) -> str:
    return f"{port.dtype}[{','.join(map(str, port.shape))}]"


def _wrap(text: str, width: int) -> list[str]:
    width = max(width, 24)
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
    return [line.replace(_GLUE, " ") for line in lines]
