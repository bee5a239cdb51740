"""The weights of an artifact, as they were loaded, against those of the model.

May import: backends, ops, runtime, ir.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.backends.layouts import unpacked
from tfgraph.ops import FloatArray
from tfgraph.ops.evaluate import run_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfgraph.backends.base import Weights
    from tfgraph.ir import Graph, Value
    from tfgraph.runtime.model import Model

NDArray = np.ndarray[Any, Any]


@dataclass(frozen=True)
class WrongWeight:
    """A weight whose bytes in the artifact are not the model's: where they differ first, how many
    do, and which of the model's weights they are instead, if any."""

    name: str
    index: tuple[int, ...]
    different: int
    of: int
    max_abs: float
    instead: str | None

    def __str__(self) -> str:
        which = f"{self.different} of {self.of} elements differ, by up to {self.max_abs:.2e}"
        return which + (f"; it holds {self.instead}" if self.instead else "")


def wrong_weights(model: Model, graph: Graph, weights: Weights) -> Iterator[WrongWeight]:
    """The weights of `main` that differ from what the graph, which was compiled, computes of the
    model's, in order. Those in a layout that is not known are left out."""
    values = _by_name(graph)
    for stored in model.stored_weights():
        for value in values.get(stored.name.partition(":")[0], ()):
            want = _array(graph, value, weights)
            got = unpacked(stored.layout, stored.array, want.shape)
            if got is None or got.dtype != want.dtype:
                continue
            same = _same(got, want)
            if not same.all():
                yield _wrong(stored.sources, value, want, got, same, graph, weights)
            break


def _same(a: NDArray, b: NDArray) -> NDArray:
    return np.asarray((a == b) | ((a != a) & (b != b)))


def _wrong(
    sources: tuple[str, ...],
    value: Value,
    want: NDArray,
    got: NDArray,
    same: NDArray,
    graph: Graph,
    weights: Weights,
) -> WrongWeight:
    with np.errstate(all="ignore"):
        apart = np.abs(got.astype(np.float64) - want.astype(np.float64))
    first = np.unravel_index(int(np.argmin(same)), same.shape)
    index = tuple(int(i) for i in first)
    name = value.name if "~" not in value.name else "+".join(sources)
    count = int(np.sum(~same))
    largest = float(np.nanmax(apart, initial=0))
    return WrongWeight(name, index, count, same.size, largest, _instead(got, want, graph, weights))


def _instead(got: NDArray, want: NDArray, graph: Graph, weights: Weights) -> str | None:
    """What of the model the array is: its own weight in another order, or another weight."""
    if got.ndim == 2 and got.shape[0] == got.shape[1] and _same(got, want.T).all():
        return "its own transpose"
    for param in graph.params:
        other = weights[param.value.name]
        if other.shape == got.shape and other.dtype == got.dtype and _same(other, got).all():
            return f"%{param.value.name}"
    if np.array_equal(np.sort(got, axis=0), np.sort(want, axis=0)):
        return "its own rows in another order"
    if np.array_equal(np.sort(got, axis=None), np.sort(want, axis=None)):
        return "its own elements in another order"
    return None


def _by_name(graph: Graph) -> dict[str, list[Value]]:
    """The weights that kernels read, by the names that artifacts give them."""
    known = graph.weight_values
    read = [v for n in graph.nodes if not known.issuperset(n.outputs) for v in n.inputs]
    found: dict[str, list[Value]] = {}
    for value in dict.fromkeys([*(v for v in read if v in known), *graph.param_values]):
        for name in {value.name, "+".join(_sources(graph, value))}:
            found.setdefault(name, []).append(value)
    return found


def _sources(graph: Graph, value: Value) -> list[str]:
    if value in graph.param_values:
        return [value.name]
    made_of = graph.producer[value].inputs
    return list(dict.fromkeys(name for v in made_of for name in _sources(graph, v)))


def _array(graph: Graph, value: Value, weights: Weights) -> NDArray:
    """A weight's array on the reference."""
    if value in graph.param_values:
        return weights[value.name]
    node = graph.producer[value]
    known = {v.name: FloatArray(_array(graph, v, weights)) for v in node.inputs}
    results = run_node(node, known, {}, FloatArray(np.zeros((), np.float64)))
    return results[node.outputs.index(value)].data
