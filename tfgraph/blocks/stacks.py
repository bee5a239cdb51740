"""Stacks of layers: encoder and decoder. May import: layers, attention, basic, ops, ir."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from tfgraph import ops
from tfgraph.blocks.attention import norm_heads
from tfgraph.blocks.basic import linear, require_size, width_of
from tfgraph.blocks.layers import Layer, decoder_layer, encoder_layer
from tfgraph.errors import TfgraphError
from tfgraph.ir import Mask

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.blocks.cache import Cache
    from tfgraph.ops import Array, Traced

    Memory = Array | tuple[Array, Array]

T = TypeVar("T")
Layers = Layer | Sequence[Layer]
"""The hyperparameters of all layers of a stack, or of each."""
Masks = Mask | Sequence[Mask | None] | None
"""The mask of all layers, or of each."""


def encoder(
    x: Array,
    layers: int,
    layer: Layers,
    *,
    mask: Masks = None,
    share: bool = False,
    final_norm: bool | None = None,
) -> Traced:
    """A stack of encoder layers; see `encoder_states`."""
    return encoder_states(x, layers, layer, mask=mask, share=share, final_norm=final_norm)[-1]


def encoder_states(
    x: Array,
    layers: int,
    layer: Layers,
    *,
    mask: Masks = None,
    share: bool = False,
    final_norm: bool | None = None,
    beside_first: Callable[[Array, Array], Traced] | None = None,
) -> list[Traced]:
    """The input and the output of each layer, named `layers.0` and on, the last one normed if
    `final_norm` (by default unless norms are `post` or `none`). With `share`, all layers have the
    parameters `layers.shared` (Lan et al. 2019). What `beside_first` makes of input and output of
    the first layer takes the place of its output."""
    return _stack(
        x,
        layers,
        layer,
        lambda y, i, name, params: encoder_layer(
            y, _at(layer, i), mask=_at(mask, i), name=name, params=params
        ),
        share,
        final_norm,
        beside_first,
    )


def decoder(
    x: Array,
    layers: int,
    layer: Layers,
    *,
    mask: Masks = None,
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
    layer: Layers,
    *,
    mask: Masks = None,
    memory: Array | Sequence[tuple[Array, Array]] | None = None,
    memory_mask: Mask | None = None,
    cache: Cache | None = None,
    share: bool = False,
    final_norm: bool | None = None,
) -> list[Traced]:
    """As `encoder_states`, of decoder layers that also attend to `memory` where it is given: the
    encoder's output, or for each layer what `project_memory` makes of it."""
    return _stack(
        x,
        layers,
        layer,
        lambda y, i, name, params: decoder_layer(
            y,
            _at(layer, i),
            mask=_at(mask, i),
            memory=memory[i] if isinstance(memory, Sequence) else memory,
            memory_mask=memory_mask,
            cache=cache,
            name=name,
            params=params,
        ),
        share,
        final_norm,
    )


def project_memory(
    memory: Array, layers: int, layer: Layers, *, share: bool = False
) -> list[tuple[Traced, Traced]]:
    """The keys and values of the encoder's output for each decoder layer's attention to it: made
    once for all steps of generation, with the parameters that the layers have."""
    builder = ops.current()
    made: list[tuple[Traced, Traced]] = []
    for i in range(layers):
        with (
            builder.scope(f"layers.{i}", "layers.shared" if share else None),
            builder.scope("cross_attention"),
        ):
            made.append(_project(memory, _at(layer, i)))
    return made


def _project(memory: Array, layer: Layer) -> tuple[Traced, Traced]:
    """The keys, normed where the layer norms them, and the values."""
    width = width_of(memory)
    heads = max(1, width // 64) if layer.heads is None else layer.heads
    kv_heads = heads if layer.kv_heads is None else layer.kv_heads
    size = width // heads if layer.head_size is None else layer.head_size
    value_size = size if layer.value_size is None else layer.value_size
    bias = layer.bias if layer.qkv_bias is None else layer.qkv_bias
    key_bias = bias if layer.key_bias is None else layer.key_bias
    k: Array = linear(memory, kv_heads * size, bias=key_bias, name="k")
    v = linear(memory, kv_heads * value_size, bias=bias, name="v")
    if layer.qk_norm is not None:
        k = norm_heads(k, kv_heads, layer.qk_norm, layer.qk_norm_over, "k_norm")
    return cast("Traced", k), v


def _stack(
    x: Array,
    layers: int,
    layer: Layers,
    apply: Callable[[Array, int, str, str | None], Traced],
    share: bool,
    final_norm: bool | None,
    beside_first: Callable[[Array, Array], Traced] | None = None,
) -> list[Traced]:
    require_size("the number of layers", layers)
    if isinstance(layer, Sequence) and len(layer) != layers:
        raise TfgraphError(f"there are {layers} layers and the hyperparameters of {len(layer)}")
    states: list[Array] = [x]
    for i in range(layers):
        states.append(apply(states[-1], i, f"layers.{i}", "layers.shared" if share else None))
        if beside_first is not None and i == 0:
            states[-1] = beside_first(x, states[-1])
    last = _at(layer, layers - 1)
    if last.ends_normed if final_norm is None else final_norm:
        states[-1] = last.normed(states[-1], "final_norm")
    return states  # type: ignore[return-value]


def _at(given: T | Sequence[T], index: int) -> T:
    """That of one layer."""
    if isinstance(given, Sequence):
        return cast("Sequence[T]", given)[index]
    return given
