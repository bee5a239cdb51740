"""Layers and stacks of layers: encoder and decoder, and where their norms and sums stand.

May import: basic, attention, cache, experts, positions, ops, ir.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, cast

from tfgraph import ops
from tfgraph.blocks.attention import attention
from tfgraph.blocks.basic import Norm, feed_forward, labelled, linear, require_size, width_of
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
    from tfgraph.blocks.experts import Experts
    from tfgraph.blocks.positions import Rotary
    from tfgraph.errors import Location
    from tfgraph.ir import ExactLike, Mask
    from tfgraph.ops import Array, Traced

    Memory = Array | tuple[Array, Array]


def _no_places() -> dict[str, Location]:
    return {}


PLACEMENTS = ("post", "pre", "sandwich", "parallel")


@dataclass(frozen=True)
class Layer:
    """The hyperparameters of one layer. `ffn` None is four times the width; see `attention` for
    the other defaults. `bias` is that of all linear layers, unless `qkv_bias`, `out_bias` or
    `ffn_bias` is given. `norm` is a kind, which then has `eps`, or a Norm; `qk_norm` is one of the
    heads of Q and K.

    `placement` says where norms stand. post: norm(x + f(x)); pre: x + f(norm(x)); sandwich:
    x + norm(f(norm(x))); parallel: x + attention(norm(x)) + ffn(norm(x)), one norm for both if
    `shared_norm`. Each f(x) is multiplied by `residual_scale`; without `residual` x is not added.
    With `experts` the feed-forward network is a mixture. `rotary` turns the heads of
    self-attention.

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
    rotary: Rotary | None = None
    activation: str = "gelu"
    gated: bool = False
    experts: Experts | None = None
    bias: bool = True
    qkv_bias: bool | None = None
    out_bias: bool | None = None
    ffn_bias: bool | None = None
    norm: str | Norm = "layer_norm"
    eps: ExactLike = 1e-5
    placement: str = "post"
    shared_norm: bool = True
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
        out_bias=layer.bias if layer.out_bias is None else layer.out_bias,
        rotary=rotary,
        qk_norm=layer.qk_norm,
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
    the sandwich."""
    with layer.at("ffn" if name == "ffn" else "attention"):
        if layer.placement == "post":
            return layer.normed(_sum(x, [f(x)], layer), f"{name}_norm")
        y = f(layer.normed(x, f"{name}_norm"))
        if layer.placement == "sandwich":
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


def encoder(
    x: Array,
    layers: int,
    layer: Layer,
    *,
    mask: Mask | None = None,
    share: bool = False,
    final_norm: bool | None = None,
) -> Traced:
    """A stack of encoder layers; see `encoder_states`."""
    return encoder_states(x, layers, layer, mask=mask, share=share, final_norm=final_norm)[-1]


def encoder_states(
    x: Array,
    layers: int,
    layer: Layer,
    *,
    mask: Mask | None = None,
    share: bool = False,
    final_norm: bool | None = None,
) -> list[Traced]:
    """The input and the output of each layer, named `layers.0` and on, the last one normed if
    `final_norm` (by default unless norms are `post` or `none`). With `share`, all layers have the
    parameters `layers.shared` (Lan et al. 2019)."""
    return _stack(
        x,
        layers,
        layer,
        lambda y, name, params: encoder_layer(y, layer, mask=mask, name=name, params=params),
        share,
        final_norm,
    )


def decoder(
    x: Array,
    layers: int,
    layer: Layer,
    *,
    mask: Mask | None = None,
    memory: Array | None = None,
    memory_mask: Mask | None = None,
    share: bool = False,
    final_norm: bool | None = None,
) -> Traced:
    """A stack of decoder layers; see `decoder_states`."""
    return decoder_states(
        x,
        layers,
        layer,
        mask=mask,
        memory=memory,
        memory_mask=memory_mask,
        share=share,
        final_norm=final_norm,
    )[-1]


def decoder_states(
    x: Array,
    layers: int,
    layer: Layer,
    *,
    mask: Mask | None = None,
    memory: Array | Sequence[tuple[Array, Array]] | None = None,
    memory_mask: Mask | None = None,
    cache: Cache | None = None,
    share: bool = False,
    final_norm: bool | None = None,
) -> list[Traced]:
    """As `encoder_states`, of decoder layers that also attend to `memory` where it is given: the
    encoder's output, or for each layer what `project_memory` makes of it."""

    def memory_of(name: str) -> Memory | None:
        index = int(name.rpartition(".")[2])
        return memory[index] if isinstance(memory, Sequence) else memory

    return _stack(
        x,
        layers,
        layer,
        lambda y, name, params: decoder_layer(
            y,
            layer,
            mask=mask,
            memory=memory_of(name),
            memory_mask=memory_mask,
            cache=cache,
            name=name,
            params=params,
        ),
        share,
        final_norm,
    )


def project_memory(
    memory: Array, layers: int, layer: Layer, *, share: bool = False
) -> list[tuple[Traced, Traced]]:
    """The keys and values of the encoder's output for each decoder layer's attention to it: made
    once for all steps of generation, with the parameters that the layers have."""
    builder, width = ops.current(), width_of(memory)
    heads = max(1, width // 64) if layer.heads is None else layer.heads
    kv_heads = heads if layer.kv_heads is None else layer.kv_heads
    size = width // heads if layer.head_size is None else layer.head_size
    value_size = size if layer.value_size is None else layer.value_size
    bias = layer.bias if layer.qkv_bias is None else layer.qkv_bias
    made: list[tuple[Traced, Traced]] = []
    for i in range(layers):
        with (
            builder.scope(f"layers.{i}", "layers.shared" if share else None),
            builder.scope("cross_attention"),
        ):
            k = linear(memory, kv_heads * size, bias=bias, name="k")
            v = linear(memory, kv_heads * value_size, bias=bias, name="v")
        made.append((k, v))
    return made


def _stack(
    x: Array,
    layers: int,
    layer: Layer,
    apply: Callable[[Array, str, str | None], Traced],
    share: bool,
    final_norm: bool | None,
) -> list[Traced]:
    require_size("the number of layers", layers)
    states: list[Array] = [x]
    for i in range(layers):
        states.append(apply(states[-1], f"layers.{i}", "layers.shared" if share else None))
    if layer.ends_normed if final_norm is None else final_norm:
        states[-1] = layer.normed(states[-1], "final_norm")
    return states  # type: ignore[return-value]
