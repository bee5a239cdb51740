"""How large the roundings of a sum are statistically; see docs/tolerances.md. May import: numpy."""

from __future__ import annotations

from typing import Any

import numpy as np

NDArray = np.ndarray[Any, Any]


def summed(depth: Any, squares: NDArray, total: NDArray, repeats: NDArray) -> NDArray:
    """The variance of a sum's roundings in units u, of a tree of that depth over terms of which the
    squares and the terms themselves sum up to these: h (squares / 6 + r total^2 / 9), where equal
    terms, r of each, are rounded alike: r independent errors of a partial sum are one, r times."""
    alike = np.minimum(repeats, depth)
    return np.asarray(depth * (squares / 6 + alike * np.square(total) / 9))


def repeats_of(terms: NDArray, axis: int) -> NDArray:
    """How often a term of a line occurs in it, on the average; 0 is added without a rounding."""
    ranked = np.sort(terms.swapaxes(axis, -1))
    counts = ranked != 0
    first = np.ones_like(counts)
    first[..., 1:] = ranked[..., 1:] != ranked[..., :-1]
    distinct = np.sum(counts & first, axis=-1, keepdims=True)
    repeats = np.sum(counts, axis=-1, keepdims=True) / np.maximum(distinct, 1)
    return np.asarray(np.maximum(repeats, 1).swapaxes(axis, -1), terms.dtype)
