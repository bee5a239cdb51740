"""The layers of encoders and decoders, and where their norms and sums stand.

May import: basic, attention, cache, experts, positions, ops, ir.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, cast

from tfgraph import ops
from tfgraph.blocks.attention import attention
from tfgraph.blocks.basic import Norm, feed_forward, labelled, width_of
from tfgraph.blocks.experts import mixture_of_experts
from tfgraph.errors import TfgraphError
from tfgraph.ir.mask import causal
from tfgraph.ops.builder import Blame
from tfgraph.ops.operands import require_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from tfgraph.blocks.attention import Append
    from tfgraph.blocks.cache import Cache
    from tfgraph.blocks.disentangled import Disentangled
    from tfgraph.blocks.experts import Experts
    from tfgraph.blocks.positions import Rotary
    from tfgraph.errors import Location
    from tfgraph.ir import ExactLike, Mask
    from tfgraph.ops import Array, Traced

    Memory = Array | tuple[Array, Array]


def _no_places() -> dict[str, Location]:
    return {}


PLACEMENTS = ("post", "pre", "sandwich", "inner", "parallel")


@dataclass(frozen=True)
class Layer:
    """The hyperparameters of one layer. `ffn` None is four times the width; see `attention` for
    the other defaults. `bias` is that of all linear layers, unless `qkv_bias`, `key_bias`,
    `out_bias` or `ffn_bias` is given. `norm` is a kind, which then has `eps`, or a Norm; `qk_norm`
    is one of Q and K, over what `qk_norm_over` says.

    `placement` says where norms stand. post: norm(x + f(x)); pre: x + f(norm(x)); sandwich:
    x + norm(f(norm(x))); inner: x + norm(f(x)); parallel: x + attention(norm(x)) + ffn(norm(x)),
    one norm for both if `shared_norm`. Unless `attention_normed`, the first norm of the layer is
    left out. Each f(x) is multiplied by `residual_scale`; without `residual` x is not added. With
    `experts` the feed-forward network is a mixture. `rotary` turns the heads of self-attention,
    `disentangled` adds to its scores.

    `places` says where in a user's file a part comes from: "attention", "ffn", "norm".
    """

    heads: int | None = None
    ffn: int | None = None
    kv_heads: int | None = None
    head_size: int | None = None
    value_size: int | None = None
    scale: ExactLike | None = None
    softcap: ExactLike | None = None
    qk_norm: Norm | None = None
    qk_norm_over: str = "head"
    rotary: Rotary | None = None
    disentangled: Disentangled | None = None
    activation: str = "gelu"
    gated: bool = False
    experts: Experts | None = None
    bias: bool = True
    qkv_bias: bool | None = None
    key_bias: bool | None = None
    out_bias: bool | None = None
    ffn_bias: bool | None = None
    norm: str | Norm = "layer_norm"
    eps: ExactLike = 1e-5
    placement: str = "post"
    shared_norm: bool = True
    attention_normed: bool = True
    residual: bool = True
    residual_scale: ExactLike | None = None
    places: Mapping[str, Location] = field(default_factory=_no_places, repr=False, compare=False)

    def __post_init__(self) -> None:
        with Blame():
            if self.placement not in PLACEMENTS:
                expected = f"{', '.join(PLACEMENTS[:-1])} or {PLACEMENTS[-1]}"
                raise TfgraphError(f"placement is '{self.placement}', expected {expected}")

    @property
    def ends_normed(self) -> bool:
        """Whether a stack of such layers has a norm of its own behind the last one."""
        return self.placement != "post" and self.norm_of.kind != "none"

    @property
    def norm_of(self) -> Norm:
        """The norm of the layer."""
        return Norm(self.norm, self.eps) if isinstance(self.norm, str) else self.norm

    def normed(self, x: Array, name: str) -> Traced:
        """The layer's norm of x, with parameters of that name."""
        with self.at("norm"):
            return self.norm_of(x, name)

    def at(self, part: str) -> AbstractContextManager[None]:
        """Nodes made inside come from the place of that part, if it is known."""
        place = self.places.get(part)
        return ops.current().at(place) if place else contextlib.nullcontext()


def encoder_layer(
    x: Array,
    layer: Layer,
    *,
    mask: Mask | None = None,
    name: str = "layer",
    params: str | None = None,
) -> Traced:
    """Self-attention and feed-forward, each with its residual sum and norm; the shape of x stays.

    `params` names the scope of the parameters where layers share them. Vaswani et al. 2017.
    """
    return _layer(x, layer, mask, name, params)


def decoder_layer(
    x: Array,
    layer: Layer,
    *,
    mask: Mask | None = None,
    memory: Memory | None = None,
    memory_mask: Mask | None = None,
    cache: Cache | None = None,
    name: str = "layer",
    params: str | None = None,
) -> Traced:
    """As an encoder layer, causal unless `mask` says otherwise; with `memory`, the encoder's
    output, attention to it stands between the two. In a step of generation, `cache` keeps the keys
    and values as states `NAME.k` and `NAME.v`, and the memory is that of `project_memory`."""
    mask = causal() if mask is None else mask
    return _layer(x, layer, mask, name, params, memory, memory_mask, cache)


def _layer(
    x: Array,
    layer: Layer,
    mask: Mask | None,
    name: str,
    params: str | None,
    memory: Memory | None = None,
    memory_mask: Mask | None = None,
    cache: Cache | None = None,
) -> Traced:
    for keyword, given in (("mask", mask), ("memory_mask", memory_mask)):
        if given is not None:
            require_mask(f"{keyword}=", given)
    builder = ops.current()
    name = builder.unique(name)
    append = None if cache is None else partial(cache.append, name)
    with builder.scope(name, params):
        if layer.placement == "parallel":
            if memory is not None:
                raise TfgraphError("parallel: the parts of a layer with memory follow each other")
            y = _parallel(x, layer, mask, append)
        else:
            x = _residual(x, lambda y: _attend(y, layer, mask, append), layer, "attention")
            if memory is not None:
                x = _residual(
                    x,
                    lambda y: _cross_attend(y, memory, layer, memory_mask),
                    layer,
                    "cross_attention",
                )
            y = _residual(x, lambda y: _feed(y, layer), layer, "ffn")
    return labelled(y, name)


def _attend(x: Array, layer: Layer, mask: Mask | None, append: Append | None) -> Traced:
    """Self-attention."""
    return _attention(x, x, layer, mask, layer.rotary, "attention", append)


def _cross_attend(x: Array, memory: Memory, layer: Layer, mask: Mask | None) -> Traced:
    """Attention to memory, whose positions are not those of x: nothing is turned."""
    return _attention(x, memory, layer, mask, None, "cross_attention")


def _attention(
    x: Array,
    to: Memory,
    layer: Layer,
    mask: Mask | None,
    rotary: Rotary | None,
    name: str,
    append: Append | None = None,
) -> Traced:
    k, v = to if isinstance(to, tuple) else (to, to)
    return attention(
        x,
        k,
        v,
        heads=layer.heads,
        kv_heads=layer.kv_heads,
        head_size=layer.head_size,
        value_size=layer.value_size,
        mask=mask,
        scale=layer.scale,
        softcap=layer.softcap,
        bias=layer.bias if layer.qkv_bias is None else layer.qkv_bias,
        key_bias=layer.key_bias,
        out_bias=layer.bias if layer.out_bias is None else layer.out_bias,
        rotary=rotary,
        qk_norm=layer.qk_norm,
        qk_norm_over=layer.qk_norm_over,
        disentangled=layer.disentangled if name == "attention" else None,
        cache=append,
        projected=isinstance(to, tuple),
        name=name,
    )


def _feed(x: Array, layer: Layer) -> Traced:
    """The feed-forward network, or the mixture of them."""
    middle = 4 * width_of(x) if layer.ffn is None else layer.ffn
    bias = layer.bias if layer.ffn_bias is None else layer.ffn_bias
    activation, gated = layer.activation, layer.gated
    if layer.experts is None:
        return feed_forward(x, middle, activation=activation, gated=gated, bias=bias)
    return mixture_of_experts(
        x, middle, layer.experts, activation=activation, gated=gated, bias=bias
    )


def _residual(x: Array, f: Callable[[Array], Traced], layer: Layer, name: str) -> Traced:
    """f with its norms and its sum; Xiong et al. 2020 compare post and pre, Ding et al. 2021 has
    the sandwich, Liu et al. 2021 (Swin v2) the inner one."""
    with layer.at("ffn" if name == "ffn" else "attention"):
        if layer.placement == "post":
            return layer.normed(_sum(x, [f(x)], layer), f"{name}_norm")
        bare = layer.placement == "inner" or (name == "attention" and not layer.attention_normed)
        y = f(x if bare else layer.normed(x, f"{name}_norm"))
        if layer.placement in ("sandwich", "inner"):
            y = layer.normed(y, f"{name}_post_norm")
        return labelled(_sum(x, [y], layer), f"{name}_sum")


def _parallel(x: Array, layer: Layer, mask: Mask | None, append: Append | None) -> Array:
    """x + attention(norm(x)) + ffn(norm(x)). Wang and Komatsuzaki 2021 (GPT-J)."""
    normed = layer.normed(x, "attention_norm")
    with layer.at("attention"):
        attended = _attend(normed, layer, mask, append)
    with layer.at("ffn"):
        fed = _feed(normed if layer.shared_norm else layer.normed(x, "ffn_norm"), layer)
        return _sum(x, [attended, fed], layer)


def _sum(x: Array, added: list[Traced], layer: Layer) -> Array:
    """x and what is added to it, which is scaled; without x where there is no residual."""
    total: Array | None = x if layer.residual else None
    for y in added:
        part = y if layer.residual_scale is None else ops.mul(y, layer.residual_scale)
        total = part if total is None else ops.add(total, part)
    return cast("Array", total)
