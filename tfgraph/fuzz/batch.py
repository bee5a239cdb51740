"""Many random graphs as one, so that they share kernels, whose compilation takes time; and the
sizes at which they run. May import: ir.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.ir import Graph, Output, Symbol, Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfgraph.fuzz.inputs import Case

NDArray = np.ndarray[Any, Any]
Sizes = dict[str, int]

ONES: Sizes = {"batch": 1, "seq": 1, "memory": 1, "past": 1, "target": 1}
_BATCHES = (1, 2, 3, 5)
_LENGTHS = (1, 2, 3, 7, 13, 31, 32, 33, 61, 64, 65)
"""The least, primes, and what is at and beside the edge of a tile of kernels."""


def points(seed: int) -> list[Sizes]:
    """Four assignments of sizes to the symbols: all 1; two of any sizes; one above a tile."""
    rng = np.random.default_rng(seed)

    def any_sizes() -> Sizes:
        return {name: int(rng.choice(_BATCHES if name == "batch" else _LENGTHS)) for name in ONES}

    return [ONES, any_sizes(), any_sizes(), {**any_sizes(), "batch": 1, "seq": 65}]


def merge(cases: Sequence[Case]) -> Graph:
    """All cases as one graph. Symbols of a name are one, within the ranges of all cases; other
    names begin with the case's seed, as in `s17.y0`."""

    def renamed(case: Case) -> Graph:
        graph = case.graph

        def new(value: Value) -> Value:
            return Value(f"s{case.seed}.{value.name}", value.type)

        return replace(
            graph,
            inputs=tuple(replace(i, value=new(i.value)) for i in graph.inputs),
            params=tuple(replace(p, value=new(p.value)) for p in graph.params),
            nodes=tuple(
                replace(n.map_values(new), outputs=tuple(map(new, n.outputs))) for n in graph.nodes
            ),
            outputs=tuple(Output(f"s{case.seed}.{o.name}", new(o.value)) for o in graph.outputs),
        )

    graphs = [renamed(case) for case in cases]
    symbols: dict[str, Symbol] = {}
    for s in (s for graph in graphs for s in graph.symbols):
        known = symbols.get(s.name, s)
        symbols[s.name] = Symbol(s.name, max(s.low, known.low), min(s.high, known.high))
    return Graph(
        name="fuzz",
        symbols=tuple(symbols.values()),
        inputs=tuple(i for graph in graphs for i in graph.inputs),
        params=tuple(p for graph in graphs for p in graph.params),
        nodes=tuple(n for graph in graphs for n in graph.nodes),
        outputs=tuple(o for graph in graphs for o in graph.outputs),
    )


def merged_feeds(cases: Sequence[Case], sizes: Mapping[str, int]) -> dict[str, NDArray]:
    """The inputs of `merge(cases)`."""
    return {
        f"s{case.seed}.{name}": array for case in cases for name, array in case.feeds(sizes).items()
    }
