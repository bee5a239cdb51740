"""A random graph with its inputs: how each is filled, from ordinary numbers to hard ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.ir import as_dim

if TYPE_CHECKING:
    from tfgraph.ir import Graph

NDArray = np.ndarray[Any, Any]

# How an input is filled; the number is log10 of its largest element.
FILLS: Mapping[str, float] = {
    "normal": 0.7,
    "zeros": 0.0,
    "constant": 0.3,
    "offset": 2.1,  # a mean of 100 with a spread of 0.01
    "large": 4.7,
    "small": -2.0,
    "whole": 1.0,  # small integers as floats
}


@dataclass
class Case:
    """A random graph and how its inputs are filled: name to (kind, argument)."""

    seed: int
    graph: Graph
    fills: Mapping[str, tuple[str, Any]]

    def feeds(self, sizes: Mapping[str, int]) -> dict[str, NDArray]:
        """Arrays for the inputs at these sizes."""
        arrays: dict[str, NDArray] = {}
        for i, given in enumerate(self.graph.inputs):
            rng = np.random.default_rng([self.seed, i, *sizes.values()])
            type_ = given.value.type
            shape = tuple(d.evaluate(sizes) for d in type_.shape)
            kind, argument = self.fills[given.value.name]
            made = _filled(kind, argument, shape, sizes, rng, arrays)
            arrays[given.value.name] = np.asarray(made).astype(type_.dtype.value)
        return arrays


def _filled(
    kind: str,
    argument: Any,
    shape: tuple[int, ...],
    sizes: Mapping[str, int],
    rng: np.random.Generator,
    earlier: Mapping[str, NDArray],
) -> NDArray:
    normal = rng.standard_normal(shape)
    match kind:
        case "zeros":
            return np.zeros(shape)
        case "constant":
            return np.full(shape, rng.standard_normal())
        case "offset":
            return 100 + 0.01 * normal
        case "large":
            return 1e4 * normal
        case "small":
            return 1e-3 * normal
        case "whole":
            return np.round(3 * normal)
        case "ids":
            return rng.integers(0, as_dim(argument).evaluate(sizes), shape)
        case "lengths":  # none at all and one too many among them
            return rng.integers(0, as_dim(argument).evaluate(sizes) + 2, shape)
        case "prefix":
            return np.arange(shape[-1]) < rng.integers(0, shape[-1] + 1, (*shape[:-1], 1))
        case "bools":
            return rng.random(shape) < 0.7
        case "segments":
            return np.sort(rng.integers(0, 3, shape), axis=-1)
        case "hidden":  # normal, but what a mask hides is (argument: the mask's input, the filling)
            keep, dirt = earlier[argument[0]], argument[1]
            return np.where(keep[..., None] != 0, normal, dirt)
        case _:
            return normal
