"""ONNX's operators that take parts of tensors, and ranges. May import: site, known, shapes,
registry, ops, ir, errors."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import Dim, DType, as_dim, dim_min
from tfgraph.onnx import known as numbers
from tfgraph.onnx.known import Known, Nothing, Undecided, known
from tfgraph.onnx.registry import translates
from tfgraph.onnx.shapes import axes_of, axis_of, ints
from tfgraph.onnx.site import Site, Tensor, size_tensor

_FAR = 2**31 - 1
"""As an end of a slice, this or more is the end of the axis, whatever its size."""


@translates("Split", since=13)
def _split(
    at: Site,
    x: Tensor,
    lengths: Tensor | None = None,
    /,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
) -> Any:
    axis = axis_of(axis, len(at.shape(x)))
    whole = at.shape(x)[axis]
    if lengths is not None:
        sizes = at.dims(lengths, "the lengths")
    else:
        count = at.results
        if num_outputs not in (None, count):
            raise TfgraphError(f"num_outputs is {num_outputs}, and it has {count} results")
        each = -(-whole // count)
        sizes = (*[each] * (count - 1), whole - each * (count - 1))
    places = list(accumulate(sizes, initial=as_dim(0)))
    at.require_equal(whole, places[-1], "the lengths do not add up")
    return tuple(window(at, x, axis, start, stop) for start, stop in pairwise(places))


@translates("Split")
def _split_11(at: Site, x: Tensor, /, *, axis: int = 0, split: Any = None) -> Any:
    return _split(at, x, None if split is None else ints(*split), axis=axis)


def window(at: Site, x: Tensor, axis: int, start: Dim, stop: Dim) -> Any:
    """Elements start <= i < stop along an axis."""
    if start == as_dim(0) and stop == at.shape(x)[axis]:
        return x
    if start.is_const and stop.is_const and len(at.shape(x)) == 1:
        moved = at.move(lambda a: a[int(start) : int(stop)], x)
        if moved is not None:
            return moved
    if start == stop:
        return nothing(at, x, axis)
    return ops.slice_(at.tensor(x), axis=axis, start=start, stop=stop)


def nothing(at: Site, x: Tensor, axis: int) -> Any:
    """The value without elements along an axis, which the IR does not have, but `Concat` drops."""
    sizes = tuple(as_dim(0) if i == axis else n for i, n in enumerate(at.shape(x)))
    return Nothing(at.type(x).dtype, np.empty(0, object), sizes=sizes)


@translates("Slice")
def _slice_7(at: Site, x: Tensor, /, *, starts: Any, ends: Any, axes: Any = None) -> Any:
    return _slice(at, x, ints(*starts), ints(*ends), None if axes is None else ints(*axes))


@translates("Slice", since=10)
def _slice(
    at: Site,
    x: Tensor,
    starts: Tensor,
    ends: Tensor,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
    /,
) -> Any:
    first, last = at.dims(starts, "the starts"), at.dims(ends, "the ends")
    rank = len(at.shape(x))
    chosen = tuple(range(len(first))) if axes is None else at.ints(axes, "the axes")
    if axes is not None:
        axes_of(at, axes, rank)
    by = (1,) * len(first) if steps is None else at.ints(steps, "the steps")
    if not len(first) == len(last) == len(chosen) == len(by):
        raise TfgraphError("starts, ends, axes and steps are not as many")
    result = x
    for axis, start, stop, step in zip(chosen, first, last, by, strict=True):
        result = _sliced(at, result, axis, start, stop, step)
    return result


def _sliced(at: Site, x: Tensor, axis: int, start: Dim, stop: Dim, step: int) -> Any:
    whole = at.shape(x)[axis]
    if step == 0:
        raise TfgraphError("a step is 0")
    if step > 0:
        a, b = _clamped(at, start, whole), _clamped(at, stop, whole)
        if b.is_const and a.is_const and int(b) < int(a):
            b = a
        if step == 1:
            return window(at, x, axis, a, b)
        count = -((a - b) // step)
    else:
        a, b = _clamped(at, start, whole, -1), _clamped(at, stop, whole, -1)
        count = -((b - a) // -step)
    if len(at.shape(x)) == 1 and a.is_const and b.is_const:
        end = int(b) if int(b) >= 0 else None
        moved = at.move(lambda array: array[int(a) : end : step], x)
        if moved is not None:
            return moved
    return ops.take(at.tensor(x), strided(at, a, step, count), axis=axis)


def strided(at: Site, start: Dim, step: int, count: Dim) -> Any:
    """start, start + step, ...: `count` indices."""
    if count.is_const and int(count) < 1:
        raise TfgraphError("a slice without elements, which the IR does not have")
    line: Any = ops.iota(length=count)
    if step != 1:
        line = line * step
    if start.is_const:
        return line + int(start) if int(start) else line
    return line + size_tensor(start, at.sizes)


def _clamped(at: Site, place: Dim, whole: Dim, lowest: int = 0) -> Dim:
    """A start or end of a slice as a place on the axis. Where that depends on sizes, a place
    between its ends is expected, which is checked on every call."""
    top = whole + lowest
    if place.is_const and int(place) >= _FAR:
        return top
    if place.is_const and int(place) <= -_FAR:
        return as_dim(lowest)
    if _is_negative(at, place):
        place = place + whole
        low, _ = at.sizes.bounds(place)
        if place.is_const or (low is not None and low >= 0):
            return as_dim(max(int(place), lowest)) if place.is_const else place
        _, high = at.sizes.bounds(place)
        return as_dim(lowest) if high is not None and high <= lowest else place
    low, high = at.sizes.bounds(top - place)
    if low is not None and low >= 0:
        return place
    if high is not None and high <= 0:
        return top
    return dim_min(place, top) if place.is_const else place


def _is_negative(at: Site, place: Dim) -> bool:
    try:
        return numbers.less(place, 0, at.sizes)
    except Undecided:
        return False


@translates("Range")
def _range(at: Site, start: Tensor, limit: Tensor, delta: Tensor, /) -> Any:
    dtype = at.type(start).dtype
    if dtype.is_float:
        return _float_range(at, start, limit, delta)
    (first,), (last,) = at.dims(start, "the start"), at.dims(limit, "the limit")
    (step,) = at.ints(delta, "the step")
    if step == 0:
        raise TfgraphError("the step is 0")
    count = -((first - last) // step) if step > 0 else -((last - first) // -step)

    def make() -> Any:
        line = strided(at, first, step, count)
        return line if dtype == DType.int64 else ops.cast(line, dtype=dtype)

    if count.is_const and int(count) <= numbers.LONGEST:
        listed = [first + step * i for i in range(max(int(count), 0))]
        return Known(dtype, known(dtype, listed).data, at.later(make))
    return make()


def _float_range(at: Site, start: Tensor, limit: Tensor, delta: Tensor) -> Any:
    values = [at.scalar(x) for x in (start, limit, delta)]
    dtype = at.type(start).dtype
    if any(v is None or v.calls for v in values) or not values[2].factor:  # type: ignore[union-attr]
        raise TfgraphError("the length of a range of floats depends on the elements of tensors")
    first, last, step = (v.factor for v in values)  # type: ignore[union-attr]
    count = -((first - last) // step)
    line: Any = ops.cast(ops.iota(length=int(count)), dtype=dtype)
    line = line if step == 1 else line * step
    return line + first if first else line
