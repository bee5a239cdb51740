"""Replay what a backend runs, kernel by kernel, without touching the artifact itself.

Every node of the graph after the passes is compiled alone, as a function of one module where the
backend has functions, so that equal kernels are compiled once. It then runs on any inputs: on the
reference's for its own error, on what the backend's kernels before it gave for the error that has
accumulated. May import: differ, blame, part, backends, ir, errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.api.blame import Judgement, judge
from tfgraph.api.differ import isolated, name_of
from tfgraph.api.part import Kernel, kernels, untold
from tfgraph.backends.base import find_backend
from tfgraph.errors import MissingTool, TfgraphError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfgraph.api.bounds import Difference
    from tfgraph.backends.base import Executable, Target, Weights
    from tfgraph.ir import Graph

NDArray = np.ndarray[Any, Any]
Arrays = dict[str, NDArray]


class Replay:
    """The kernels of a graph, each compiled alone. `close` frees them."""

    def __init__(self, graph: Graph, weights: Weights, target: Target) -> None:
        self.graph, self.weights, self.target = graph, weights, target
        self.kernels = list(kernels(graph))
        self._runs: list[Executable | None] = []
        self._owned: list[Executable] = []
        backend = find_backend(target.name, witnesses=True)
        graphs = [kernel.graph for kernel in self.kernels]
        if backend.has_functions and len(graphs) > 1:
            more = {f"kernel{i}": g for i, g in enumerate(graphs[1:], 1)}
            made = backend.compile(graphs[0], weights, target, more)
            self._owned = [made]
            self._runs = [made, *(made.functions[name] for name in more)]
            return
        for g in graphs:
            try:
                run: Executable | None = backend.compile(g, weights, target)
            except MissingTool:
                raise
            except TfgraphError:  # what it makes of the whole graph it may not make of a part
                run = None
            self._runs.append(run)
            self._owned += [run] if run else []

    def run(self, index: int, arrays: Mapping[str, NDArray], sizes: Mapping[str, int]) -> Arrays:
        """The results of one kernel on these inputs, by value name; none where it is not known how
        to run it alone, or on what."""
        kernel, run = self.kernels[index], self._runs[index]
        if run is None or not all(name in arrays for name in kernel.reads):
            return {}
        # Copies: a kernel may write into a state that it is given.
        given = {name: np.array(arrays[name]) for name in kernel.reads}
        return run(dims=untold(kernel.graph, sizes), **given)

    def chain(self, feeds: Mapping[str, NDArray], sizes: Mapping[str, int]) -> Arrays:
        """Every value, each kernel on what those before it gave."""
        known = dict(feeds)
        for index in range(len(self.kernels)):
            known |= self.run(index, known, sizes)
        return known

    def close(self) -> None:
        """Free the code."""
        for run in self._owned:
            run.close()


@dataclass(frozen=True)
class Isolated:
    """A kernel that is wrong on the reference's inputs: which of its results, by how much, and what
    float64 says of that. `arrays` are those inputs."""

    kernel: Kernel
    found: Difference
    judgement: Judgement
    arrays: Mapping[str, NDArray]


def isolated_failures(
    replay: Replay, reference: Mapping[str, NDArray], sizes: Mapping[str, int]
) -> Iterator[Isolated]:
    """The kernels that are wrong on the reference's values, in order."""
    for index, kernel in enumerate(replay.kernels):
        results = replay.run(index, reference, sizes)
        if not results:
            continue
        arrays = {name: reference[name] for name in kernel.reads}
        want = {name: reference[name] for name in results}
        for wrong in judge_kernel(
            kernel.graph, replay.weights, arrays, sizes, want, results, replay.target
        ):
            yield Isolated(kernel, *wrong, arrays)
            break


def judge_kernel(
    graph: Graph,
    weights: Weights,
    arrays: Mapping[str, NDArray],
    sizes: Mapping[str, int],
    want: Mapping[str, NDArray],
    got: Mapping[str, NDArray],
    backend: str | Target,
) -> Iterator[tuple[Difference, Judgement]]:
    """The results of one kernel that exceed their bounds, and are worse than honest arithmetic."""
    for found in isolated(graph, weights, arrays, sizes, want, got, backend):
        if found.ok:
            continue
        name = name_of(backend)
        pairs = [("numpy", want[found.name]), (name, got[found.name])]
        judgement = judge(graph, found.name, weights, sizes, arrays, pairs)
        if name in judgement.blamed:
            yield found, judgement
