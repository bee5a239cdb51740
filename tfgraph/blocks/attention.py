"""Multi-head attention, unfused: the passes fuse it. May import: basic,
positions, ops, ir."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgraph import ops
from tfgraph.blocks.basic import labelled, linear, require_size, width_of
from tfgraph.errors import TfgraphError
from tfgraph.ir import Exact, exact, rsqrt
from tfgraph.ops.operands import require_mask

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.blocks.basic import Norm
    from tfgraph.blocks.positions import Rotary
    from tfgraph.ir import ExactLike, Mask
    from tfgraph.ops import Array, Traced

    Append = Callable[[str, Array], Array]


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    heads: int | None = None,
    kv_heads: int | None = None,
    head_size: int | None = None,
    mask: Mask | None = None,
    scale: ExactLike | None = None,
    softcap: ExactLike | None = None,
    bias: bool = True,
    out_bias: bool | None = None,
    value_size: int | None = None,
    rotary: Rotary | None = None,
    qk_norm: Norm | None = None,
    cache: Append | None = None,
    projected: bool = False,
    name: str = "attention",
) -> Traced:
    """softmax(scale Q K^T under the mask) V over heads side by side, with projections q, k, v, out.

    q [batch, s, width] and k, v [batch, t, ...] are the inputs of the projections; the result has
    the shape of q. Unless given, there is a head for every 64 of the width (at least one), as many
    key and value heads, and the scale is 1/sqrt(head_size). Fewer key and value heads are shared
    by groups of query heads. `value_size` is the width of a value head where it is not
    `head_size`; `bias` is that of q, k and v, and of out unless `out_bias` is given. `qk_norm`
    norms each head of Q and of K, with one scale for all; then `rotary` turns them. `softcap` c
    replaces scores by c tanh(scores / c). Vaswani et al. 2017; groups: Ainslie et al. 2023;
    softcap: Gemma 2, 2024; rotary: Su et al. 2021; QK norm: Dehghani et al. 2023.

    `cache` takes "k" or "v" and its rows [batch, t, kv_heads*d], and gives those that are attended
    to, former ones with them. With `projected`, k and v have been through their projections.
    """
    if mask is not None:
        require_mask("attention: mask=", mask)
    width = width_of(q)
    heads = max(1, width // 64) if heads is None else heads
    kv_heads = heads if kv_heads is None else kv_heads
    require_size("attention: heads", heads)
    require_size("attention: kv_heads", kv_heads)
    if heads % kv_heads:
        raise TfgraphError(
            f"attention: {heads} query heads are not a multiple of {kv_heads} key/value heads"
        )
    if head_size is None:
        if width % heads:
            raise TfgraphError(f"attention: {heads} heads do not divide the width {width}")
        head_size = width // heads
    require_size("attention: head_size", head_size)
    value_size = head_size if value_size is None else value_size
    require_size("attention: value_size", value_size)
    cap = None if softcap is None else _exact("softcap", softcap)
    if cap is not None and (cap.calls or cap.factor <= 0):
        raise TfgraphError(f"attention: softcap is {cap}, expected a positive rational")
    if scale is not None:
        scale = _exact("scale", scale)

    builder = ops.current()
    name = builder.unique(name)
    with builder.scope(name):
        q = linear(q, heads * head_size, bias=bias, name="q")
        if not projected:
            k = linear(k, kv_heads * head_size, bias=bias, name="k")
            v = linear(v, kv_heads * value_size, bias=bias, name="v")
        if qk_norm is not None:
            q = _head_norm(q, heads, qk_norm, "q_norm")
            k = k if projected else _head_norm(k, kv_heads, qk_norm, "k_norm")
        if rotary is not None:
            q = labelled(rotary.turn(q, heads), "q_turned")
            k = labelled(rotary.turn(k, kv_heads), "k_turned")
        if cache is not None:
            k, v = cache("k", k), cache("v", v)
        q, k, v = (ops.split_heads(x, n) for x, n in ((q, heads), (k, kv_heads), (v, kv_heads)))
        k, v = ops.repeat_heads(k, heads), ops.repeat_heads(v, heads)

        scores = ops.matmul(q, ops.transpose(k, perm=(0, 1, 3, 2)))
        scores = ops.mul(scores, rsqrt(head_size) if scale is None else scale)
        if cap is not None:
            scores = ops.mul(ops.tanh(ops.mul(scores, Exact(1 / cap.factor))), cap)
        labelled(scores, "scores")
        if mask is not None:
            scores = labelled(ops.mask(scores, mask), "masked_scores")
        probabilities = labelled(ops.softmax(scores), "probabilities")

        context = labelled(ops.merge_heads(ops.weighted_sum(probabilities, v)), "context")
        y = linear(context, width, bias=bias if out_bias is None else out_bias, name="out")
    return labelled(y, name)


def _head_norm(x: Array, heads: int, norm: Norm, name: str) -> Array:
    """The norm of each head of x [batch, length, heads*d], with one scale [d] for all of them."""
    batch, length, width = x.shape
    each = ops.reshape(x, shape=(batch, length, heads, width // heads))
    return ops.reshape(norm(each, name), shape=x.shape)


def _exact(what: str, value: ExactLike) -> Exact:
    try:
        return exact(value)
    except (TypeError, ValueError) as cause:
        raise TfgraphError(f"attention: {what}: {cause}") from cause
