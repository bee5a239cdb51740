"""How far the outputs of a graph may be from the reference, at any sizes.

The errors are carried along at a few small sizes, which a verification can afford, and read off for
larger ones. May import: backends, rounding, runtime, cost, ir.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfgraph.backends.base import Target, Weights, input_ports
from tfgraph.cost import cost
from tfgraph.ir import Graph, as_dim
from tfgraph.parallel import side_by_side
from tfgraph.rounding import Spread, spreads
from tfgraph.runtime.examples import example

NDArray = np.ndarray[Any, Any]

_CHEAP = 1e8  # operations up to which float64 costs nothing


class Allowed:
    """The bounds of a graph's outputs, from the errors at each of the points."""

    def __init__(
        self,
        graph: Graph,
        weights: Weights,
        target: Target | None,
        points: Sequence[Mapping[str, int]],
    ) -> None:
        self._values = {o.name: o.value.name for o in graph.outputs}
        ports, flops = input_ports(graph), as_dim(cost(graph).total.flops)

        def at(point: tuple[int, Mapping[str, int]]) -> Mapping[str, Spread]:
            seed, sizes = point
            feeds = {port.name: example(port, sizes, seed) for port in ports}
            dtype = "float64" if flops.evaluate(sizes) < _CHEAP else "float32"
            return spreads(graph, weights, feeds, sizes, target, dtype=dtype)

        with side_by_side(len(points)) as each:
            self._found = each(at, enumerate(points))

    def bound(self, output: str, reference: NDArray) -> float:
        """The bound of an output that the reference gives: the largest of all points, scaled with
        the values where these are larger. Errors grow with the values, and hardly with lengths: a
        sum of n terms errs by a share that grows with the root of its depth."""
        found = [spread[self._values[output]] for spread in self._found]
        told = [spread for spread in found if np.isfinite(spread.bound)]
        if not told:
            return np.inf
        if reference.dtype.kind in "iub":
            return 0.0
        sizes = np.abs(reference[np.isfinite(reference)].astype(np.float64))
        largest = float(sizes.max(initial=0))
        return max(s.bound * max(1.0, largest / s.largest if s.largest else 1.0) for s in told)
