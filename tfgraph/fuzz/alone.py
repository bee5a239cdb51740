"""Each kernel of a graph alone, on the reference's inputs, held to its isolated bound.

May import: api, backends, passes, ir.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.api.differ import isolated
from tfgraph.api.fuse import fuse
from tfgraph.api.part import untold
from tfgraph.api.replay import Replay
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.passes import DEFAULT_PIPELINE

if TYPE_CHECKING:
    from tfgraph.api.bounds import Difference
    from tfgraph.backends.base import Target, Weights
    from tfgraph.ir import Graph

NDArray = np.ndarray[Any, Any]
Feeds = Sequence[tuple[Mapping[str, int], Mapping[str, NDArray]]]


def each_alone(
    graph: Graph, weights: Weights, feeds: Feeds, target: Target
) -> Iterator[tuple[Mapping[str, int], str, Difference]]:
    """Of the graph after the passes, at each of the sizes with their inputs: the sizes, the op, and
    how each result differs, named for its value."""
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
                    yield sizes, kernel.node.op, found
