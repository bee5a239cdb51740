"""From a failing batch of random graphs to one small graph with its inputs, saved as files."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from helpers.fuzz_check import POINTS, Judge, Wrong, merge, merged_feeds, only, untold

from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.ir import Fill, Graph, Input, Node, Output, Value
from tfgraph.model import dump_yaml
from tfgraph.text import print_graph
from tfgraph.weights import Seeded

if TYPE_CHECKING:
    from helpers.fuzz_inputs import Case

NDArray = np.ndarray[Any, Any]
Arrays = Mapping[str, NDArray]


@dataclass(frozen=True)
class Failure:
    """A graph that fails on these inputs at these sizes."""

    seed: int
    graph: Graph
    sizes: Mapping[str, int]
    arrays: Arrays
    wrong: Wrong


def failures(cases: Sequence[Case], judge: Judge) -> list[Failure]:
    """Check all cases as one graph; for each that fails, the smallest failure found.

    A case that fails only among the others fails as the whole batch, which is then not shrunk.
    """
    merged = merge(cases)
    feeds = [(sizes, merged_feeds(cases, sizes)) for sizes in POINTS]
    wrong = judge.check(merged, feeds)
    if not wrong:
        return []
    names = {w.output.partition(".")[0] for w in wrong}
    suspects = [c for c in cases if f"s{c.seed}" in names] or _that_raise(cases, judge)
    found = [_isolated(case, judge) for case in suspects]
    alone = [failure for failure in found if failure is not None]
    if not alone:
        sizes = wrong[0].sizes
        arrays = merged_feeds(cases, sizes)
        alone = [Failure(cases[0].seed, merged, sizes, arrays, wrong[0])]
        return alone
    return [shrink(failure, judge) for failure in alone[:3]]


def _that_raise(cases: Sequence[Case], judge: Judge) -> list[Case]:
    """The cases without which the rest compiles and runs, by halving."""
    if len(cases) == 1:
        return list(cases)
    middle = len(cases) // 2
    for half in (cases[:middle], cases[middle:]):
        if judge.check(merge(half), [(p, merged_feeds(half, p)) for p in POINTS]):
            return _that_raise(half, judge)
    return []


def _isolated(case: Case, judge: Judge) -> Failure | None:
    """The case alone, at the smallest of the sizes where it fails."""
    for sizes in POINTS:
        arrays = case.feeds(sizes)
        for wrong in judge.check(case.graph, [(sizes, arrays)]):
            return Failure(case.seed, case.graph, sizes, arrays, wrong)
    return None


def shrink(failure: Failure, judge: Judge, seconds: float = 60) -> Failure:
    """A smaller failure: of one output, with as few nodes as possible. Each step is checked."""
    until = time.monotonic() + seconds

    def still(graph: Graph, arrays: Arrays) -> Failure | None:
        if time.monotonic() > until:
            return None
        needed = {i.value.name: arrays[i.value.name] for i in graph.inputs}
        for wrong in judge.check(graph, [(failure.sizes, needed)]):
            return replace(failure, graph=graph, arrays=needed, wrong=wrong)
        return None

    for output in failure.graph.outputs:
        if failure.wrong.output in ("", output.name):
            part = only(failure.graph, output.name)
            smaller = still(part, failure.arrays)
            if smaller is not None:
                failure = smaller
                break
    steps: list[Callable[[Failure], list[tuple[Graph, Arrays]]]] = [_earlier, _cut, _bypass]
    changed = True
    while changed:
        changed = False
        for step in steps:
            for graph, arrays in step(failure):
                smaller = still(graph, arrays)
                if smaller is not None:
                    failure, changed = smaller, True
                    break
    return failure


def _values(failure: Failure) -> dict[str, NDArray]:
    """Every value of the graph on the reference."""
    reference = NumpyExecutable(failure.graph, Seeded(failure.graph.params))
    dims = untold(failure.graph, failure.sizes)
    return {v.name: np.array(a) for v, _, a in reference.trace(failure.arrays, dims)}


def _earlier(failure: Failure) -> list[tuple[Graph, Arrays]]:
    """An earlier value as the output, the earliest first."""
    graph = failure.graph
    if len(graph.outputs) > 1:
        return []
    last = graph.outputs[0].value
    candidates = [node.outputs[0] for node in graph.nodes if last not in node.outputs]
    return [
        (only(replace(graph, outputs=(Output("y", value),)), "y"), failure.arrays)
        for value in candidates[:20]
    ]


def _cut(failure: Failure) -> list[tuple[Graph, Arrays]]:
    """A value as an input, which holds what the reference computes; the latest first."""
    graph = failure.graph
    if len(graph.outputs) > 1:
        return []
    made: list[tuple[Graph, Arrays]] = []
    known = _values(failure)
    for node in reversed(graph.nodes):
        if graph.outputs[0].value in node.outputs or not node.inputs:
            continue
        given = tuple(Input(value, Fill("zeros")) for value in node.outputs)
        rest = replace(
            graph,
            inputs=(*graph.inputs, *given),
            nodes=tuple(n for n in graph.nodes if n is not node),
        )
        arrays = {**failure.arrays, **{v.name: known[v.name] for v in node.outputs}}
        made.append((only(rest, graph.outputs[0].name), arrays))
    return [(g, a) for g, a in made if len(g.nodes) < len(graph.nodes)][:20]


def _bypass(failure: Failure) -> list[tuple[Graph, Arrays]]:
    """A node left out whose result has the type of an operand."""
    graph = failure.graph
    made: list[tuple[Graph, Arrays]] = []
    for node in graph.nodes:
        if len(node.outputs) > 1:
            continue
        same = next((v for v in node.inputs if v.type == node.output.type), None)
        if same is not None:
            made.append((_without(graph, node, same), failure.arrays))
    return made[:20]


def _without(graph: Graph, gone: Node, instead: Value) -> Graph:
    def new(value: Value) -> Value:
        return instead if value == gone.output else value

    nodes = tuple(n.map_values(new) for n in graph.nodes if n is not gone)
    outputs = tuple(replace(o, value=new(o.value)) for o in graph.outputs)
    return replace(graph, nodes=nodes, outputs=outputs)


def _with_named_inputs(failure: Failure) -> Failure:
    """The same failure; inputs that were results, `7`, get names that model files allow, `v7`."""
    graph = failure.graph
    taken = {value.name for value in graph.values()}
    names = {name: name for name in failure.arrays}
    for name in filter(str.isdigit, names):
        new = f"v{name}"
        while new in taken:
            new = f"v{new}"
        taken.add(new)
        names[name] = new

    def renamed(value: Value) -> Value:
        return replace(value, name=names.get(value.name, value.name))

    graph = replace(
        graph,
        inputs=tuple(replace(i, value=renamed(i.value)) for i in graph.inputs),
        nodes=tuple(n.map_values(renamed) for n in graph.nodes),
        outputs=tuple(replace(o, value=renamed(o.value)) for o in graph.outputs),
    )
    arrays = {names[name]: array for name, array in failure.arrays.items()}
    return replace(failure, graph=graph, arrays=arrays)


def save(failure: Failure, backend: str) -> str:
    """Write the graph, as a model file and as text, and its inputs; what a person needs to see it
    again."""
    failure = _with_named_inputs(failure)
    folder = Path(tempfile.mkdtemp(prefix=f"tfgraph-fuzz-{failure.seed}-"))
    text = print_graph(failure.graph)
    (folder / "graph.tfg").write_text(text, "utf-8")
    (folder / "model.yaml").write_text(dump_yaml(failure.graph), "utf-8")
    inputs = ""
    for i, (name, array) in enumerate(failure.arrays.items()):
        np.save(folder / f"x{i}.npy", array)
        inputs += f" --input {name}={folder}/x{i}.npy"
    dims = untold(failure.graph, failure.sizes)
    inputs += "".join(f" --dim {name}={size}" for name, size in dims.items())
    return (
        f"seed {failure.seed}, output {failure.wrong.output or '(none)'}: {failure.wrong.why}\n"
        f"sizes {dict(failure.sizes)}; saved in {folder}\n"
        f"tfgraph compare {folder}/model.yaml --backends numpy,{backend}{inputs}\n{text}"
    )
