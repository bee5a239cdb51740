"""ONNX's operators along axes. May import: site, shapes, registry, ops, ir."""

from __future__ import annotations

import operator
from functools import reduce
from typing import TYPE_CHECKING, Any

from tfgraph import ops
from tfgraph.ir import DType, as_dim, product
from tfgraph.onnx.known import known
from tfgraph.onnx.registry import translates
from tfgraph.onnx.shapes import axes_of, axis_of, ints
from tfgraph.onnx.site import Site, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable


def _along(
    at: Site, x: Any, axes: tuple[int, ...], keepdims: int, reduced: Any, said: int | None
) -> Any:
    """`reduced` along several axes at once: they are brought to the end and made one. `said` is a
    single one as the file says it."""
    rank = len(x.shape)
    kept = tuple(i for i in range(rank) if i not in axes)
    if said is not None:
        return reduced(x, axis=said, keepdims=bool(keepdims))
    if len(axes) == 1:
        return reduced(x, axis=axes[0], keepdims=bool(keepdims))
    if axes != tuple(range(len(kept), rank)):
        x = ops.transpose(x, perm=(*kept, *axes))
    sizes = x.shape
    x = ops.reshape(x, shape=(*sizes[: len(kept)], product(sizes[len(kept) :])))
    x = reduced(x, axis=-1, keepdims=False)
    if not keepdims:
        return x
    shape = [as_dim(1)] * rank
    for i, size in zip(kept, sizes, strict=False):
        shape[i] = size
    return ops.reshape(x, shape=tuple(shape))


def _reduction(name: str, reduced: Callable[..., Any], since: int, exactly: Any = None) -> None:
    """Both forms of a reduction: with the axes as an attribute, and as an input."""

    def reduction(
        at: Site,
        x: Tensor,
        axes: Tensor | None = None,
        /,
        *,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Any:
        rank = len(at.shape(x))
        chosen = tuple(sorted(axes_of(at, axes, rank)))
        if not chosen and noop_with_empty_axes:
            return reduced(at.tensor(x), axis=None, keepdims=True)
        chosen = chosen or tuple(range(rank))
        found = at.known(x)
        if exactly is not None and found is not None and found.data.size and rank == 1:
            total = reduce(exactly, found.data)
            return known(found.dtype, [total] if keepdims else total)
        if not rank:
            return reduced(at.tensor(x), axis=None, keepdims=True)
        said = at.ints(axes, "the axes") if axes is not None else ()
        one = said[0] if len(said) == 1 else None
        return _along(at, at.tensor(x), chosen, keepdims, reduced, one)

    def with_attribute(at: Site, x: Tensor, /, *, axes: Any = None, keepdims: int = 1) -> Any:
        return reduction(at, x, None if axes is None else ints(*axes), keepdims=keepdims)

    translates(name)(with_attribute)
    translates(name, since=since)(reduction)


def _plain(op: Any) -> Callable[..., Any]:
    """An op along an axis; along none it changes nothing."""

    def reduced(x: Any, *, axis: Any, keepdims: bool) -> Any:
        return x if axis is None else op(x, axis=axis, keepdims=keepdims)

    return reduced


def _sum_square(x: Any, *, axis: Any, keepdims: bool) -> Any:
    return _plain(ops.sum_)(x * x, axis=axis, keepdims=keepdims)


def _l2(x: Any, *, axis: Any, keepdims: bool) -> Any:
    return ops.sqrt(_sum_square(x, axis=axis, keepdims=keepdims))


def _l1(x: Any, *, axis: Any, keepdims: bool) -> Any:
    return _plain(ops.sum_)(ops.abs_(x), axis=axis, keepdims=keepdims)


def _min(x: Any, *, axis: Any, keepdims: bool) -> Any:
    """c - max(c - x), where c - x cannot overflow."""
    if x.dtype == DType.bool_:
        return _of_bools(_min, x, axis=axis, keepdims=keepdims)
    if x.dtype.is_float:
        return -_plain(ops.max_)(-x, axis=axis, keepdims=keepdims)
    c = 255 if x.dtype == DType.uint8 else -1
    return c - _plain(ops.max_)(c - x, axis=axis, keepdims=keepdims)


def _max(x: Any, *, axis: Any, keepdims: bool) -> Any:
    if x.dtype == DType.bool_:
        return _of_bools(_max, x, axis=axis, keepdims=keepdims)
    return _plain(ops.max_)(x, axis=axis, keepdims=keepdims)


def _of_bools(reduced: Any, x: Any, *, axis: Any, keepdims: bool) -> Any:
    numbers = ops.cast(x, dtype=DType.int32)
    return ops.cast(reduced(numbers, axis=axis, keepdims=keepdims), dtype=DType.bool_)


_reduction("ReduceSum", _plain(ops.sum_), 13, operator.add)
_reduction("ReduceMean", _plain(ops.mean), 18)
_reduction("ReduceMax", _max, 18)
_reduction("ReduceMin", _min, 18)
_reduction("ReduceSumSquare", _sum_square, 18)
_reduction("ReduceL2", _l2, 18)
_reduction("ReduceL1", _l1, 18)


@translates("CumSum")
def _cumsum(at: Site, x: Tensor, axis: Tensor, /, *, exclusive: int = 0, reverse: int = 0) -> Any:
    value = at.tensor(x)
    (along,) = at.ints(axis, "the axis")
    axis_of(along, len(value.shape))
    if reverse:
        value = flipped(value, along)
    total = ops.cumsum(value, axis=along)
    if exclusive:
        total = _shifted(total, along)
    return flipped(total, along) if reverse else total


def _shifted(x: Any, axis: int) -> Any:
    """0 in front, and the last element left out."""
    size, one = x.shape[axis], as_dim(1)
    axis %= len(x.shape)
    zeros = ops.full(
        shape=tuple(one if i == axis else n for i, n in enumerate(x.shape)), value=0, dtype=x.dtype
    )
    if size == one:
        return zeros
    return ops.concat(zeros, ops.slice_(x, axis=axis, start=0, stop=size - 1), axis=axis)


def flipped(x: Any, axis: int) -> Any:
    """The elements along an axis in the opposite order."""
    size = x.shape[axis]
    line = ops.neg(ops.iota(length=size))
    last = ops.slice_(ops.iota(length=size), axis=0, start=size - 1, stop=size)
    return ops.take(x, ops.add(line, last), axis=axis)


@translates("Softmax", since=13)
def _softmax(at: Site, x: Tensor, /, *, axis: int = -1) -> Any:
    value = at.tensor(x)
    axis_of(axis, len(value.shape))
    return ops.softmax(value, axis=axis)


@translates("Softmax")
def _softmax_11(at: Site, x: Tensor, /, *, axis: int = 1) -> Any:
    """Over all axes from `axis` on."""
    value = at.tensor(x)
    shape, axis = value.shape, axis_of(axis, len(value.shape))
    if axis == len(shape) - 1:
        return ops.softmax(value, axis=axis)
    rows = ops.reshape(value, shape=(*shape[:axis], product(shape[axis:])))
    return ops.reshape(ops.softmax(rows, axis=axis), shape=shape)


@translates("LogSoftmax", since=13)
def _log_softmax(at: Site, x: Tensor, /, *, axis: int = -1) -> Any:
    """x - max - log sum exp(x - max)."""
    value = at.tensor(x)
    axis = axis_of(axis, len(value.shape))
    centered = value - ops.max_(value, axis=axis, keepdims=True)
    return ops.sub(centered, ops.log(ops.sum_(ops.exp(centered), axis=axis, keepdims=True)))
