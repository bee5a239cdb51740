"""Layers and stacks of layers: encoder and decoder, post-norm and pre-norm.

May import: basic, attention, ops, ir.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfgraph import ops
from tfgraph.blocks.attention import attention
from tfgraph.blocks.basic import feed_forward, labelled, norm, require_size, width_of
from tfgraph.errors import TfgraphError
from tfgraph.ir.mask import causal
from tfgraph.ops.builder import Blame
from tfgraph.ops.operands import require_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from tfgraph.errors import Location
    from tfgraph.ir import ExactLike, Mask
    from tfgraph.ops import Array, Traced


def _no_places() -> dict[str, Location]:
    return {}


@dataclass(frozen=True)
class Layer:
    """The hyperparameters of one layer. `ffn` None is four times the width; see `attention` for
    the other defaults. `places` says where in a user's file a part comes from: "attention", "ffn",
    "norm"."""

    heads: int | None = None
    ffn: int | None = None
    kv_heads: int | None = None
    head_size: int | None = None
    scale: ExactLike | None = None
    softcap: ExactLike | None = None
    activation: str = "gelu"
    gated: bool = False
    bias: bool = True
    norm: str = "layer_norm"
    eps: ExactLike = 1e-5
    placement: str = "post"
    places: Mapping[str, Location] = field(default_factory=_no_places, repr=False, compare=False)

    def __post_init__(self) -> None:
        with Blame():
            if self.placement not in ("post", "pre"):
                raise TfgraphError(f"placement is '{self.placement}', expected post or pre")

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
    memory: Array | None = None,
    memory_mask: Mask | None = None,
    name: str = "layer",
    params: str | None = None,
) -> Traced:
    """As an encoder layer, causal unless `mask` says otherwise; with `memory`, the encoder's
    output, attention to it stands between the two."""
    mask = causal() if mask is None else mask
    return _layer(x, layer, mask, name, params, memory, memory_mask)


def _layer(
    x: Array,
    layer: Layer,
    mask: Mask | None,
    name: str,
    params: str | None,
    memory: Array | None = None,
    memory_mask: Mask | None = None,
) -> Traced:
    def attend(y: Array, to: Array, mask: Mask | None, name: str) -> Traced:
        return attention(
            y,
            to,
            to,
            heads=layer.heads,
            kv_heads=layer.kv_heads,
            head_size=layer.head_size,
            mask=mask,
            scale=layer.scale,
            softcap=layer.softcap,
            bias=layer.bias,
            name=name,
        )

    def feed(y: Array) -> Traced:
        middle = 4 * width_of(y) if layer.ffn is None else layer.ffn
        return feed_forward(
            y, middle, activation=layer.activation, gated=layer.gated, bias=layer.bias
        )

    for keyword, given in (("mask", mask), ("memory_mask", memory_mask)):
        if given is not None:
            require_mask(f"{keyword}=", given)
    builder = ops.current()
    name = builder.unique(name)
    with builder.scope(name, params):
        x = _residual(x, lambda y: attend(y, y, mask, "attention"), layer, "attention")
        if memory is not None:
            x = _residual(
                x,
                lambda y: attend(y, memory, memory_mask, "cross_attention"),
                layer,
                "cross_attention",
            )
        y = _residual(x, feed, layer, "ffn")
    return labelled(y, name)


def _residual(x: Array, f: Callable[[Array], Traced], layer: Layer, name: str) -> Traced:
    """post: norm(x + f(x)); pre: x + f(norm(x)). Xiong et al. 2020 compare them."""

    def normed(y: Array) -> Traced:
        with layer.at("norm"):
            return norm(y, kind=layer.norm, eps=layer.eps, name=f"{name}_norm")

    with layer.at("ffn" if name == "ffn" else "attention"):
        if layer.placement == "post":
            return normed(ops.add(x, f(x)))
        return labelled(ops.add(x, f(normed(x))), f"{name}_sum")


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
    `final_norm` (by default in a pre-norm stack). With `share`, all layers have the parameters
    `layers.shared` (Lan et al. 2019)."""
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
    memory: Array | None = None,
    memory_mask: Mask | None = None,
    share: bool = False,
    final_norm: bool | None = None,
) -> list[Traced]:
    """As `encoder_states`, of decoder layers that also attend to `memory` where it is given."""
    return _stack(
        x,
        layers,
        layer,
        lambda y, name, params: decoder_layer(
            y,
            layer,
            mask=mask,
            memory=memory,
            memory_mask=memory_mask,
            name=name,
            params=params,
        ),
        share,
        final_norm,
    )


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
    if layer.placement == "pre" if final_norm is None else final_norm:
        with layer.at("norm"):
            states[-1] = norm(states[-1], kind=layer.norm, eps=layer.eps, name="final_norm")
    return states  # type: ignore[return-value]
