"""Compare two backends value by value, and name the first value that differs.

Compiled backends run the graph after the passes; a value that the passes keep has the same name
before and after, so it is compared where both have it. Each is judged by its bound, in the order
of execution. For the first that exceeds it the one node that made it is run again on the
reference's inputs: an isolated error says that this node is wrong, an accumulated one that it
inherited the difference. May import: backends, bounds, moves, fuse, source, passes, ir, errors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.api.bounds import Difference, difference, softmax_axis
from tfgraph.api.fuse import fuse
from tfgraph.api.moves import after_rounding, measured, moves_of
from tfgraph.api.source import open_source
from tfgraph.backends.base import (
    Target,
    Weights,
    constraints_of,
    find_backend,
    input_ports,
    symbol_ranges,
)
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.errors import TfgraphError
from tfgraph.ir import Fill, Graph, Input, Node, Output, Value
from tfgraph.runtime.examples import complete
from tfgraph.runtime.inputs import check_dims
from tfgraph.weights import Seeded

if TYPE_CHECKING:
    from tfgraph.api.source import Source

NDArray = np.ndarray[Any, Any]
_TAP = "value:"


@dataclass(frozen=True)
class Origin:
    """The op that made a value, and its place in the user's file, "" where that is not known."""

    op: str
    place: str


@dataclass(frozen=True)
class Divergence:
    """The first value whose difference exceeds its bound, and the node that made it."""

    value: str
    op: str
    location: str | None
    isolated: float | None
    accumulated: float
    bound: float

    def to_json(self) -> dict[str, Any]:
        """The object under "first_divergence"."""
        numbers = {k: _finite(getattr(self, k)) for k in ("isolated", "accumulated", "bound")}
        return {"value": self.value, "op": self.op, "location": self.location, **numbers}


@dataclass(frozen=True)
class Comparison:
    """The report of `compare`; prints as a table.

    Of the `of` values that the second backend computes, `intermediates` were compared; the rest,
    counted by reason in `left_out`, the first has not. `origins` says of each value which op made
    it and where.
    """

    ok: bool
    a: str
    b: str
    dims: Mapping[str, int]
    outputs: tuple[Difference, ...]
    intermediates: tuple[Difference, ...]
    of: int
    first_divergence: Divergence | None
    left_out: Mapping[str, int] = field(default_factory=dict[str, int])
    origins: Mapping[str, Origin] = field(default_factory=lambda: dict[str, Origin]())

    def to_json(self) -> dict[str, Any]:
        """The object that `compare --json` prints."""
        first = self.first_divergence
        return {
            "ok": self.ok,
            "a": self.a,
            "b": self.b,
            "outputs": [d.to_json() for d in self.outputs],
            "intermediates": {"compared": len(self.intermediates), "of": self.of},
            "first_divergence": None if first is None else first.to_json(),
        }

    def __str__(self) -> str:
        sizes = ", ".join(f"{n}={s}" for n, s in self.dims.items())
        lines = [f"{self.a} against {self.b}" + (f" at {sizes}" if sizes else "")]
        rows = [("value", "max abs", "<= bound", "", "op", "place")]
        named = {d.name for d in self.outputs}
        inner = [d for d in self.intermediates if d.name not in named]
        worst = sorted(inner, key=lambda d: d.severity, reverse=True)[:5]
        labels = [f"output {d.name}" for d in self.outputs] + [f"%{d.name}" for d in worst]
        for label, d in zip(labels, (*self.outputs, *worst), strict=True):
            verdict = "ok" if d.ok else f"differs at {list(d.worst_index)}"
            origin = self.origins.get(label, Origin("", ""))
            numbers = f"{d.max_abs:.2e}", f"{d.bound:.2e}"
            rows.append((label, *numbers, verdict, origin.op, origin.place))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = [
                cell.rjust(width) if i in (1, 2) else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append(f"  {'  '.join(cells)}".rstrip())
        reasons = "".join(f"; {n} {why}" for why, n in self.left_out.items())
        lines.append(f"{len(self.intermediates)} of {self.of} intermediates compared{reasons}")
        if self.first_divergence is not None:
            first = self.first_divergence
            place = f" at {first.location}" if first.location else ""
            lines.append(f"first difference: %{first.value} = {first.op}{place}")
            isolated = "not measured" if first.isolated is None else f"{first.isolated:.2e}"
            lines.append(
                f"  alone on the reference's inputs {isolated}, accumulated "
                f"{first.accumulated:.2e}, bound {first.bound:.2e}"
            )
        lines.append("equal within bounds" if self.ok else "DIFFERENT")
        return "\n".join(lines)


@dataclass(frozen=True)
class _Run:
    """A backend's graph and what it computed for the values of interest."""

    name: str
    target: Target
    graph: Graph
    values: Mapping[str, NDArray]


def compare(
    source: Source,
    backends: Sequence[str] = ("numpy", "cpu"),
    inputs: Mapping[str, NDArray] | None = None,
    *,
    weights: Weights | None = None,
    dims: Mapping[str, int] | None = None,
    passes: str | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> Comparison:
    """Run two backends on the same inputs and compare outputs and every shared intermediate.
    `source` and `weights` are what `compile` takes.

    Inputs left out are made by the graph's generators, at sizes that agree with the given inputs
    and `dims`, else at the symbols' examples. The first backend is the reference of the bounds.
    """
    if len(backends) != 2:
        raise TfgraphError(f"compare takes two backends, got {len(backends)}")
    opened = open_source(source, weights)
    graph = opened.graph
    plans = [Target(name, threads=threads) for name in backends]
    graphs = [fuse(graph, target, passes or opened.passes).compiled for target in plans]
    arrays = Seeded(graph.params) if opened.weights is None else opened.weights
    symbols = symbol_ranges(graph)
    constraints = [str(c) for c in constraints_of(graph)]
    feeds, sizes = complete(
        input_ports(graph), symbols, constraints, inputs or {}, check_dims(dims, symbols), seed
    )
    shared = _shared(*graphs)
    a, b = (
        _run(target, g, arrays, feeds, sizes, shared)
        for target, g in zip(plans, graphs, strict=True)
    )
    found = [
        difference(v.name, a.values[v.name], b.values[v.name], softmax_axis(a.graph, v))
        for v in shared
    ]
    outputs = tuple(
        difference(
            o.name,
            a.values[o.value.name],
            b.values[p.value.name],
            softmax_axis(a.graph, o.value),
        )
        for o, p in zip(a.graph.outputs, b.graph.outputs, strict=True)
    )
    after = after_rounding(a.graph)
    outputs = _as_rounded(outputs, a, after, arrays, feeds, sizes)
    left_out = _left_out(a, b)
    if all(d.ok for d in outputs):  # then what differs on the way may
        compared = [d for d, v in zip(found, shared, strict=True) if d.ok or v not in after]
        if moved := len(found) - len(compared):
            left_out["differ, as roundings to integers let them"] = moved
        found = compared
    first = next((d for d in found if not d.ok), None)
    of = sum(len(node.outputs) for node in b.graph.nodes)
    ok = first is None and all(d.ok for d in outputs)
    divergence = None if first is None else _diverged(first, a, b, arrays, sizes)
    origins = _origins(b.graph)
    return Comparison(
        ok, a.name, b.name, sizes, outputs, tuple(found), of, divergence, left_out, origins
    )


def _as_rounded(
    outputs: tuple[Difference, ...],
    a: _Run,
    after: Collection[Value],
    weights: Weights,
    feeds: Mapping[str, NDArray],
    sizes: Mapping[str, int],
) -> tuple[Difference, ...]:
    """The differences of the outputs, those that depend on a rounding to integers under the bound
    that is measured."""
    pairs = list(zip(outputs, (o.value for o in a.graph.outputs), strict=True))
    apart = {value.name for d, value in pairs if not d.ok and value in after}
    if not apart:
        return outputs
    moves = moves_of(a.graph, weights, feeds, sizes, apart)
    return tuple(measured(d, value, after, moves) for d, value in pairs)


def with_taps(graph: Graph, values: Sequence[Value]) -> Graph:
    """The graph with each value as a further output, called `value:NAME`."""
    taps = tuple(Output(f"{_TAP}{v.name}", v) for v in values)
    return replace(graph, outputs=(*graph.outputs, *taps))


def _run(
    target: Target,
    graph: Graph,
    weights: Weights,
    feeds: Mapping[str, NDArray],
    sizes: Mapping[str, int],
    shared: Sequence[Value],
) -> _Run:
    wanted = list(dict.fromkeys([*shared, *(o.value for o in graph.outputs)]))
    if target.name == "numpy":
        names = {v.name for v in wanted}
        reference = NumpyExecutable(graph, weights)
        found = {v.name: array for v, _, array in reference.trace(feeds, sizes, keep=names)}
        return _Run(target.name, target, graph, {**feeds, **found})
    tapped = replace(graph, outputs=())
    executable = find_backend(target.name).compile(with_taps(tapped, wanted), weights, target)
    try:
        results = executable(dims=sizes, **feeds)
    finally:
        executable.close()
    values = {name.removeprefix(_TAP): array for name, array in results.items()}
    return _Run(target.name, target, graph, {**feeds, **values})


def _shared(a: Graph, b: Graph) -> list[Value]:
    """The computed values of equal name and type in both graphs, in the order of `b`."""
    weights = a.weight_values | b.weight_values
    mine = {v for node in a.nodes for v in node.outputs}
    return [v for n in b.nodes for v in n.outputs if v in mine and v not in weights]


def _left_out(a: _Run, b: _Run) -> dict[str, int]:
    """How many values of `b` were not compared, by the reason."""
    weights = a.graph.weight_values | b.graph.weight_values
    theirs = {v for node in a.graph.nodes for v in node.outputs}
    values = [v for node in b.graph.nodes for v in node.outputs]
    of_weights = sum(v in weights for v in values)
    alone = sum(v not in weights and v not in theirs for v in values)
    when = "before" if b.name == "numpy" else "after"
    reasons = {f"exist only {when} the passes": alone, "depend on weights alone": of_weights}
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


def _diverged(
    first: Difference, a: _Run, b: _Run, weights: Weights, sizes: Mapping[str, int]
) -> Divergence:
    value = next(v for n in b.graph.nodes for v in n.outputs if v.name == first.name)
    node = b.graph.producer[value]
    isolated = _isolated(node, value, a, b, weights, sizes)
    place = str(node.location) if node.location else None
    return Divergence(value.name, node.op, place, isolated, first.max_abs, first.bound)


def _isolated(
    node: Node, value: Value, a: _Run, b: _Run, weights: Weights, sizes: Mapping[str, int]
) -> float | None:
    """The error of one node on the reference's inputs; None where the reference lacks one."""
    weight = b.graph.weight_values
    fed = [v for v in dict.fromkeys(node.inputs) if v not in weight]
    inputs = tuple(Input(v, Fill("zeros")) for v in fed)
    needed = [n for n in b.graph.nodes if weight.issuperset(n.outputs)]
    alone = replace(
        b.graph,
        inputs=inputs,
        nodes=(*needed, node),
        outputs=(Output("result", value),),
        symbols=b.graph.symbols,
        constraints=(),
    )
    feeds = {v.name: a.values[v.name] for v in fed if v.name in a.values}
    if len(feeds) < len(fed):
        return None
    executable = find_backend(b.target.name).compile(alone, weights, b.target)
    try:
        extra = {n: sizes[n] for n in executable.symbols if n in sizes}
        told = {d for p in executable.inputs for d in p.shape}
        result = executable(dims={n: s for n, s in extra.items() if n not in told}, **feeds)
    finally:
        executable.close()
    return difference(value.name, a.values[value.name], result["result"]).max_abs


def _finite(number: float | None) -> float | None:
    return number if number is not None and np.isfinite(number) else None
