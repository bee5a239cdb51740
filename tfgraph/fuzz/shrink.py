"""From a failing batch of random graphs to one small graph with its inputs.

May import: judge, api, backends.numpy, weights, ir, errors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tfgraph.api.part import only, untold
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.errors import MissingTool, TfgraphError
from tfgraph.fuzz.batch import merge, merged_feeds
from tfgraph.fuzz.judge import Feeds, Wrong
from tfgraph.ir import Fill, Graph, Input, Node, Output, Value
from tfgraph.weights import Seeded

if TYPE_CHECKING:
    from tfgraph.fuzz.inputs import Case
    from tfgraph.fuzz.judge import Judge

NDArray = np.ndarray[Any, Any]
Arrays = Mapping[str, NDArray]
Points = Sequence[Mapping[str, int]]


@dataclass(frozen=True)
class Failure:
    """A graph that fails on these inputs at these sizes."""

    seed: int
    graph: Graph
    sizes: Mapping[str, int]
    arrays: Arrays
    wrong: Wrong
    weights: Arrays | None = None
    """Those of the parameters; None for seeded ones."""


def failures(
    cases: Sequence[Case], judge: Judge, points: Points, *, at_most: int = 3, seconds: float = 60
) -> list[Failure]:
    """Check all cases as one graph, at each of the sizes; the smallest failure found for each case
    that fails, for `at_most` of them, the smallest first. Each is shrunk for so many seconds.

    A case that fails only among the others fails as the whole batch, which is then not shrunk.
    """
    merged = merge(cases)
    wrong = judge.check(merged, [(sizes, merged_feeds(cases, sizes)) for sizes in points])
    if not wrong:
        return []
    names = {w.output.partition(".")[0] for w in wrong}
    suspects = [c for c in cases if f"s{c.seed}" in names] or _that_raise(cases, judge, points)
    found: list[Failure] = []
    for case in sorted(suspects, key=lambda c: len(c.graph.nodes)):
        failure = alone(case, judge, points)
        if failure is not None:
            found.append(failure)
        if len(found) == at_most:
            break
    if not found:
        sizes = wrong[0].sizes
        arrays = merged_feeds(cases, sizes)
        return [Failure(cases[0].seed, merged, sizes, arrays, wrong[0])]
    return [shrink(failure, judge, seconds) for failure in found]


def _that_raise(cases: Sequence[Case], judge: Judge, points: Points) -> list[Case]:
    """The cases without which the rest compiles and runs, by halving."""
    if len(cases) == 1:
        return list(cases)
    middle = len(cases) // 2
    for half in (cases[:middle], cases[middle:]):
        if judge.check(merge(half), [(p, merged_feeds(half, p)) for p in points]):
            return _that_raise(half, judge, points)
    return []


def alone(case: Case, judge: Judge, points: Points) -> Failure | None:
    """The case alone, at the first of the sizes where it fails."""
    for wrong in judge.check(case.graph, [(sizes, case.feeds(sizes)) for sizes in points]):
        arrays = case.feeds(wrong.sizes)
        return Failure(case.seed, case.graph, wrong.sizes, arrays, wrong)
    return None


class Checks(Protocol):
    """What says whether a graph is wrong; `Judge` is one."""

    def check(self, graph: Graph, feeds: Feeds) -> list[Wrong]:
        """What is wrong at any of the sizes with their inputs."""
        ...


def shrink(failure: Failure, judge: Checks, seconds: float = 60) -> Failure:
    """A smaller failure: of one output, with as few nodes and as small sizes as possible. Each step
    is checked."""
    until = time.monotonic() + seconds

    def still(smaller: Failure) -> Failure | None:
        if time.monotonic() > until:
            return None
        needed = {i.value.name: smaller.arrays[i.value.name] for i in smaller.graph.inputs}
        try:
            found = judge.check(smaller.graph, [(smaller.sizes, needed)])
        except MissingTool:
            raise
        except TfgraphError:  # the inputs do not go with what is left
            return None
        for wrong in found:
            if bool(wrong.output) != bool(failure.wrong.output):
                continue  # it raises where the other was wrong, or the other way round
            return replace(smaller, arrays=needed, wrong=wrong)
        return None

    for output in failure.graph.outputs:
        if failure.wrong.output in ("", output.name):
            part = replace(failure, graph=only(failure.graph, output.name))
            smaller = still(part)
            if smaller is not None:
                failure = smaller
                break
    steps: list[Callable[[Failure], list[Failure]]] = [_earlier, _cut, _bypass, _smaller]
    changed = True
    while changed:
        changed = False
        for step in steps:
            for candidate in step(failure):
                smaller = still(candidate)
                if smaller is not None:
                    failure, changed = smaller, True
                    break
    return failure


def _values(failure: Failure) -> dict[str, NDArray]:
    """Every value of the graph on the reference."""
    weights = Seeded(failure.graph.params) if failure.weights is None else failure.weights
    reference = NumpyExecutable(failure.graph, weights)
    dims = untold(failure.graph, failure.sizes)
    return {v.name: np.array(a) for v, _, a in reference.trace(failure.arrays, dims)}


def _one_output(graph: Graph) -> Output | None:
    """The output, where there is but one."""
    (first, *others) = graph.outputs
    return None if others else first


def _earlier(failure: Failure) -> list[Failure]:
    """An earlier value as the output, the earliest first."""
    graph = failure.graph
    output = _one_output(graph)
    if output is None:
        return []
    last = output.value
    candidates = [node.outputs[0] for node in graph.nodes if last not in node.outputs]
    return [
        replace(failure, graph=only(replace(graph, outputs=(Output("y", value),)), "y"))
        for value in candidates[:20]
    ]


def _cut(failure: Failure) -> list[Failure]:
    """A value as an input, which holds what the reference computes; the latest first."""
    graph = failure.graph
    output = _one_output(graph)
    if output is None:
        return []
    made: list[Failure] = []
    known = _values(failure)
    for node in reversed(graph.nodes):
        if output.value in node.outputs or not node.inputs:
            continue
        given = tuple(Input(value, Fill("zeros")) for value in node.outputs)
        rest = replace(
            graph,
            inputs=(*graph.inputs, *given),
            nodes=tuple(n for n in graph.nodes if n is not node),
        )
        arrays = {**failure.arrays, **{v.name: known[v.name] for v in node.outputs}}
        made.append(replace(failure, graph=only(rest, output.name), arrays=arrays))
    return [f for f in made if len(f.graph.nodes) < len(graph.nodes)][:20]


def _bypass(failure: Failure) -> list[Failure]:
    """A node left out whose result has the type of an operand."""
    graph = failure.graph
    made: list[Failure] = []
    for node in graph.nodes:
        if len(node.outputs) > 1:
            continue
        same = next((v for v in node.inputs if v.type == node.output.type), None)
        if same is not None:
            made.append(replace(failure, graph=_without(graph, node, same)))
    return made[:20]


def _smaller(failure: Failure) -> list[Failure]:
    """One size less, the least first: of every input the rows and columns that are left."""
    made: list[Failure] = []
    graph = failure.graph
    declared = [s.name for s in graph.symbols]
    of_inputs = [name for i in graph.inputs for d in i.value.type.shape for name in d.symbols]
    for symbol in map(graph.symbol, dict.fromkeys([*declared, *of_inputs])):
        size = failure.sizes.get(symbol.name, 0)
        for less in dict.fromkeys([symbol.low, 2, 3, size // 2, size - 1]):
            if symbol.low <= less < size:
                sizes = {**failure.sizes, symbol.name: less}
                arrays = _cropped(failure, sizes)
                made += [replace(failure, sizes=sizes, arrays=arrays)] if arrays else []
    return made


def _cropped(failure: Failure, sizes: Mapping[str, int]) -> dict[str, NDArray]:
    """The first elements of every input, as many as it has at these sizes; none where it would have
    more."""
    found: dict[str, NDArray] = {}
    for given in failure.graph.inputs:
        array = failure.arrays[given.value.name]
        shape = [d.evaluate(sizes) for d in given.value.type.shape]
        if any(new > old for new, old in zip(shape, array.shape, strict=True)):
            return {}
        found[given.value.name] = np.array(array[tuple(slice(n) for n in shape)])
    return found


def _without(graph: Graph, gone: Node, instead: Value) -> Graph:
    def new(value: Value) -> Value:
        return instead if value == gone.output else value

    nodes = tuple(n.map_values(new) for n in graph.nodes if n is not gone)
    outputs = tuple(replace(o, value=new(o.value)) for o in graph.outputs)
    return replace(graph, nodes=nodes, outputs=outputs)
