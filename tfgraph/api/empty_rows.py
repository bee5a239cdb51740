"""Rows with no allowed key, where the least number of a type was read as minus infinity.

Softmax over scores that are all the least number is the mean; over scores that are all minus
infinity it is zeros (`recover-masks`). So a graph and what the passes made of it differ there, and
in whatever depends on such a row: there, and nowhere else, the graph after the passes says what is
right. May import: float64, ops, ir.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.api.float64 import Disturbed, outputs_in_float64
from tfgraph.ops import FloatArray

if TYPE_CHECKING:
    from tfgraph.backends.base import Weights
    from tfgraph.ir import Graph
    from tfgraph.ops import OpDef

NDArray = np.ndarray[Any, Any]
Arrays = Mapping[str, NDArray]


def settle_empty_rows(
    reference: Arrays, compiled: Graph, weights: Weights, inputs: Arrays, sizes: Mapping[str, int]
) -> tuple[dict[str, NDArray], int]:
    """The reference's outputs, but for elements that depend on a row with no allowed key: those
    are what the graph after the passes gives, in float64. And how many rows, along the last axis,
    have such elements, in all outputs.

    An element depends on such rows if it changes when they are other numbers than zeros.
    """
    nothing = np.zeros(())
    zeros = outputs_in_float64(compiled, weights, inputs, sizes, FloatArray(nothing))
    others = outputs_in_float64(compiled, weights, inputs, sizes, _Stirred(nothing))
    made, rows = dict[str, NDArray](), 0
    for name, array in reference.items():
        a, b = zeros[name], others[name]
        depends = ~((a == b) | ((a != a) & (b != b)))
        made[name] = np.where(depends, a.astype(array.dtype), array)
        rows += int(np.count_nonzero(depends.any(-1) if depends.ndim else depends))
    return made, rows


def as_written(
    reference: Arrays,
    results: Arrays,
    compiled: Graph,
    weights: Weights,
    inputs: Arrays,
    sizes: Mapping[str, int],
) -> tuple[dict[str, NDArray], int]:
    """What a backend gives for the graph after the passes, as if rows with no allowed key were what
    they are in the graph as it was written, whose outputs the `reference` are: with the same
    errors. And how many rows of outputs depend on such."""
    settled, rows = settle_empty_rows(reference, compiled, weights, inputs, sizes)
    made: dict[str, NDArray] = {}
    for name, got in results.items():
        want, zeroed = reference[name], settled[name]
        if want.shape != got.shape or want.dtype != got.dtype:
            made[name] = got
            continue
        with np.errstate(all="ignore"):
            moved = want.astype(np.float64) + (got.astype(np.float64) - zeroed)
        same = (want == zeroed) | ((want != want) & (zeroed != zeroed))
        made[name] = np.where(same, got, moved.astype(got.dtype))
    return made, rows


@dataclass(frozen=True, eq=False)
class _Stirred(Disturbed):
    """An array in whose ops a row with no allowed key has weights that are not zero."""

    def result(
        self, definition: OpDef, operands: Sequence[Any], attrs: Mapping[str, Any], data: NDArray
    ) -> NDArray:
        """Some numbers in the empty rows of a softmax."""
        if definition.name != "softmax":
            return data
        empty: Any = operands[0].empty(attrs["axis"]).data
        weights = np.random.default_rng(0).random(data.size).reshape(data.shape) + 0.5
        return np.where(empty, weights, data)
