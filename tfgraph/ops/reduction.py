"""Core ops that combine the elements along one axis. May import: xp, define, infer, ir."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError
from tfgraph.ir import DType, TensorType, as_dim, product
from tfgraph.ops import xp
from tfgraph.ops.define import op
from tfgraph.ops.infer import normal_axis, replace_axis, require_float, require_number

if TYPE_CHECKING:
    from tfgraph.ir import Dim
    from tfgraph.ops.array import Array


def _reduce(x: TensorType, *, axis: int, keepdims: bool) -> TensorType:
    require_number(x)
    return replace_axis(x, axis, *((as_dim(1),) if keepdims else ()))


def _float_reduce(x: TensorType, *, axis: int, keepdims: bool) -> TensorType:
    require_float(x)
    return _reduce(x, axis=axis, keepdims=keepdims)


def _cost(x: TensorType, **attrs: object) -> Dim:
    return product(x.shape)


def _squeeze(x: Array, axis: int, keepdims: bool) -> Array:
    if keepdims:
        return x
    at = normal_axis(axis, len(x.shape))
    return xp.reshape(x, (*x.shape[:at], *x.shape[at + 1 :]))


@op(infer=_reduce, onnx="ReduceSum", flops=_cost)
def sum_(x: Array, /, *, axis: int = -1, keepdims: bool = False) -> Array:
    """The sum along `axis`."""
    return _squeeze(xp.sum(x, axis), axis, keepdims)


@op(infer=_float_reduce, onnx="ReduceMean", flops=_cost)
def mean(x: Array, /, *, axis: int = -1, keepdims: bool = False) -> Array:
    """The mean along `axis`."""
    return _squeeze(xp.mean(x, axis), axis, keepdims)


@op(infer=_reduce, onnx="ReduceMax", flops=_cost)
def max_(x: Array, /, *, axis: int = -1, keepdims: bool = False) -> Array:
    """The maximum along `axis`; NaN if one is NaN."""
    return _squeeze(xp.max(x, axis), axis, keepdims)


def _cumsum(x: TensorType, *, axis: int) -> TensorType:
    require_number(x)
    normal_axis(axis, x.rank)
    return x


@op(infer=_cumsum, onnx="CumSum", flops=_cost)
def cumsum(x: Array, /, *, axis: int = -1) -> Array:
    """The running sum along `axis`, each element included in its own."""
    return x.scan("sum", axis)


def _topk(x: TensorType, *, k: int) -> tuple[TensorType, TensorType]:
    require_number(x)
    width = x.shape[normal_axis(-1, x.rank)]
    if k < 1 or (width.is_const and k > int(width)):
        raise TfgraphError(f"k is {k}, expected 1 to {width}")
    values = replace_axis(x, -1, as_dim(k))
    return values, values.with_dtype(DType.int64)


@op(infer=_topk, onnx="TopK", flops=_cost)
def topk(x: Array, /, *, k: int) -> tuple[Array, Array]:
    """The k largest along the last axis, descending, and their i64 indices; ties by lower index."""
    return x.topk(k)


def _empty(x: TensorType, *, axis: int) -> TensorType:
    require_float(x)
    return replace_axis(x, axis, as_dim(1)).with_dtype(DType.bool_)


@op(infer=_empty)
def empty(x: Array, /, *, axis: int = -1) -> Array:
    """Whether all along `axis` is -inf, as in a row that may attend to nothing; keeps the axis."""
    return xp.empty(x, axis)
