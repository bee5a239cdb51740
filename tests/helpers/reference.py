"""Runs a graph through its ops' bodies on NumPy arrays, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgraph.ops import FloatArray, evaluate

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from tfgraph.ir import Graph


def run_graph(
    graph: Graph, arrays: Mapping[str, np.ndarray[Any, Any]]
) -> dict[str, np.ndarray[Any, Any]]:
    """Every result by value name, every output by its name; `arrays` holds inputs and weights."""
    sizes: dict[str, int] = {}
    for given in graph.inputs:
        shape = arrays[given.value.name].shape
        for dim, size in zip(given.value.type.shape, shape, strict=True):
            if str(dim).isidentifier():
                assert sizes.setdefault(str(dim), size) == size
    given_arrays = {name: FloatArray(array) for name, array in arrays.items()}
    values = dict(arrays)
    like = next(iter(given_arrays.values()))
    for node, results in evaluate(graph, given_arrays, sizes, like):
        values |= {v.name: r.data for v, r in zip(node.outputs, results, strict=True)}
    return values | {o.name: values[o.value.name] for o in graph.outputs}
