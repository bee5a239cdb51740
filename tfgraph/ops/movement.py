"""Ops that move elements and compute nothing. May import: xp, define, infer, ir."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError
from tfgraph.ir import DType, TensorType, as_dim, exact, product
from tfgraph.ir.legal import check_fits
from tfgraph.ops import xp
from tfgraph.ops.define import op
from tfgraph.ops.infer import broadcast_shapes, normal_axis, replace_axis, require_dim, same_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgraph.ir import Dim, DimLike, Exact, ExactLike
    from tfgraph.ops.array import Array


def _free(*types: TensorType, **attrs: object) -> Dim:
    """Moving computes nothing."""
    return as_dim(0)


def _reshape(x: TensorType, *, shape: tuple[Dim, ...]) -> TensorType:
    if product(x.shape) != product(shape):
        result = x.with_shape(shape)
        raise TfgraphError(
            f"cannot reshape {x} to {result}: {product(x.shape)} elements against {product(shape)}"
        )
    return x.with_shape(shape)


@op(infer=_reshape, onnx="Reshape", flops=_free)
def reshape(x: Array, /, *, shape: Sequence[DimLike]) -> Array:
    """The same elements in row-major order under another shape of as many elements."""
    return x.reshape(shape)


def _transpose(x: TensorType, *, perm: tuple[int, ...]) -> TensorType:
    if sorted(perm) != list(range(x.rank)):
        raise TfgraphError(f"perm {list(perm)} does not name each axis of {x} once")
    return x.with_shape(x.shape[p] for p in perm)


@op(infer=_transpose, onnx="Transpose", flops=_free)
def transpose(x: Array, /, *, perm: Sequence[int]) -> Array:
    """Axis i of the result is axis perm[i] of x."""
    return x.transpose(perm)


def _broadcast_to(x: TensorType, *, shape: tuple[Dim, ...]) -> TensorType:
    if len(shape) < x.rank or broadcast_shapes(x.shape, shape) != shape:
        raise TfgraphError(f"{x} does not broadcast to [{','.join(map(str, shape))}]")
    return x.with_shape(shape)


@op(infer=_broadcast_to, onnx="Expand", flops=_free)
def broadcast_to(x: Array, /, *, shape: Sequence[DimLike]) -> Array:
    """Axes of size 1 repeated, and axes added in front, up to `shape`."""
    return x.broadcast(shape)


def _concat(*parts: TensorType, axis: int) -> TensorType:
    if not parts:
        raise TfgraphError("nothing to concatenate")
    same_dtype(*parts)
    at = normal_axis(axis, parts[0].rank)
    for part in parts[1:]:
        if part.rank != parts[0].rank:
            raise TfgraphError(f"ranks differ: {parts[0]} and {part}")
        for i, (a, b) in enumerate(zip(parts[0].shape, part.shape, strict=True)):
            if i != at:
                require_dim(f"dimension {i} of {part}", b, a)
    total = sum((part.shape[at] for part in parts[1:]), start=parts[0].shape[at])
    return replace_axis(parts[0], at, total)


@op(infer=_concat, onnx="Concat", flops=_free)
def concat(*parts: Array, axis: int) -> Array:
    """The parts one after another along `axis`."""
    return parts[0].join(parts[1:], axis)


def _slice(x: TensorType, *, axis: int, start: Dim, stop: Dim) -> TensorType:
    at = normal_axis(axis, x.rank)
    for dim in (start, stop, x.shape[at] - stop, stop - start):
        if dim.is_const and int(dim) < 0:
            raise TfgraphError(f"[{start}:{stop}] is not a window of axis {axis} of {x}")
    return replace_axis(x, at, stop - start)


@op(infer=_slice, flops=_free)
def slice_(x: Array, /, *, axis: int, start: DimLike = 0, stop: DimLike) -> Array:
    """Elements start <= i < stop along `axis`."""
    return x.slice(axis, start, stop)


def _take(x: TensorType, indices: TensorType, *, axis: int) -> TensorType:
    if indices.dtype not in (DType.int64, DType.int32):
        raise TfgraphError(f"indices are {indices}, expected i64 or i32")
    return replace_axis(x, axis, *indices.shape)


@op(infer=_take, onnx="Gather", flops=_free)
def take(x: Array, indices: Array, /, *, axis: int = 0) -> Array:
    """The slices of x at `indices` along `axis`, which the indices' shape replaces."""
    return x.take(indices, axis)


def _take_at(x: TensorType, *indices: TensorType) -> TensorType:
    if not 1 <= len(indices) <= x.rank:
        raise TfgraphError(f"{len(indices)} tensors of indices for {x}")
    for given in indices:
        if given.dtype not in (DType.int64, DType.int32):
            raise TfgraphError(f"indices are {given}, expected i64 or i32")
    places = broadcast_shapes(*(given.shape for given in indices))
    return x.with_shape((*places, *x.shape[len(indices) :]))


@op(infer=_take_at, flops=_free)
def take_at(x: Array, /, *indices: Array) -> Array:
    """x[i, j, ...]: an index for each of the first axes, which broadcast together."""
    return x.take_at(indices)


def _embedding(ids: TensorType, table: TensorType) -> TensorType:
    if table.rank != 2:
        raise TfgraphError(f"the table is {table}, expected [rows, width]")
    return _take(table, ids, axis=0)


@op(infer=_embedding, flops=_free)
def embedding(ids: Array, table: Array, /) -> Array:
    """The rows of `table` [rows, width] at integer `ids`, each from 0 to rows - 1."""
    return table.take(ids, 0)


def _iota(*, length: Dim) -> TensorType:
    return TensorType(DType.int64, (length,))


@op(infer=_iota, flops=_free)
def iota(*, length: DimLike) -> Array:
    """0, 1, ..., length - 1 as i64[length]."""
    return xp.arange(length, like=xp.domain.get())


def _full(*, shape: tuple[Dim, ...], value: ExactLike, dtype: DType) -> TensorType:
    check_fits(exact(value), dtype)
    return TensorType(dtype, shape)


@op(infer=_full, onnx="ConstantOfShape", flops=_free)
def full(*, shape: Sequence[DimLike], value: ExactLike, dtype: DType = DType.float32) -> Array:
    """A tensor whose elements are all `value`."""
    return xp.domain.get().cast(dtype).like(value).broadcast(shape)


def _constant(*, values: tuple[Exact, ...], shape: tuple[Dim, ...], dtype: DType) -> TensorType:
    for value in values:
        check_fits(value, dtype)
    if product(shape) != as_dim(len(values)):
        of = f"[{','.join(map(str, shape))}]"
        raise TfgraphError(f"{len(values)} values for the {product(shape)} elements of {of}")
    return TensorType(dtype, shape)


@op(infer=_constant, kind="composite", onnx="Constant", flops=_free)
def constant(
    *, values: Sequence[ExactLike], shape: Sequence[DimLike], dtype: DType = DType.float32
) -> Array:
    """The tensor of these elements, in row-major order: for few of them, as the text holds all."""
    runs = [(value, len(list(same))) for value, same in groupby(values)]
    parts = [full(shape=(length,), value=value, dtype=dtype) for value, length in runs]
    return reshape(concat(*parts, axis=0), shape=shape)
