"""The core ops of a Transformer: linear, matmul, weighted_sum, mask, softmax and
the norms.

May import: xp, masking, define, infer, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgraph.errors import TfgraphError
from tfgraph.ir import TensorType, product
from tfgraph.ops import masking, xp
from tfgraph.ops.define import op
from tfgraph.ops.infer import (
    broadcast_shapes,
    check_row,
    normal_axis,
    require_dim,
    require_float,
    same_dtype,
)

if TYPE_CHECKING:
    from tfgraph.ir import Dim, ExactLike, Mask
    from tfgraph.ops.array import Array


def infer_linear(x: TensorType, weight: TensorType, bias: TensorType | None = None) -> TensorType:
    """Types of `linear`: x[..., in] @ weight[in, out] + bias[out]."""
    require_float(x)
    same_dtype(x, weight)
    if weight.rank != 2 or x.rank < 2:
        raise TfgraphError(f"expected x[..., n, in] and weight[in, out], got {x} and {weight}")
    require_dim(f"the width of {x}", x.shape[-1], weight.shape[0])
    check_row("the bias", bias, weight.shape[1], x)
    return x.with_shape((*x.shape[:-1], weight.shape[1]))


def linear_flops(x: TensorType, weight: TensorType, *rest: Any, **attrs: Any) -> Dim:
    """Two operations a multiply-add."""
    return 2 * product(x.shape) * weight.shape[1]


@op(infer=infer_linear, flops=linear_flops)
def linear(x: Array, weight: Array, bias: Array | None = None, /) -> Array:
    """x W + b, with x [..., n, in], W [in, out], b [out]."""
    y = xp.matmul(x, weight)
    return y if bias is None else xp.add(y, bias)


def _matmul(a: TensorType, b: TensorType) -> TensorType:
    require_float(a)
    same_dtype(a, b)
    if a.rank < 2 or b.rank < 2:
        raise TfgraphError(f"expected matrices, got {a} and {b}")
    require_dim(f"the number of rows of {b}", b.shape[-2], a.shape[-1])
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2]) if a.rank + b.rank > 4 else ()
    return a.with_shape((*batch, a.shape[-2], b.shape[-1]))


def _matmul_flops(a: TensorType, b: TensorType) -> Dim:
    return 2 * product(_matmul(a, b).shape) * a.shape[-1]


@op(infer=_matmul, onnx="MatMul", flops=_matmul_flops)
def matmul(a: Array, b: Array, /) -> Array:
    """The matrix product over the last two axes; leading axes broadcast."""
    return xp.matmul(a, b)


@op(infer=_matmul, flops=_matmul_flops)
def weighted_sum(weights: Array, values: Array, /) -> Array:
    """`matmul`, but a weight of exactly 0 takes nothing from its value, be that NaN or infinite.

    So what lies behind a mask, where the softmax is 0, cannot reach the output of an attention.
    """
    return xp.weighted_sum(weights, values)


def _mask(scores: TensorType, m: Mask) -> TensorType:
    require_float(scores)
    masking.check(m, scores)
    return scores


@op(infer=_mask)
def mask(scores: Array, mask: Mask, /) -> Array:
    """Scores [..., query, key] plus the mask's biases, and -inf where it does not allow the key."""
    return masking.apply(scores, mask)


def _softmax(x: TensorType, *, axis: int) -> TensorType:
    require_float(x)
    normal_axis(axis, x.rank)
    return x


def _softmax_flops(x: TensorType, **attrs: Any) -> Dim:
    return 5 * product(x.shape)


@op(infer=_softmax, onnx="Softmax", flops=_softmax_flops)
def softmax(x: Array, /, *, axis: int = -1) -> Array:
    """exp(x_i) / sum_j exp(x_j) along `axis`; a row that is -inf all along gives zeros."""
    empty = xp.empty(x, axis)
    highest = xp.where(empty, 0, xp.max(x, axis))
    weights = xp.exp(xp.sub(x, highest))
    total = xp.where(empty, 1, xp.sum(weights, axis))
    return xp.div(weights, total)


def infer_norm(
    x: TensorType,
    scale: TensorType | None = None,
    bias: TensorType | None = None,
    *,
    eps: ExactLike,
) -> TensorType:
    """Types of the norms: x[..., n], rows scale[n] and bias[n], eps not negative."""
    require_float(x)
    width = x.shape[normal_axis(-1, x.rank)]
    check_row("the scale", scale, width, x)
    check_row("the bias", bias, width, x)
    if float(eps) < 0:
        raise TfgraphError(f"eps is {eps}, expected at least 0")
    return x


def norm_flops(x: TensorType, *rest: Any, **attrs: Any) -> Dim:
    """About eight operations an element."""
    return 8 * product(x.shape)


@op(infer=infer_norm, onnx="LayerNormalization", flops=norm_flops)
def layer_norm(
    x: Array, scale: Array | None = None, bias: Array | None = None, /, *, eps: ExactLike = 1e-5
) -> Array:
    """Normalise over the last axis, then scale and shift: (x - E[x]) / sqrt(Var[x] + eps) * s + b.

    Ba et al. 2016. The variance is that of the population.
    """
    centered = xp.sub(x, xp.mean(x))
    variance = xp.mean(xp.mul(centered, centered))
    y = xp.div(centered, xp.sqrt(xp.add(variance, eps)))
    y = y if scale is None else xp.mul(y, scale)
    return y if bias is None else xp.add(y, bias)


def _rms_norm(x: TensorType, scale: TensorType | None = None, *, eps: ExactLike) -> TensorType:
    return infer_norm(x, scale, eps=eps)


@op(infer=_rms_norm, onnx="RMSNormalization", flops=norm_flops)
def rms_norm(x: Array, scale: Array | None = None, /, *, eps: ExactLike = 1e-5) -> Array:
    """Divide by the root mean square over the last axis, then scale: x / sqrt(E[x^2] + eps) * s.

    Zhang and Sennrich 2019.
    """
    y = xp.div(x, xp.sqrt(xp.add(xp.mean(xp.mul(x, x)), eps)))
    return y if scale is None else xp.mul(y, scale)
