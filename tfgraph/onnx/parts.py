"""Tensors of an ONNX file that are made of smaller or plainer ones: these become the weights.

A bias and a causal mask that were added up are told apart, slopes times distances (ALiBi) become
that product, buckets of distances (T5) their table, a table of two equal halves is made of one. All
of these are exact. May import: file, site, constants, ops, ir.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph import ops
from tfgraph.ir import DType
from tfgraph.ir.mask import FARTHEST_BUCKET, SENTINEL, bucket_bounds, dense, relative
from tfgraph.onnx.constants import LARGEST, near_diagonal, positions
from tfgraph.onnx.site import literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.onnx.file import Stored

    NDArray = np.ndarray[Any, Any]
    MakeParam = Callable[[Stored], Any]

_ROWS = (8, 16, 32, 64)
"""T5 has 32."""
_LEAST_SIZE = 4
"""Smaller squares are of distances by chance, as rotations are."""


def of_parts(x: Stored, param: MakeParam) -> Any:
    """The value of a tensor of floats, of several elements, from parameters that `param` makes of
    its parts; None for others. Weights are told from them by a few elements, and not read."""
    if len(x.shape) < 2:
        return None
    found = _banded(x, param)
    found = _of_distances(x, param, None) if found is None else found
    return _repeated(x, param) if found is None else found


def _banded(x: Stored, param: MakeParam) -> Any:
    """A least number outside of a band over the last two axes, others inside: a choice by
    positions, or a mask, of what is 0 outside."""
    array = x.read()
    matrix = array.reshape(-1, *x.shape[-2:])[0]
    least = min(matrix[0, -1], matrix[-1, 0])
    hidden = matrix == least if least <= SENTINEL and x.size <= LARGEST else None
    if hidden is None or hidden.all() or ((array == least) != hidden).any():
        return None
    shown = near_diagonal(~hidden)
    if shown is None:
        return None

    def read() -> NDArray:
        whole = x.read()
        return np.where(hidden, whole.dtype.type(0), whole)

    rest = literal(read(), x.dtype)
    rest = _of_distances(x, param, hidden) if rest is None else rest
    rest = param(replace(x, read=read)) if rest is None else rest
    if np.isneginf(float(least)):  # which the IR has in masks alone
        return ops.mask(rest, dense(shown))
    number = literal(np.asarray(least), x.dtype)
    return ops.where(shown, rest, number)


def _of_distances(x: Stored, param: MakeParam, hidden: NDArray | None) -> Any:
    """Numbers of each head that depend on j - i alone, in [..., head, query, key], wherever they
    are not hidden: slopes (ALiBi), or a table of buckets (T5)."""
    size = x.shape[-1]
    if len(x.shape) < 3 or size == 1 or x.shape[-2] != size or x.size > LARGEST:
        return None
    every = x.read().reshape(-1, x.shape[-3], size, size)
    heads = every[0]
    if heads[0, 0, 0] != heads[0, 1, 1] or not (every == heads).all():  # as weights
        return None
    hidden = np.zeros((size, size), bool) if hidden is None else hidden
    far = np.array(range(size)) - np.array(range(size))[:, None]
    slopes = -heads[:, 1:2, :1]
    with np.errstate(invalid="ignore", over="ignore"):
        product = slopes * far.astype(heads.dtype)
    if (_same(heads, product) | hidden).all():
        each = param(replace(x, shape=slopes.shape, read=lambda: slopes))
        bias = ops.mul(each, ops.cast(positions(far, DType.int64), dtype=x.dtype))
        return _broadcast(bias, x)
    line = np.concatenate([heads[:, :0:-1, 0], heads[:, 0]], -1)  # by distance, from 1 - size
    seen = ~np.concatenate([hidden[:0:-1, 0], hidden[0]])
    sums = line[:, far + size - 1] + 0  # as a mask adds them, to which -0 is 0
    if size < _LEAST_SIZE or not _same(heads, sums).all():  # what is hidden is a band, too
        return None
    found = _buckets(line, seen)
    if found is None:
        return None
    table, most, both = found
    rows = param(replace(x, shape=table.shape, read=lambda: table))
    zeros = ops.full(shape=heads.shape, value=0, dtype=x.dtype)
    return _broadcast(ops.mask(zeros, relative(rows, most, bidirectional=both)), x)


def _buckets(line: NDArray, seen: NDArray) -> tuple[NDArray, int, bool] | None:
    """The smallest table [buckets, head] by which T5 gives numbers [head, distance], the largest
    distance that it tells apart, and whether it tells both directions apart."""
    last = line.shape[-1] // 2
    distances = np.array(range(-last, last + 1))[seen]
    numbers = line[:, seen].T
    if not np.isfinite(numbers.astype(np.float64)).all():
        return None
    for rows in _ROWS:
        for both in (True, False):
            count = rows // 2 if both else rows
            others = range(count // 2 + 1, min(2 * last + 2, FARTHEST_BUCKET))
            for most in (FARTHEST_BUCKET, *others):
                index = np.searchsorted(
                    bucket_bounds(count, most), np.abs(distances) if both else -distances, "right"
                )
                index += (distances > 0) * count * both
                table = np.zeros((rows, len(line)), line.dtype)
                table[index] = numbers
                if (table[index] == numbers).all():
                    return table, most, both
    return None


def _same(a: NDArray, b: NDArray) -> NDArray:
    """Where two are equal, zeros in their signs too."""
    same: NDArray = (a == b) & (np.signbit(a) == np.signbit(b))
    return same


def _broadcast(value: Any, x: Stored) -> Any:
    """A value [head, query, key] in the shape of a tensor."""
    return value if len(x.shape) == 3 else ops.broadcast_to(value, shape=x.shape)


def _repeated(x: Stored, param: MakeParam) -> Any:
    """A table of two equal halves, or of equal pairs, as cosines of rotary positions are: made of a
    table of one half."""
    if x.shape[-1] % 2:
        return None
    shape = (*x.shape[:-1], x.shape[-1] // 2)
    halves, pairs = (*shape[:-1], 2, shape[-1]), (*shape, 2)
    if _agree(x.read().reshape(halves), -2):
        part = param(replace(x, shape=shape, read=_first(x, halves, -2)))
        return ops.concat(part, part, axis=-1)
    if _agree(x.read().reshape(pairs), -1):
        part = param(replace(x, shape=shape, read=_first(x, pairs, -1)))
        wide = ops.broadcast_to(ops.reshape(part, shape=(*shape, 1)), shape=pairs)
        return ops.reshape(wide, shape=x.shape)
    return None


def _agree(array: NDArray, axis: int) -> bool:
    """Whether the two slices along an axis are equal; weights differ in their first rows."""
    first, second = np.moveaxis(array, axis, 0)
    row = (0,) * (first.ndim - 1)
    return bool((first[row] == second[row]).all() and (first == second).all())


def _first(x: Stored, shape: tuple[int, ...], axis: int) -> Callable[[], NDArray]:
    """What gives the first slice of a tensor under another shape."""
    return lambda: np.take(x.read().reshape(shape), 0, axis=axis)
