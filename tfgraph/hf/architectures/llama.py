"""Llama and the decoders after it: RMS norms and gates, each entry by what it has otherwise.

May import: architecture, config, derive, tops.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from tfgraph.hf.architecture import (
    Architecture,
    Part,
    Top,
    linear,
    norm,
    register_architecture,
    stacked,
    table,
)
from tfgraph.hf.config import Config, Key
from tfgraph.hf.derive import (
    MOST_LAYERS,
    Values,
    local_layers,
    rotary,
    window,
)
from tfgraph.hf.tops import decoder_tops

SIZES = (
    Key("num_hidden_layers", "layers"),
    Key("hidden_size", "width"),
    Key("num_attention_heads", "heads"),
    Key("num_key_value_heads", "kv_heads", optional=True),
    Key("head_dim", "head_size", optional=True),
    Key("intermediate_size", "ffn"),
    Key("vocab_size", "vocabulary"),
)
EPS = Key("rms_norm_eps", "norm.eps", 1e-6, "number")
_KEYS = (*SIZES, EPS, Key("hidden_act", "activation", "silu", "activation"))
BIAS = Key("attention_bias", "attention.bias", False, "flag")
FIXED: dict[str, Any] = {
    "kind": "decoder",
    "gated": True,
    "bias": False,
    "norm.kind": "rms_norm",
    "norm.placement": "pre",
    "mask": ["causal", "padding"],
}
NEEDS: dict[str, tuple[Any, ...]] = {"quantization_config": (None,)}
_ATTENTION = "layers.{i}.self_attn"
PARTS = {
    "embeddings.tokens": table("embed_tokens"),
    "layers.{i}.attention.q": linear(f"{_ATTENTION}.q_proj"),
    "layers.{i}.attention.k": linear(f"{_ATTENTION}.k_proj"),
    "layers.{i}.attention.v": linear(f"{_ATTENTION}.v_proj"),
    "layers.{i}.attention.out": linear(f"{_ATTENTION}.o_proj"),
    "layers.{i}.attention_norm": norm("layers.{i}.input_layernorm"),
    "layers.{i}.ffn.gate": linear("layers.{i}.mlp.gate_proj"),
    "layers.{i}.ffn.up": linear("layers.{i}.mlp.up_proj"),
    "layers.{i}.ffn.down": linear("layers.{i}.mlp.down_proj"),
    "layers.{i}.ffn_norm": norm("layers.{i}.post_attention_layernorm"),
    "final_norm": norm("norm"),
}
QK_NORMS = {
    "layers.{i}.attention.q_norm": norm(f"{_ATTENTION}.q_norm"),
    "layers.{i}.attention.k_norm": norm(f"{_ATTENTION}.k_norm"),
}


def with_head_size(keys: tuple[Key, ...], usual: int) -> tuple[Key, ...]:
    """The keys, with a usual size of a head that is not the width by the heads."""
    others = tuple(key for key in keys if key.ours != "head_size")
    return (*others, Key("head_dim", "head_size", usual))


def without(*names: str) -> dict[str, Part]:
    """Llama's parts but for those names."""
    return {name: part for name, part in PARTS.items() if name not in names}


def tops_of(name: str) -> dict[str, Top]:
    """The classes of an architecture: NAMEForCausalLM, NAMEModel, and those of all decoders."""
    return {
        f"{name}ForCausalLM": Top(head={"kind": "lm"}, decoder="lm_head"),
        f"{name}Model": Top(),
        **decoder_tops(name),
    }


LLAMA = register_architecture(
    Architecture(
        model_type="llama",
        title="Llama",
        paper="Touvron et al. 2023",
        prefix="model.",
        keys=(*_KEYS, BIAS, Key("mlp_bias", "ffn_bias", False, "flag")),
        needs=NEEDS,
        fixed=FIXED,
        also=(rotary,),
        parts=PARTS,
        tops=tops_of("Llama"),
        tied=False,
        ignore=("*.rotary_emb.inv_freq",),
    )
)
MISTRAL = register_architecture(
    replace(
        LLAMA,
        model_type="mistral",
        title="Mistral",
        paper="Jiang et al. 2023",
        keys=_KEYS,
        also=(rotary, partial(window, usual=4096)),
        tops=tops_of("Mistral"),
    )
)

_EXPERT = "layers.{i}.block_sparse_moe.experts.{e}"
MIXTRAL = register_architecture(
    replace(
        MISTRAL,
        model_type="mixtral",
        title="Mixtral",
        paper="Jiang et al. 2024",
        keys=(
            *SIZES,
            Key("rms_norm_eps", "norm.eps", 1e-5, "number"),
            Key("hidden_act", "activation", "silu", "activation"),
            Key("num_local_experts", "experts.count", 8),
            Key("num_experts_per_tok", "experts.active", 2),
        ),
        also=(partial(rotary, base=1000000), window),
        parts={
            **without("layers.{i}.ffn.gate", "layers.{i}.ffn.up", "layers.{i}.ffn.down"),
            "layers.{i}.ffn.router": linear("layers.{i}.block_sparse_moe.gate"),
            "layers.{i}.ffn.experts.{e}.gate": linear(f"{_EXPERT}.w1"),
            "layers.{i}.ffn.experts.{e}.up": linear(f"{_EXPERT}.w3"),
            "layers.{i}.ffn.experts.{e}.down": linear(f"{_EXPERT}.w2"),
        },
        tops=tops_of("Mixtral"),
    )
)


def _qwen(config: Config, values: Values) -> Values:
    """A window in the layers from `max_window_layers` on, if it is used at all."""
    if not config.get("use_sliding_window", False) or not config.get("sliding_window"):
        return {}
    first = int(config.number("max_window_layers", 28, "id"))
    count = min(int(values["layers"]), MOST_LAYERS)
    types = ["sliding_attention" if i >= first else "full_attention" for i in range(count)]
    return local_layers(config, types, left=config.number("sliding_window", None, "distance"))


QWEN2 = register_architecture(
    replace(
        LLAMA,
        model_type="qwen2",
        title="Qwen2",
        paper="Yang et al. 2024",
        keys=_KEYS,
        fixed={**FIXED, "attention.bias": True, "attention.out_bias": False},
        also=(rotary, _qwen),
        tops=tops_of("Qwen2"),
    )
)
QWEN3 = register_architecture(
    replace(
        LLAMA,
        model_type="qwen3",
        title="Qwen3",
        paper="Yang et al. 2025",
        keys=(*with_head_size(_KEYS, 128), BIAS),
        fixed={**FIXED, "attention.qk_norm": "rms_norm"},
        also=(rotary, _qwen),
        parts={**PARTS, **QK_NORMS},
        tops=tops_of("Qwen3"),
    )
)

_QKV, _GATE_UP = f"{_ATTENTION}.qkv_proj", "layers.{i}.mlp.gate_up_proj"
PHI3 = register_architecture(
    replace(
        LLAMA,
        model_type="phi3",
        title="Phi-3",
        paper="Abdin et al. 2024",
        keys=(
            *SIZES,
            Key("rms_norm_eps", "norm.eps", 1e-5, "number"),
            Key("hidden_act", "activation", "silu", "activation"),
        ),
        also=(rotary, window),
        parts={
            **PARTS,
            "layers.{i}.attention.q": stacked(_QKV, "q"),
            "layers.{i}.attention.k": stacked(_QKV, "k"),
            "layers.{i}.attention.v": stacked(_QKV, "v"),
            "layers.{i}.ffn.gate": linear(_GATE_UP, parts=(0, 2)),
            "layers.{i}.ffn.up": linear(_GATE_UP, parts=(1, 2)),
        },
        tops=tops_of("Phi3"),
    )
)

OLMO2 = register_architecture(
    replace(
        LLAMA,
        model_type="olmo2",
        title="OLMo 2",
        paper="OLMo Team 2024",
        keys=(
            *SIZES,
            Key("rms_norm_eps", "norm.eps", 1e-5, "number"),
            Key("hidden_act", "activation", "silu", "activation"),
            BIAS,
        ),
        fixed={
            **FIXED,
            "norm.placement": "inner",
            "attention.qk_norm": "rms_norm",
            "attention.qk_norm_over": "width",
        },
        parts={
            **without("layers.{i}.attention_norm", "layers.{i}.ffn_norm"),
            **QK_NORMS,
            "layers.{i}.attention_post_norm": norm("layers.{i}.post_attention_layernorm"),
            "layers.{i}.ffn_post_norm": norm("layers.{i}.post_feedforward_layernorm"),
        },
        tops=tops_of("Olmo2"),
    )
)


def _cohere(config: Config, values: Values) -> Values:
    found: Values = {"positions.layout": "interleaved"}
    if config.get("use_qk_norm", False):
        found |= {"attention.qk_norm": "layer_norm", "attention.qk_norm_over": "own"}
    return found


COHERE = register_architecture(
    replace(
        LLAMA,
        model_type="cohere",
        title="Command R",
        paper="Cohere 2024",
        keys=(
            *SIZES,
            Key("hidden_act", "activation", "silu", "activation"),
            Key("layer_norm_eps", "norm.eps", 1e-5, "number"),
            Key("logit_scale", "head.scale", 0.0625, "number"),
            BIAS,
        ),
        fixed={
            **FIXED,
            "norm.kind": "layer_norm",
            "norm.placement": "parallel",
            "norm.bias": False,
        },
        also=(rotary, _cohere),
        parts={
            **without("layers.{i}.ffn_norm"),
            "layers.{i}.attention.q_norm": norm(
                f"{_ATTENTION}.q_norm", optional=True, steps=("flat({})",)
            ),
            "layers.{i}.attention.k_norm": norm(
                f"{_ATTENTION}.k_norm", optional=True, steps=("flat({})",)
            ),
        },
        tops=tops_of("Cohere"),
        tied=True,
    )
)
