"""Fused ops, which passes introduce. The body of each calls other ops: on arrays it is the
reference, on graph values the expansion. May import: the other ops, define, infer, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError
from tfgraph.ir import Exact, Mask, TensorType, as_dim, exact, product
from tfgraph.ops import masking
from tfgraph.ops.activations import activation
from tfgraph.ops.define import op
from tfgraph.ops.elementwise import add, mul, tanh
from tfgraph.ops.infer import broadcast, check_row, require_float, same_dtype
from tfgraph.ops.movement import broadcast_to, reshape, transpose
from tfgraph.ops.transformer import (
    infer_linear,
    infer_norm,
    layer_norm,
    linear,
    linear_flops,
    mask,
    matmul,
    norm_flops,
    rms_norm,
    softmax,
    weighted_sum,
)

if TYPE_CHECKING:
    from tfgraph.ir import Dim, ExactLike
    from tfgraph.ops.array import Array


LINEARS = ("linear", "linear_activation", "gated_linear")
"""The ops that are x W + b, and one of them with what follows: the weight is the second operand."""

_activation = activation  # an attribute of that name hides it below


def _linear_activation(
    x: TensorType, weight: TensorType, bias: TensorType | None = None, *, activation: str
) -> TensorType:
    _activation(activation)
    return infer_linear(x, weight, bias)


@op(infer=_linear_activation, kind="composite", flops=linear_flops)
def linear_activation(
    x: Array, weight: Array, bias: Array | None = None, /, *, activation: str
) -> Array:
    """activation(x W + b)."""
    return _activation(activation)(linear(x, weight, bias))


def _gated_linear(
    x: TensorType, weight: TensorType, gate: TensorType, bias: TensorType | None = None
) -> TensorType:
    result = infer_linear(x, weight, bias)
    if gate != result:
        raise TfgraphError(f"the gate is {gate}, expected {result}")
    return result


@op(infer=_gated_linear, kind="composite", flops=linear_flops)
def gated_linear(x: Array, weight: Array, gate: Array, bias: Array | None = None, /) -> Array:
    """(x W + b) * gate, the gate of the result's shape.

    Half of a gated linear unit: Dauphin et al. (arXiv 1612.08083), Shazeer (arXiv 2002.05202).
    """
    return mul(linear(x, weight, bias), gate)


def _attention_flops(
    q: TensorType, k: TensorType, v: TensorType, *rest: object, heads: int, **attrs: object
) -> Dim:
    pairs = product(q.shape[:-1]) * k.shape[1]
    return 2 * pairs * (q.shape[-1] + heads * (v.shape[-1] // (k.shape[-1] // _size(q, heads))))


def _size(x: TensorType, heads: int) -> Dim:
    if heads < 1 or x.shape[-1] % heads != as_dim(0):
        raise TfgraphError(f"{heads} heads do not divide the width {x.shape[-1]}")
    return x.shape[-1] // heads


def _attention(
    q: TensorType,
    k: TensorType,
    v: TensorType,
    m: Mask | None = None,
    *,
    heads: int,
    kv_heads: int,
    scale: Exact,
    softcap: Exact | None,
) -> TensorType:
    for x in (q, k, v):
        require_float(x)
        if x.rank != 3:
            raise TfgraphError(f"expected q, k, v of [batch, length, width], got {x}")
    same_dtype(q, k, v)
    if softcap is not None and (softcap.calls or softcap.factor <= 0):
        raise TfgraphError(f"softcap is {softcap}, expected a positive rational")
    if kv_heads < 1 or heads % kv_heads:
        raise TfgraphError(f"{heads} query heads are not a multiple of {kv_heads} key/value heads")
    if _size(q, heads) != _size(k, kv_heads):
        raise TfgraphError(f"head sizes differ: {_size(q, heads)} of q, {_size(k, kv_heads)} of k")
    if q.shape[0] != k.shape[0] or k.shape[:2] != v.shape[:2]:
        raise TfgraphError(f"batch or lengths differ: q {q}, k {k}, v {v}")
    if m is not None:
        masking.check(m, q.with_shape((q.shape[0], heads, q.shape[1], k.shape[1])))
    return q.with_shape((*q.shape[:2], heads * _size(v, kv_heads)))


@op(infer=_attention, kind="composite", flops=_attention_flops)
def attention(
    q: Array,
    k: Array,
    v: Array,
    m: Mask | None = None,
    /,
    *,
    heads: int,
    kv_heads: int,
    scale: ExactLike,
    softcap: ExactLike | None = None,
) -> Array:
    """softmax(scale Q K^T under the mask) V for each head, heads side by side in the last axis.

    q [batch, s, heads*d], k [batch, t, kv_heads*d], v [batch, t, kv_heads*dv], result
    [batch, s, heads*dv]. Query head h reads key and value head h // (heads / kv_heads).
    Vaswani et al. 2017; grouped heads: Ainslie et al. 2023.
    """
    q, k, v = split_heads(q, heads), split_heads(k, kv_heads), split_heads(v, kv_heads)
    k, v = repeat_heads(k, heads), repeat_heads(v, heads)
    scores = mul(matmul(q, transpose(k, perm=(0, 1, 3, 2))), scale)
    if softcap is not None:
        cap = exact(softcap)
        scores = mul(tanh(mul(scores, Exact(1 / cap.factor))), cap)
    if m is not None:
        scores = mask(scores, m)
    return merge_heads(weighted_sum(softmax(scores), v))


def split_heads(x: Array, heads: int) -> Array:
    """[batch, length, heads*d] to [batch, heads, length, d]."""
    batch, length, width = x.shape
    y = reshape(x, shape=(batch, length, as_dim(heads), width // heads))
    return transpose(y, perm=(0, 2, 1, 3))


def merge_heads(x: Array) -> Array:
    """[batch, heads, length, d] to [batch, length, heads*d]."""
    batch, heads, length, size = x.shape
    return reshape(transpose(x, perm=(0, 2, 1, 3)), shape=(batch, length, heads * size))


def repeat_heads(x: Array, heads: int) -> Array:
    """Each of g heads repeated heads/g times in place: [batch, g, l, d] to [batch, heads, l, d]."""
    batch, groups, length, size = x.shape
    if groups == as_dim(heads):
        return x
    each = as_dim(heads) // groups
    y = reshape(x, shape=(batch, groups, as_dim(1), length, size))
    y = broadcast_to(y, shape=(batch, groups, each, length, size))
    return reshape(y, shape=(batch, as_dim(heads), length, size))


def _add_norm(
    a: TensorType,
    b: TensorType,
    scale: TensorType | None = None,
    bias: TensorType | None = None,
    shift: TensorType | None = None,
    *,
    eps: Exact,
    keep_sum: bool,
) -> TensorType | tuple[TensorType, ...]:
    if a.shape != b.shape:
        raise TfgraphError(f"the add broadcasts {a} with {b}")
    total = broadcast(a, b)
    infer_norm(total, scale, bias, eps=eps)
    check_row("the shift", shift, total.shape[-1], total)
    return (total, total) if keep_sum else total


@op(infer=_add_norm, kind="composite", flops=norm_flops)
def add_layer_norm(
    a: Array,
    b: Array,
    scale: Array | None = None,
    bias: Array | None = None,
    shift: Array | None = None,
    /,
    *,
    eps: ExactLike = 1e-5,
    keep_sum: bool = False,
) -> Array | tuple[Array, Array]:
    """layer_norm(a + b), or layer_norm((a + shift) + b) where a row `shift` is given.

    With keep_sum the sum is the first of two results.
    """
    total = add(a if shift is None else add(a, shift), b)
    normed = layer_norm(total, scale, bias, eps=eps)
    return (total, normed) if keep_sum else normed


def _add_rms_norm(
    a: TensorType,
    b: TensorType,
    scale: TensorType | None = None,
    shift: TensorType | None = None,
    *,
    eps: Exact,
    keep_sum: bool,
) -> TensorType | tuple[TensorType, ...]:
    return _add_norm(a, b, scale, None, shift, eps=eps, keep_sum=keep_sum)


@op(infer=_add_rms_norm, kind="composite", flops=norm_flops)
def add_rms_norm(
    a: Array,
    b: Array,
    scale: Array | None = None,
    shift: Array | None = None,
    /,
    *,
    eps: ExactLike = 1e-5,
    keep_sum: bool = False,
) -> Array | tuple[Array, Array]:
    """rms_norm(a + b), or rms_norm((a + shift) + b); with keep_sum the sum is the first result."""
    total = add(a if shift is None else add(a, shift), b)
    normed = rms_norm(total, scale, eps=eps)
    return (total, normed) if keep_sum else normed
