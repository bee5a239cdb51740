"""A random graph with its inputs: how each is filled, from ordinary numbers to hard ones.

May import: ir.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.ir import as_dim
from tfgraph.ops.floats import numpy_dtype

if TYPE_CHECKING:
    from tfgraph.ir import Graph

NDArray = np.ndarray[Any, Any]

FILLS: Mapping[str, float] = {
    "normal": 0.7,
    "zeros": 0.0,
    "constant": 0.3,
    "offset": 2.1,  # a mean of 100 with a spread of 0.01
    "large": 4.7,
    "small": -2.0,
    "whole": 1.0,  # small integers as floats
    "denormal": -30.0,
    "edges": 40.0,  # the largest and smallest numbers of the dtype, both zeros, infinities
    "one-hot": 0.0,
    "special": 0.7,  # normal, with NaN and infinities here and there
}
"""How an input of floats is filled; the number is log10 of its largest element."""


@dataclass
class Case:
    """A random graph and how its inputs are filled: name to (kind, argument)."""

    seed: int
    graph: Graph
    fills: Mapping[str, tuple[str, Any]]

    def feeds(self, sizes: Mapping[str, int]) -> dict[str, NDArray]:
        """Arrays for the inputs at these sizes, which follow from the seed."""
        arrays: dict[str, NDArray] = {}
        for i, given in enumerate(self.graph.inputs):
            rng = np.random.default_rng([self.seed, i, *sizes.values()])
            type_ = given.value.type
            shape = tuple(d.evaluate(sizes) for d in type_.shape)
            kind, argument = self.fills[given.value.name]
            dtype = numpy_dtype(type_.dtype)
            if kind == "edges":
                made = _edges(dtype, shape, rng)
            elif kind == "denormal":
                made = rng.integers(-9, 10, shape) * float(limits_of(dtype).smallest_subnormal)
            else:
                made = _filled(kind, argument, shape, sizes, rng, arrays)
            with np.errstate(over="ignore"):  # 1e4 times a normal number may leave float16
                arrays[given.value.name] = np.asarray(made).astype(dtype)
        return arrays


def limits_of(dtype: np.dtype[Any]) -> Any:
    """As np.finfo, of bfloat16 too."""
    import ml_dtypes

    library: Any = ml_dtypes
    return library.finfo(dtype)


def _edges(dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator) -> NDArray:
    """The numbers at which a dtype ends, of either sign."""
    limits = limits_of(dtype)
    sizes = [0.0, 1.0, np.inf, *map(float, (limits.max, limits.tiny, limits.smallest_subnormal))]
    return np.asarray(rng.choice(sizes, shape) * rng.choice([-1.0, 1.0], shape))


def _filled(
    kind: str,
    argument: Any,
    shape: tuple[int, ...],
    sizes: Mapping[str, int],
    rng: np.random.Generator,
    earlier: Mapping[str, NDArray],
) -> Any:
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
        case "special":
            odd = rng.choice([np.nan, np.inf, -np.inf, -0.0], shape)
            return np.where(rng.random(shape) < 0.02, odd, normal)
        case "one-hot":  # as V it shows the attention weights
            return np.arange(shape[-1]) == np.arange(shape[-2])[:, None] % shape[-1] + 0 * normal
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
