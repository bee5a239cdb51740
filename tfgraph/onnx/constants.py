"""Tensors of an ONNX file whose elements follow a formula: they become that formula.

A graph's text holds no bytes, so a mask or a range of positions that is stored as elements would be
a weight of which nothing is known. One repeated number becomes `full`, positions become `iota`, a
band becomes comparisons of positions. All of these are exact. May import: known, ops, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph import ops
from tfgraph.ir import DType
from tfgraph.onnx.known import shortest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgraph.ir import ExactLike

    NDArray = np.ndarray[Any, Any]

LARGEST = 2**24
"""Elements of the largest tensor that is looked at."""
_FEW = 64
_MOST_COLUMNS = 8


def formula(array: NDArray, dtype: DType) -> Any:
    """The value of a formula that gives the array, in the graph being built; None if none is
    known. The array is not empty."""
    if array.size > LARGEST:
        return None
    flat = array.reshape(-1)
    first = flat[0]
    # Weights differ early: without a look at a few, all of every file would be read.
    if _is_exact(first) and (flat[:_FEW] == first).all() and (flat == first).all():
        return _full(array.shape, first, dtype)
    if dtype in (DType.int64, DType.int32):
        found = positions(array, dtype) if array.ndim else None
        return found if found is not None or not array.ndim else _stacked(array, dtype)
    return _band(array, dtype)


def _is_exact(number: Any) -> bool:
    wide = float(number)
    return bool(np.isfinite(wide)) and not (wide == 0 and np.signbit(wide))


def _number(number: Any, dtype: DType) -> ExactLike:
    return shortest(number) if dtype.is_float else int(number)


def _full(shape: Sequence[int], number: Any, dtype: DType) -> Any:
    return ops.full(shape=tuple(shape), value=_number(number, dtype), dtype=dtype)


def positions(array: NDArray, dtype: DType) -> Any:
    """start + the sum of step * index over the axes."""
    whole = array.astype(object)  # no overflow
    start = int(whole.reshape(-1)[0])
    steps = [
        int(np.moveaxis(whole, axis, 0).reshape(size, -1)[1, 0]) - start if size > 1 else 0
        for axis, size in enumerate(array.shape)
    ]
    expected: Any = start
    for axis, (size, step) in enumerate(zip(array.shape, steps, strict=True)):
        expected = expected + along(np.array(range(size), object) * step, axis, array.ndim)
    if not (np.broadcast_to(expected, array.shape) == whole).all():
        return None
    total: Any = None
    for axis, (size, step) in enumerate(zip(array.shape, steps, strict=True)):
        if step:
            line: Any = ops.iota(length=size)
            line = line if dtype == DType.int64 else ops.cast(line, dtype=dtype)
            line = line if step == 1 else line * step
            line = ops.reshape(line, shape=_alone(size, axis, array.ndim))
            total = line if total is None else total + line
    if total is None:
        return _full(array.shape, start, dtype)
    total = total + start if start else total
    if tuple(map(int, total.shape)) != array.shape:
        total = ops.broadcast_to(total, shape=array.shape)
    return total


def along(line: NDArray, axis: int, rank: int) -> NDArray:
    """A vector as the given axis of as many."""
    return line.reshape(_alone(line.size, axis, rank))


def _alone(size: int, axis: int, rank: int) -> tuple[int, ...]:
    return tuple(size if i == axis else 1 for i in range(rank))


def _stacked(array: NDArray, dtype: DType) -> Any:
    """Positions side by side along the last axis, as indices of several axes are."""
    if array.ndim < 2 or not 1 < array.shape[-1] <= _MOST_COLUMNS:
        return None
    parts = [positions(array[..., i : i + 1], dtype) for i in range(array.shape[-1])]
    return None if any(p is None for p in parts) else ops.concat(*parts, axis=-1)


def _band(array: NDArray, dtype: DType) -> Any:
    """One number where i - left <= j <= i + right, another elsewhere; i and j count the last two
    axes: triangles and windows."""
    if array.ndim < 2:
        return None
    matrix = array.reshape(-1, *array.shape[-2:])[0]
    numbers = np.unique(matrix[(0, -1), :])
    if len(numbers) != 2 or not all(map(_is_exact, numbers)):
        return None
    for inside, outside in (numbers[::-1], numbers):
        allowed = matrix == inside
        near: Any = near_diagonal(allowed) if (allowed | (matrix == outside)).all() else None
        if near is None:
            continue
        if dtype == DType.bool_:
            near = near if inside else ops.logical_not(near)
        else:
            near = ops.where(near, _full((), inside, dtype), _full((), outside, dtype))
        if array.ndim == 2:
            return near
        if not (array == matrix).all():  # another one in another row of a batch
            return None
        near = ops.reshape(near, shape=(*[1] * (array.ndim - 2), *matrix.shape))
        return near if array.size == matrix.size else ops.broadcast_to(near, shape=array.shape)
    return None


def near_diagonal(allowed: NDArray) -> Any:
    """The comparisons of positions that a band is; None if it is none."""
    rows, columns = allowed.shape
    gaps = np.array(range(columns)) - np.array(range(rows))[:, None]
    found = [int(gap) for gap in np.unique(gaps[allowed])]
    right, left = (found[-1], -found[0]) if found else (-rows, -columns)
    if (allowed != ((gaps <= right) & (gaps >= -left))).any():
        return None
    i = ops.reshape(ops.iota(length=rows), shape=(rows, 1))
    j = ops.reshape(ops.iota(length=columns), shape=(1, columns))
    below = ops.less(j, ops.add(i, right + 1)) if right < columns - 1 else None
    above = ops.less(i, ops.add(j, left + 1)) if left < rows - 1 else None
    if below is None or above is None:
        return below if above is None else above
    return ops.logical_and(below, above)
