"""End-to-end bounds: how far a whole graph may be from the reference, all roundings together.

Worst cases carried through layers are of no use: they are off by 1e150 in BERT-base. These are
quantiles: of the largest element of a few draws of random roundings, pooled over the tensor. May
import: draws, dual, isolated, backends, ops, ir.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.backends.base import Target, Weights
from tfgraph.backends.rounding import SMALLEST
from tfgraph.ir import DType
from tfgraph.ops.evaluate import run_node
from tfgraph.rounding.draws import Noise, factor
from tfgraph.rounding.dual import Dual
from tfgraph.rounding.isolated import arithmetic, held_constants, weights_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tfgraph.ir import Graph

NDArray = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Spread:
    """What roundings do to a value: a bound of any element's error, and the largest element."""

    bound: float
    largest: float


def end_to_end(
    graph: Graph,
    weights: Weights,
    feeds: Mapping[str, NDArray],
    sizes: Mapping[str, int],
    backend: str | Target | None,
    values: Collection[str] | None = None,
) -> dict[str, float]:
    """For each value by name, those of the outputs by default, what |result - reference| is rarely
    above anywhere: in one of 1 / MISSES tensors.

    A bound is infinite where roundings may turn a discrete result that the value depends on: a
    comparison, top-k, a floor; then nothing can be told. The backend is as in `isolated_bounds`.
    """
    found = spreads(graph, weights, feeds, sizes, backend, values)
    return {name: spread.bound for name, spread in found.items()}


@np.errstate(all="ignore")  # what is large, or no number, is carried on
def spreads(
    graph: Graph,
    weights: Weights,
    feeds: Mapping[str, NDArray],
    sizes: Mapping[str, int],
    backend: str | Target | None,
    values: Collection[str] | None = None,
    *,
    dtype: str = "float64",
    seed: int = 0,
) -> dict[str, Spread]:
    """`end_to_end`, and how large the values are. `dtype` is that of the calculation: float32 is
    twice as fast, and enough where no sum cancels to nothing."""
    resolved, rounding_of = arithmetic(graph, backend)
    arrays = {i.value.name: feeds[i.value.name] for i in graph.inputs}
    arrays |= weights_of(resolved, weights, backend)
    noise = Noise(seed, dtype)
    given = (v for v in resolved.values() if v.name in arrays)
    known = {v.name: _exactly(arrays[v.name], v.type.dtype, noise) for v in given}
    wanted = {o.value.name for o in graph.outputs} if values is None else set(values)
    found = {name: _spread(known[name]) for name in wanted if name in known}
    last = {v.name: i for i, node in enumerate(resolved.nodes) for v in node.inputs}
    for i, node in enumerate(resolved.nodes):
        if all(v.name in arrays for v in node.outputs):
            continue
        rounding = rounding_of(node)
        operands = {v.name: replace(known[v.name], rounding=rounding) for v in node.inputs}
        like = Dual(np.zeros((), dtype), DType.float64, noise, rounding=rounding)
        results = run_node(held_constants(node), operands, sizes, like)
        for value, result in zip(node.outputs, results, strict=True):
            known[value.name] = result.settled
            if value.name in wanted:
                found[value.name] = _spread(known[value.name])
        for name in {v.name for v in node.inputs}:
            if last[name] == i:
                del known[name]
    return found


def _exactly(array: NDArray, dtype: DType, noise: Noise) -> Dual:
    wide = array.astype(noise.dtype, copy=False) if dtype.is_float else array
    return Dual(wide, dtype, noise)


def _spread(value: Dual) -> Spread:
    if not value.is_float:
        return Spread(0.0 if value.sure else np.inf, 0.0)
    sizes = np.abs(value.data[np.isfinite(value.data)])
    largest = float(sizes.max(initial=0))
    if not value.sure:
        return Spread(np.inf, largest)
    off = 0.0 if value.tangent is None else float(np.abs(value.tangent).max(initial=0))
    return Spread(factor(value.noise.draws) * off + SMALLEST[value.dtype_.value], largest)
