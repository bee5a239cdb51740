"""By how much results may differ: the one place that chooses a bound for what is compared.

May import: bounds, moves, ir.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.api.bounds import Difference, difference, softmax_axis
from tfgraph.api.moves import after_rounding, measured, moves_of

if TYPE_CHECKING:
    from tfgraph.backends.base import Weights
    from tfgraph.ir import Graph, Value

NDArray = np.ndarray[Any, Any]
Arrays = Mapping[str, NDArray]
Triple = tuple[str, "Value", NDArray, NDArray]
"""A name for the report, the value, what the reference has for it, and what the other."""


def carried(
    graph: Graph,
    weights: Weights,
    feeds: Arrays,
    sizes: Mapping[str, int],
    backends: Sequence[str],
    found: Sequence[Triple],
) -> list[Difference]:
    """Values of a graph, with the errors that two backends carry from its inputs on; behind a
    rounding to integers under the bound that is measured."""
    made = [
        (difference(name, want, got, softmax_axis(graph, value)), value)
        for name, value, want, got in found
    ]
    after = after_rounding(graph)
    names = {value.name for d, value in made if not d.ok and value in after}
    moves = moves_of(graph, weights, feeds, sizes, names) if names else {}
    return [measured(d, value, after, moves) for d, value in made]


def isolated(
    graph: Graph,
    weights: Weights,
    arrays: Arrays,
    sizes: Mapping[str, int],
    want: Arrays,
    got: Arrays,
    backend: str,
) -> list[Difference]:
    """The outputs of a kernel, on the very same inputs."""
    return [
        difference(o.name, want[o.name], got[o.name], softmax_axis(graph, o.value))
        for o in graph.outputs
    ]


def apart(a: NDArray, b: NDArray) -> float:
    """The largest difference of two arrays; infinite where they have other shapes, or only one is a
    number."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return np.inf
    x, y = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        found = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
    return float(np.max(np.where(np.isnan(found), np.inf, found), initial=0.0))
