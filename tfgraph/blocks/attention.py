"""Multi-head attention, unfused: the passes fuse it.

May import: basic, positions, disentangled, ops, ir.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfgraph import ops
from tfgraph.blocks.basic import labelled, linear, require_size, width_of
from tfgraph.errors import TfgraphError
from tfgraph.ir import Exact, exact, rsqrt
from tfgraph.ir.mask import bias as bias_mask
from tfgraph.ops.operands import require_mask

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.blocks.basic import Norm
    from tfgraph.blocks.disentangled import Disentangled
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
    key_bias: bool | None = None,
    out_bias: bool | None = None,
    value_size: int | None = None,
    rotary: Rotary | None = None,
    qk_norm: Norm | None = None,
    qk_norm_over: str = "head",
    disentangled: Disentangled | None = None,
    cache: Append | None = None,
    projected: bool = False,
    name: str = "attention",
) -> Traced:
    """softmax(scale Q K^T under the mask) V over heads side by side, with projections q, k, v, out.

    q [batch, s, width] and k, v [batch, t, ...] are the inputs of the projections; the result has
    the shape of q. Unless given, there is a head for every 64 of the width (at least one), as many
    key and value heads, and the scale is 1/sqrt(head_size). Fewer key and value heads are shared
    by groups of query heads. `value_size` is the width of a value head where it is not
    `head_size`; `bias` is that of q, k and v, and of out unless `key_bias` or `out_bias` is given.
    `qk_norm` norms Q and K, `qk_norm_over` each "head" with one scale for all, each with its "own",
    or the "width" at once; then `rotary` turns them. `softcap` c replaces scores by c tanh(scores /
    c). `disentangled` adds what content and distance have to do with each other. Vaswani et al.
    2017; groups: Ainslie et al. 2023; softcap: Gemma 2, 2024; rotary: Su et al. 2021; QK norm:
    Dehghani et al. 2023; over the width: OLMo 2, 2024; disentangled: He et al. 2020.

    `cache` takes "k" or "v" and its rows [batch, t, kv_heads*d], and gives those that are attended
    to, former ones with them. With `projected`, k and v have been through their projections, and k
    through its norm.
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
    scale = rsqrt(head_size) if scale is None else _exact("scale", scale)
    if disentangled is not None and (projected or kv_heads != heads):
        raise TfgraphError("attention: disentangled is for self-attention with a K for each head")

    builder = ops.current()
    name = builder.unique(name)
    with builder.scope(name):
        q = linear(q, heads * head_size, bias=bias, name="q")
        if not projected:
            key_bias = bias if key_bias is None else key_bias
            k = linear(k, kv_heads * head_size, bias=key_bias, name="k")
            v = linear(v, kv_heads * value_size, bias=bias, name="v")
        if qk_norm is not None:
            q = norm_heads(q, heads, qk_norm, qk_norm_over, "q_norm")
            k = k if projected else norm_heads(k, kv_heads, qk_norm, qk_norm_over, "k_norm")
        if rotary is not None:
            q = labelled(rotary.turn(q, heads), "q_turned")
            k = labelled(rotary.turn(k, kv_heads), "k_turned")
        if cache is not None:
            k, v = cache("k", k), cache("v", v)
        q, k, v = (ops.split_heads(x, n) for x, n in ((q, heads), (k, kv_heads), (v, kv_heads)))
        if disentangled is not None:
            added = labelled(disentangled.scores(q, k, scale, bias=bias), "distances")
            mask = bias_mask(added) if mask is None else mask & bias_mask(added)
        k, v = ops.repeat_heads(k, heads), ops.repeat_heads(v, heads)

        scores = ops.matmul(q, ops.transpose(k, perm=(0, 1, 3, 2)))
        scores = ops.mul(scores, scale)
        if cap is not None:
            scores = ops.mul(ops.tanh(ops.mul(scores, Exact(1 / cap.factor))), cap)
        labelled(scores, "scores")
        if mask is not None:
            scores = labelled(ops.mask(scores, mask), "masked_scores")
        probabilities = labelled(ops.softmax(scores), "probabilities")

        context = labelled(ops.merge_heads(ops.weighted_sum(probabilities, v)), "context")
        y = linear(context, width, bias=bias if out_bias is None else out_bias, name="out")
    return labelled(y, name)


QK_NORMS = ("head", "own", "width")
"""What a norm of Q and K goes over: each head with one scale for all, each head with a scale of its
own, or all heads at once."""


def norm_heads(x: Array, heads: int, norm: Norm, over: str, name: str) -> Array:
    """The norm of x [batch, length, heads*d] over what `over` says. Its scale is [d] for "head",
    else [heads*d]."""
    if over not in QK_NORMS:
        raise TfgraphError(f"attention: qk_norm_over is '{over}', expected {', '.join(QK_NORMS)}")
    if over == "width":
        return norm(x, name)
    batch, length, width = x.shape
    each = ops.reshape(x, shape=(batch, length, heads, width // heads))
    if over == "head":
        return ops.reshape(norm(each, name), shape=x.shape)
    plain = replace(norm, scale=False, bias=False, unit_offset=False)
    return norm.scaled(ops.reshape(plain(each, name), shape=x.shape), f"{name}_scaled", name)


def _exact(what: str, value: ExactLike) -> Exact:
    try:
        return exact(value)
    except (TypeError, ValueError) as cause:
        raise TfgraphError(f"attention: {what}: {cause}") from cause
