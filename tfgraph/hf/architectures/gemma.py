"""Gemma, 2 and 3: norms times 1 + w, heads wider than their share, layers that see less.

May import: llama, architecture, config, derive, tops.
"""

from __future__ import annotations

from dataclasses import replace

from tfgraph.hf.architecture import Top, norm, register_architecture
from tfgraph.hf.architectures.llama import (
    BIAS,
    EPS,
    FIXED,
    LLAMA,
    NEEDS,
    QK_NORMS,
    SIZES,
    tops_of,
    with_head_size,
    without,
)
from tfgraph.hf.config import Config, Key
from tfgraph.hf.derive import (
    Values,
    alternating,
    local_layers,
    query_scale,
    rotary,
    rotary_keys,
)
from tfgraph.hf.tops import decoder_tops


def _activation(spellings: str) -> Key:
    return Key(spellings, "activation", "gelu_pytorch_tanh", "activation")


_SIZES = (*with_head_size(SIZES, 256), EPS, BIAS)
_KEYS = (*_SIZES, _activation("hidden_activation|hidden_act"))
_OURS = {**FIXED, "norm.unit_offset": True, "embedding.scale": "sqrt(width)"}
GEMMA = register_architecture(
    replace(
        LLAMA,
        model_type="gemma",
        title="Gemma",
        paper="Gemma Team 2024",
        keys=(*_SIZES, _activation("hidden_act|hidden_activation")),
        needs={**NEEDS, "use_bidirectional_attention": (None, False)},
        fixed=_OURS,
        tops=tops_of("Gemma"),
        tied=True,
    )
)

_SANDWICH = {
    **without("layers.{i}.ffn_norm"),
    "layers.{i}.attention_post_norm": norm("layers.{i}.post_attention_layernorm"),
    "layers.{i}.ffn_norm": norm("layers.{i}.pre_feedforward_layernorm"),
    "layers.{i}.ffn_post_norm": norm("layers.{i}.post_feedforward_layernorm"),
}


def _gemma2(config: Config, values: Values) -> Values:
    left = config.number("sliding_window", 4096, "distance")
    return local_layers(config, alternating(config, values, 2), left=left)


_SOFTCAPS = (
    Key("attn_logit_softcapping", "attention.softcap", 50, "number", optional=True),
    Key("final_logit_softcapping", "head.softcap", 30, "number", optional=True),
)
GEMMA2 = register_architecture(
    replace(
        GEMMA,
        model_type="gemma2",
        title="Gemma 2",
        paper="Gemma Team 2024",
        keys=(*_KEYS, *_SOFTCAPS),
        fixed={**_OURS, "norm.placement": "sandwich"},
        also=(rotary, query_scale, _gemma2),
        parts=_SANDWICH,
        tops=tops_of("Gemma2"),
    )
)


def _gemma3(config: Config, values: Values) -> Values:
    """A base of rotary positions for local layers, another one for the rest, and every sixth."""
    most = config.number("max_position_embeddings", 131072, "size")
    full = rotary_keys(config, values, "positions", "full_attention", base=1000000)
    near = rotary_keys(
        config,
        values,
        "local.positions",
        "sliding_attention",
        theta="rope_local_base_freq",
        scaled=isinstance(config.get("rope_parameters.sliding_attention"), dict),
    )
    every = int(config.number("sliding_window_pattern|_sliding_window_pattern", 6, "size"))
    types = alternating(config, values, every)
    local = local_layers(config, types, left=config.number("sliding_window", 4096, "distance"))
    found: Values = {"positions.kind": "rotary", **full, "positions.max": most}
    if not local:
        return found
    return found | local | {"local.positions.kind": "rotary", **near, "local.positions.max": most}


GEMMA3 = register_architecture(
    replace(
        GEMMA2,
        model_type="gemma3_text",
        title="Gemma 3",
        paper="Gemma Team 2025",
        # `attn_logit_softcapping` may stand in config.json, and is not read.
        keys=(*_KEYS, replace(_SOFTCAPS[1], default=None)),
        fixed={**_OURS, "norm.placement": "sandwich", "attention.qk_norm": "rms_norm"},
        also=(query_scale, _gemma3),
        parts={**_SANDWICH, **QK_NORMS},
        tops={
            "Gemma3ForCausalLM": Top(head={"kind": "lm"}, decoder="lm_head"),
            "Gemma3TextModel": Top(),
            **decoder_tops("Gemma3Text"),
        },
    )
)
