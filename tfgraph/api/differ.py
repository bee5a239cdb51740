"""By how much results may differ: the one place that chooses a bound for what is compared.

May import: bounds, moves, backends, rounding, ir.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.api.bounds import Difference, difference
from tfgraph.api.moves import after_rounding, measured, moves_of, to_measure
from tfgraph.backends.base import backend_names
from tfgraph.rounding import end_to_end, isolated_bounds

if TYPE_CHECKING:
    from tfgraph.backends.base import Target, Weights
    from tfgraph.ir import Graph, Value

NDArray = np.ndarray[Any, Any]
Arrays = Mapping[str, NDArray]
REFERENCE = "numpy"
Triple = tuple[str, "Value", NDArray, NDArray]
"""A name for the report, the value, what the reference has for it, and what the other."""


def carried(
    graph: Graph,
    weights: Weights,
    feeds: Arrays,
    sizes: Mapping[str, int],
    backends: Sequence[str | Target],
    found: Sequence[Triple],
) -> list[Difference]:
    """Values of a graph, with the errors that two backends carry from its inputs on; behind a
    rounding to integers under the bound that is measured."""
    bounds = dict.fromkeys({value.name for _, value, _, _ in found}, 0.0)
    # The reference's own roundings are in the bound of any other backend.
    for backend in {b for b in backends if name_of(b) != REFERENCE} or {REFERENCE}:
        more = end_to_end(graph, weights, feeds, sizes, _kernels(backend), set(bounds))
        bounds = {value: bound + more[value] for value, bound in bounds.items()}
    made = [
        (difference(name, want, got, bounds[value.name]), value) for name, value, want, got in found
    ]
    after = after_rounding(graph)
    names = {value.name for d, value in made if to_measure(d, value, after)}
    moves = moves_of(graph, weights, feeds, sizes, names) if names else {}
    return [measured(d, value, after, moves) for d, value in made]


def isolated(
    graph: Graph,
    weights: Weights,
    arrays: Arrays,
    sizes: Mapping[str, int],
    want: Arrays,
    got: Arrays,
    backend: str | Target,
) -> list[Difference]:
    """The outputs of a kernel, on the very same inputs."""
    bounds = isolated_bounds(graph, weights, arrays, sizes, _kernels(backend))
    return [difference(o.name, want[o.name], got[o.name], bounds[o.name]) for o in graph.outputs]


def _kernels(backend: str | Target) -> str | Target | None:
    """The backend whose kernels round; None for one that says nothing of its own."""
    return backend if name_of(backend) in backend_names() else None


def name_of(backend: str | Target) -> str:
    """What a backend is called."""
    return backend if isinstance(backend, str) else backend.name


def apart(a: NDArray, b: NDArray) -> float:
    """The largest difference of two arrays; infinite where they have other shapes, or only one is a
    number."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return np.inf
    x, y = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        found = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
    return float(np.max(np.where(np.isnan(found), np.inf, found), initial=0.0))
