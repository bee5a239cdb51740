"""Each kernel of a graph alone, on the reference's inputs, held to its isolated bound.

May import: batch, judge, shrink, api, backends, passes, weights, ir, errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.api.differ import isolated
from tfgraph.api.fuse import fuse
from tfgraph.api.part import Kernel, untold
from tfgraph.api.replay import Replay, judge_kernel
from tfgraph.backends.base import Target, find_backend
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.errors import MissingTool
from tfgraph.fuzz.batch import merge, merged_feeds
from tfgraph.fuzz.judge import Wrong
from tfgraph.fuzz.shrink import Failure, shrink
from tfgraph.passes import DEFAULT_PIPELINE
from tfgraph.weights import Seeded

if TYPE_CHECKING:
    from tfgraph.api.bounds import Difference
    from tfgraph.backends.base import Executable, Weights
    from tfgraph.fuzz.inputs import Case
    from tfgraph.fuzz.judge import Feeds
    from tfgraph.ir import Graph

NDArray = np.ndarray[Any, Any]
Arrays = Mapping[str, NDArray]
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class KernelJudge:
    """Compares kernels as they are with the reference; `weights` None are seeded. What is beyond
    its isolated bound is wrong if it is worse than honest arithmetic too, as `compare` judges; with
    `strict` in any case."""

    backend: str
    threads: int | None = None
    weights: Weights | None = None
    strict: bool = False

    @property
    def target(self) -> Target:
        """What kernels are compiled for."""
        return Target(self.backend, threads=self.threads)

    def check(self, graph: Graph, feeds: Feeds) -> list[Wrong]:
        """What is wrong; nothing where the backend does not take the graph."""
        weights = Seeded(graph.params) if self.weights is None else self.weights
        backend = find_backend(self.backend, witnesses=True)
        try:
            run = backend.compile(graph, weights, self.target)
        except MissingTool:
            raise
        except Exception:  # it compiled before: what is left of the graph is another failure
            return []
        with closing(run):
            return [
                w for sizes, arrays in feeds for w in self._at(run, graph, weights, sizes, arrays)
            ]

    def _at(
        self, run: Executable, graph: Graph, weights: Weights, sizes: Sizes, arrays: Arrays
    ) -> list[Wrong]:
        dims = untold(graph, sizes)
        want = NumpyExecutable(graph, weights)(dims=dims, **arrays)
        results = want, run(dims=dims, **arrays)
        part = graph, weights, arrays, sizes
        if self.strict:
            found = isolated(*part, *results, self.backend)
            return [wrong_alone(d, sizes) for d in found if not d.ok]
        judged = judge_kernel(*part, *results, self.backend)
        return [wrong_alone(d, sizes, f"; {said}") for d, said in judged]


def wrong_alone(d: Difference, sizes: Sizes, more: str = "") -> Wrong:
    """A kernel's result that is beyond its isolated bound."""
    return Wrong(d.name, sizes, f"alone it is off by {d.worst}{more}")


def kernel_failures(
    cases: Sequence[Case],
    judge: KernelJudge,
    points: Sequence[Sizes],
    at_most: int,
    seconds: float,
) -> tuple[list[Failure], int, int]:
    """The kernels of all cases that are beyond their isolated bounds, `at_most` of them, each a
    graph that was shrunk for so many seconds; and how many results of kernels were compared, and of
    these had elements without a bound."""
    merged = merge(cases)
    weights = Seeded(merged.params)
    feeds = [(sizes, merged_feeds(cases, sizes)) for sizes in points]
    wrong: dict[str, Failure] = {}
    compared = unbounded = 0
    for kernel, sizes, arrays, d in each_alone(merged, weights, feeds, judge.target):
        compared += 1
        unbounded += not d.is_bounded
        if not d.ok and len(wrong) < at_most:
            seed = int(d.name.partition(".")[0].removeprefix("s"))
            found = Failure(seed, kernel.graph, sizes, arrays, wrong_alone(d, sizes))
            wrong.setdefault(d.name, found)
    return [shrink(failure, judge, seconds) for failure in wrong.values()], compared, unbounded


def each_alone(
    graph: Graph, weights: Weights, feeds: Feeds, target: Target
) -> Iterator[tuple[Kernel, Sizes, Arrays, Difference]]:
    """Of the graph after the passes, at each of the sizes with their inputs: the kernel, the sizes,
    what the kernel reads, and how each result differs, named for its value."""
    fused = fuse(graph, target, DEFAULT_PIPELINE).compiled
    reference = NumpyExecutable(fused, weights)
    with closing(Replay(fused, weights, target)) as replay:
        for sizes, arrays in feeds:
            traced = reference.trace(arrays, untold(graph, sizes))
            values = {value.name: array for value, _, array in traced}
            for i, kernel in enumerate(replay.kernels):
                got = replay.run(i, values, sizes)
                given = {name: values[name] for name in kernel.reads}
                part = kernel.graph, weights, given, sizes
                for found in isolated(*part, values, got, target.name) if got else ():
                    yield kernel, sizes, given, found
