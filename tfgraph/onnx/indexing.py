"""ONNX's operators that read by index. May import: site, shapes, ranges, registry, ops, ir."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import Dim, DType, Exact, as_dim
from tfgraph.onnx.file import Stored
from tfgraph.onnx.known import LONGEST, Known, known
from tfgraph.onnx.ranges import range_of
from tfgraph.onnx.registry import translates
from tfgraph.onnx.shapes import axis_of
from tfgraph.onnx.site import Site, Tensor, size_tensor
from tfgraph.ops import Traced


@translates("Gather")
def _gather(at: Site, x: Tensor, indices: Tensor, /, *, axis: int = 0) -> Any:
    """Ids of a table of weights are taken for what they are: never negative."""
    shape, said = at.shape(x), axis
    axis = axis_of(axis, len(shape))
    if len(shape) == 1:
        found = at.move(lambda pair: np.take(pair[0], pair[1].astype(np.int64)), x, indices)
        if found is not None:
            return found
    index = at.scalar(indices)
    if index is not None and not index.calls and at.known(indices) is not None:
        return _one(at, x, int(index.factor), axis, len(at.shape(indices)))
    ids = integers(at, indices)
    if len(shape) == 2 and axis == 0 and _is_table(at, x):
        value = at.tensor(x)
        return ops.embedding(ids, value) if value.dtype.is_float else ops.take(value, ids, axis=0)
    return ops.take(at.tensor(x), from_front(at, ids, shape[axis]), axis=said)


def _is_table(at: Site, x: Tensor) -> bool:
    """Whether a matrix is weights: stored as floats or as what 8-bit integers stand for, or
    computed from such. Wider integers are positions and the like."""
    if isinstance(x, Stored):
        return x.dtype.is_float or x.dtype in (DType.int8, DType.uint8)
    return isinstance(x, Traced) and at.importer.is_weight(x.value)


def _one(at: Site, x: Tensor, index: int, axis: int, rank: int) -> Any:
    """One slice, under as many axes of size 1 as the index has."""
    shape = at.shape(x)
    start = as_dim(index) if index >= 0 else shape[axis] + index
    value = ops.slice_(at.tensor(x), axis=axis, start=start, stop=start + 1)
    target = (*shape[:axis], *[as_dim(1)] * rank, *shape[axis + 1 :])
    return value if value.shape == target else ops.reshape(value, shape=target)


def integers(at: Site, indices: Tensor) -> Any:
    """Indices as a tensor of i64 or i32."""
    value = at.tensor(indices)
    if value.dtype in (DType.int64, DType.int32):
        return value
    raise TfgraphError(f"indices are {value.type}, expected i64 or i32")


def from_front(at: Site, indices: Any, size: Dim) -> Any:
    """Indices with negative ones, which count from the end, counted from the front. A file that
    `export` wrote has none, since they are errors of the graph."""
    low, _ = range_of(indices.value, at.importer.producer)
    if at.importer.is_own or (low is not None and low >= 0):
        return indices
    if size.is_const:
        whole: Any = indices + int(size)
    else:
        length = size_tensor(size, at.sizes)
        whole = indices + (
            length if indices.dtype == DType.int64 else ops.cast(length, dtype=indices.dtype)
        )
    whole = ops.reshape(whole, shape=indices.shape) if whole.shape != indices.shape else whole
    return ops.where(ops.less(indices, 0), whole, indices)


@translates("GatherElements")
def _gather_elements(at: Site, x: Tensor, indices: Tensor, /, *, axis: int = 0) -> Any:
    """result[i, j, k] = x[i, index[i, j, k], k] for axis 1."""
    value, ids = at.tensor(x), integers(at, indices)
    axis = axis_of(axis, len(value.shape))
    if len(ids.shape) != len(value.shape):
        raise TfgraphError(f"ranks differ: {value.type} and {ids.type}")
    found = from_front(at, ids, value.shape[axis])
    places = [
        found if i == axis else along(ids.shape[i], i, len(ids.shape))
        for i in range(len(ids.shape))
    ]
    return ops.take_at(value, *_same_type(places))


def along(size: Dim, axis: int, rank: int) -> Any:
    """0, 1, ... along an axis, the others being of size 1."""
    shape = [as_dim(1)] * rank
    shape[axis] = size
    return ops.reshape(ops.iota(length=size), shape=tuple(shape))


def _same_type(indices: list[Any]) -> list[Any]:
    if len({i.dtype for i in indices}) == 1:
        return indices
    return [i if i.dtype == DType.int64 else ops.cast(i, dtype=DType.int64) for i in indices]


@translates("GatherND")
def _gather_nd(at: Site, x: Tensor, indices: Tensor, /, *, batch_dims: int = 0) -> Any:
    """The last axis of the indices holds a place on as many axes of x."""
    value, ids = at.tensor(x), integers(at, indices)
    *outer, count = ids.shape
    rank = len(value.shape)
    if not count.is_const or not 0 <= batch_dims < len(ids.shape):
        raise TfgraphError(f"indices are {ids.type}")
    if not 1 <= int(count) <= rank - batch_dims:
        raise TfgraphError(f"indices {ids.type} for {value.type}")
    for i in range(batch_dims):
        at.require_equal(value.shape[i], ids.shape[i])
    places = [along(outer[i], i, len(outer)) for i in range(batch_dims)]
    for i in range(int(count)):
        one = ops.slice_(ids, axis=-1, start=i, stop=i + 1)
        one = ops.reshape(one, shape=tuple(outer))
        places.append(from_front(at, one, value.shape[batch_dims + i]))
    return ops.take_at(value, *_same_type(places))


@translates("OneHot")
def _one_hot(at: Site, indices: Tensor, depth: Tensor, values: Tensor, /, *, axis: int = -1) -> Any:
    (number,) = at.numbers(depth, "the depth")
    count = as_dim(int(float(number)) if isinstance(number, Exact) else number)
    one, both = at.known(indices), at.known(values)
    short = count.is_const and int(count) <= LONGEST
    if one is not None and one.data.size == 1 and both is not None and short:
        place = int(as_dim(one.scalar)) % int(count)
        off, on = both.data
        row = known(both.dtype, [on if i == place else off for i in range(int(count))])
        return Known(both.dtype, row.data.reshape(*one.data.shape, int(count)))
    ids, pair = at.tensor(indices), at.tensor(values)
    if ids.dtype.is_float:
        ids = ops.cast(ids, dtype=DType.int64)
    axis = axis_of(axis, len(ids.shape) + 1)
    found = from_front(at, ids, count)
    found = ops.reshape(found, shape=(*ids.shape[:axis], 1, *ids.shape[axis:]))
    line = along(count, axis, len(ids.shape) + 1)
    line = line if ids.dtype == DType.int64 else ops.cast(line, dtype=ids.dtype)
    off, on = (ops.reshape(ops.slice_(pair, axis=0, start=i, stop=i + 1), shape=()) for i in (0, 1))
    return ops.where(ops.equal(found, line), on, off)


@translates("TopK")
def _top_k(
    at: Site, x: Tensor, k: Tensor, /, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> Any:
    value = at.tensor(x)
    (count,) = at.ints(k, "k")
    rank = len(value.shape)
    axis = axis_of(axis, rank)
    perm = tuple(rank - 1 if i == axis else axis if i == rank - 1 else i for i in range(rank))
    turned = value if axis == rank - 1 else ops.transpose(value, perm=perm)
    values, indices = ops.topk(turned if largest else ops.neg(turned), k=count)
    values = values if largest else ops.neg(values)
    if axis != rank - 1:
        values, indices = (ops.transpose(v, perm=perm) for v in (values, indices))
    return values, indices
