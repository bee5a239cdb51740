"""How far results may move that depend on a rounding to integers.

A quantised model rounds activations to 8 bits. Where one lies next to the middle of two integers, a
difference in its last digit takes it to the other, and from there on two right results differ by
what a step of the quantisation does: no share of their size bounds that. So it is measured. The
reference is run again, three times, with the result of every op a little off, and a result may
differ by twice as much as it moved. May import: bounds, backends, ops, ir.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.api.bounds import Difference
from tfgraph.backends.rounding import UNITS
from tfgraph.ops import FloatArray
from tfgraph.ops.evaluate import run_node

if TYPE_CHECKING:
    from tfgraph.ir import Graph, Node, Value

NDArray = np.ndarray[Any, Any]
Arrays = Mapping[str, NDArray]

_RUNS = 3
_SLACK = 2  # the moves are random, the worst case is not
_ROUNDINGS = 200  # that each op may have made: as many as a long sum makes at worst

# Ops that compute nothing.
_MOVEMENTS = {
    *("reshape", "transpose", "broadcast_to", "concat", "slice", "take", "take_at", "embedding"),
    *("where", "cast", "mask", "maximum", "minimum", "max", "neg", "abs"),
}


def after_rounding(graph: Graph) -> frozenset[Value]:
    """The values that depend on a float of the inputs that is rounded to an integer."""
    found: set[Value] = set()
    for node in graph.nodes:
        x = node.inputs[0] if node.inputs else None
        rounds = (
            node.op == "cast"
            and x is not None
            and x.type.dtype.is_float
            and node.output.type.dtype.is_int
            and x not in graph.weight_values
        )
        if rounds or not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return frozenset(found)


def to_measure(found: Difference, value: Value, after: Collection[Value]) -> bool:
    """Whether it must be measured how far a value may move: where no bound could be told, since
    roundings may turn what it depends on, or where it is beyond its bound behind a rounding."""
    return bool(np.isposinf(found.bound)) or (not found.ok and value in after)


def measured(
    found: Difference, value: Value, after: Collection[Value], moves: Mapping[str, float]
) -> Difference:
    """The difference under the bound that was measured, where that is the larger one, or the only
    one."""
    bound = _SLACK * moves.get(value.name, 0.0)
    if not to_measure(found, value, after) or bound <= found.bound < np.inf:
        return found
    return replace(found, bound=bound, ok=found.max_abs <= bound)


def moves_of(
    graph: Graph, weights: Arrays, inputs: Arrays, sizes: Mapping[str, int], names: set[str]
) -> dict[str, float]:
    """By how much each of the named values moves at most."""
    given = {**inputs, **{p.value.name: weights[p.value.name] for p in graph.params}}
    want = {name: a for name, a in _values(graph, given, sizes, None) if name in names}
    moves = dict.fromkeys(want, 0.0)
    for seed in range(_RUNS):
        for name, got in _values(graph, given, sizes, np.random.default_rng(seed)):
            if name in names:
                moves[name] = max(moves[name], _apart(want[name], got))
    return moves


def _apart(a: NDArray, b: NDArray) -> float:
    apart = np.abs(a.astype(np.float64) - b.astype(np.float64))
    return float(np.max(apart, initial=0.0, where=np.isfinite(apart)))


def _values(
    graph: Graph, given: Arrays, sizes: Mapping[str, int], rng: np.random.Generator | None
) -> Iterator[tuple[str, NDArray]]:
    """The results of the nodes in order, with `rng` each a little off."""
    known = {name: FloatArray(array) for name, array in given.items()}
    last = {v: i for i, node in enumerate(graph.nodes) for v in node.inputs}
    like = FloatArray(np.zeros((), np.float64))
    for i, node in enumerate(graph.nodes):
        results = run_node(node, known, sizes, like)
        for value, result in zip(node.outputs, results, strict=True):
            data = result.data
            if rng is not None and _is_inexact(node, graph):
                data = _moved(data, rng)
            known[value.name] = FloatArray(data)
            yield value.name, data
        for value in set(node.inputs):
            if last[value] == i:
                del known[value.name]


def _is_inexact(node: Node, graph: Graph) -> bool:
    return node.op not in _MOVEMENTS and not graph.weight_values.issuperset(node.outputs)


def _moved(data: NDArray, rng: np.random.Generator) -> NDArray:
    """Each element a share of itself off, up or down; whole numbers are exact and stay."""
    unit = _ROUNDINGS * UNITS.get(str(data.dtype), 0.0)
    with np.errstate(all="ignore"):
        if not unit or (data == np.rint(data)).all():
            return data
        signs = rng.integers(0, 2, data.shape, np.int8)
        moved: NDArray = (data * (1 + unit * (2.0 * signs - 1))).astype(data.dtype)
        return moved
