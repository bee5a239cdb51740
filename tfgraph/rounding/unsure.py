"""Where a discrete result of floats may be another, if each float may be off by so much.

The results are infinite there, 0 elsewhere. May import: ops, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.ops import FloatArray

if TYPE_CHECKING:
    from tfgraph.ir import DType

NDArray = np.ndarray[Any, Any]


def unsure_less(a: NDArray, b: NDArray, error: NDArray) -> NDArray:
    """Of a < b and of a == b, whose difference may be off by `error`."""
    with np.errstate(all="ignore"):
        apart = np.abs(np.subtract(a, b, dtype=np.float64))
    return np.where((apart <= error) & (error > 0), np.inf, 0.0)


def unsure_order(x: NDArray, error: NDArray, k: int) -> NDArray:
    """Of the indices of the k largest along the last axis, whose elements may be off by `error`,
    one for each row."""
    best = np.sort(x, axis=-1)[..., ::-1][..., : k + 1].astype(np.float64)
    with np.errstate(all="ignore"):
        near = np.diff(best, axis=-1) >= -2 * error  # not of NaN, nor of equal infinities
    unsure = np.zeros((*x.shape[:-1], k), np.bool_)
    unsure[..., : near.shape[-1]] |= near[..., :k]
    unsure[..., 1:] |= near[..., : k - 1]
    return np.where(unsure & (error > 0), np.inf, 0.0)


def unsure_integer(x: NDArray, error: NDArray, dtype: DType) -> NDArray:
    """Of the conversion to an integer or bool."""
    with np.errstate(all="ignore"):
        y, low, high = (FloatArray(z).cast(dtype).data for z in (x, x - error, x + error))
    return np.where((low != y) | (high != y), np.inf, 0.0)
