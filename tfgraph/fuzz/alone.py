"""Each kernel of a graph alone, on the reference's inputs, held to its isolated bound.

May import: api, rounding, backends, passes, ir.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.api.bounds import Difference, difference
from tfgraph.api.fuse import fuse
from tfgraph.api.part import untold
from tfgraph.backends.base import Target, find_backend
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.passes import DEFAULT_PIPELINE
from tfgraph.rounding import apart, isolated_bounds

if TYPE_CHECKING:
    from tfgraph.backends.base import Weights
    from tfgraph.ir import Graph

NDArray = np.ndarray[Any, Any]
Feeds = Sequence[tuple[Mapping[str, int], Mapping[str, NDArray]]]


def each_alone(
    graph: Graph, weights: Weights, feeds: Feeds, target: Target
) -> Iterator[tuple[Mapping[str, int], str, Difference]]:
    """Of the graph after the passes, at each of the sizes with their inputs: the sizes, the op, and
    how each result differs, named for its value."""
    fused = fuse(graph, target, DEFAULT_PIPELINE).compiled
    parts = apart(fused)
    reference = NumpyExecutable(fused, weights)
    producer = {value.name: node for value, node in fused.producer.items()}
    with find_backend(target.name).compile(parts, weights, target) as run:
        for sizes, arrays in feeds:
            traced = reference.trace(arrays, untold(graph, sizes))
            values = {value.name: array for value, _, array in traced}
            given = {i.value.name: values[i.value.name] for i in parts.inputs}
            got = run(dims=untold(parts, sizes), **given)
            bounds = isolated_bounds(parts, weights, given, sizes, target)
            for name, bound in bounds.items():
                found = difference(name, values[name], got[name], bound)
                yield sizes, producer[name].op, found
