"""Falcon and Phi: decoders whose attention and feed-forward network stand beside each other.

May import: gpt, architecture, config, derive, tops.
"""

from __future__ import annotations

from functools import partial

from tfgraph.hf.architecture import (
    Architecture,
    Top,
    grouped,
    linear,
    norm,
    register_architecture,
    table,
    vector,
)
from tfgraph.hf.architectures.gpt import DECODER, NEEDS
from tfgraph.hf.config import Config, Key
from tfgraph.hf.derive import Values, head_size, rotary
from tfgraph.hf.tops import decoder_tops

_ROTARY_BUFFERS = ("*.rotary_emb.inv_freq",)


def _falcon(config: Config, values: Values) -> Values:
    """Heads, norms and positions of the two architectures: 40B and later have `new_...`."""
    new = config.get("new_decoder_architecture", False)
    parallel = config.get("parallel_attn", True)
    if new and not parallel:
        raise config.error("parallel_attn", "false is not supported in the new architecture")
    several = config.get("num_ln_in_parallel_attn", 2 if new else 1) == 2
    found: Values = {"norm.placement": "parallel" if parallel else "pre"}
    if parallel and new and several:
        found["norm.shared"] = False
    if new:
        found["kv_heads"] = config.number("num_kv_heads", values["heads"], "size")
    elif config.get("multi_query", True):
        found["kv_heads"] = 1
    if not config.get("alibi", False):
        return found | rotary(config, values)
    # Its penalties are added before scores are divided by the root of the size of a head.
    return found | {"positions.kind": "alibi", "positions.scale": f"rsqrt({head_size(values)})"}


_FALCON_QKV = "h.{i}.self_attention.query_key_value"
FALCON = register_architecture(
    Architecture(
        model_type="falcon",
        title="Falcon",
        paper="Almazrouei et al. 2023",
        prefix="transformer.",
        keys=(
            Key("num_hidden_layers|n_layer", "layers"),
            Key("hidden_size", "width"),
            Key("num_attention_heads|n_head", "heads"),
            Key("ffn_hidden_size", "ffn", optional=True),
            Key("activation", "activation", "gelu", "activation"),
            Key("bias", "bias", False, "flag"),
            Key("layer_norm_epsilon", "norm.eps", 1e-5, "number"),
            Key("vocab_size", "vocabulary"),
        ),
        needs={**NEEDS, "apply_residual_connection_post_layernorm": (False,)},
        fixed=DECODER,
        also=(_falcon,),
        parts={
            "embeddings.tokens": table("word_embeddings"),
            "layers.{i}.attention.q": grouped(_FALCON_QKV, "q"),
            "layers.{i}.attention.k": grouped(_FALCON_QKV, "k"),
            "layers.{i}.attention.v": grouped(_FALCON_QKV, "v"),
            "layers.{i}.attention.out": linear("h.{i}.self_attention.dense"),
            "layers.{i}.ffn.up": linear("h.{i}.mlp.dense_h_to_4h"),
            "layers.{i}.ffn.down": linear("h.{i}.mlp.dense_4h_to_h"),
            "layers.{i}.attention_norm": norm("h.{i}.ln_attn", "h.{i}.input_layernorm"),
            "layers.{i}.ffn_norm": norm(
                "h.{i}.ln_mlp", "h.{i}.post_attention_layernorm", optional=True
            ),
            "final_norm": norm("ln_f"),
        },
        tops={
            "FalconForCausalLM": Top(head={"kind": "lm"}, decoder="lm_head"),
            "FalconModel": Top(),
            **decoder_tops("Falcon"),
        },
        ignore=_ROTARY_BUFFERS,
    )
)


def _phi(config: Config, values: Values) -> Values:
    normed = config.get("qk_layernorm", False)
    return {"attention.qk_norm": "layer_norm"} if normed else {}


_PHI_LAYER = "layers.{i}.self_attn"
PHI = register_architecture(
    Architecture(
        model_type="phi",
        title="Phi",
        paper="Li et al. 2023",
        prefix="model.",
        keys=(
            Key("num_hidden_layers", "layers"),
            Key("hidden_size", "width"),
            Key("num_attention_heads", "heads"),
            Key("num_key_value_heads", "kv_heads", optional=True),
            Key("intermediate_size", "ffn"),
            Key("hidden_act", "activation", "gelu_new", "activation"),
            Key("layer_norm_eps", "norm.eps", 1e-5, "number"),
            Key("vocab_size", "vocabulary"),
        ),
        needs=NEEDS,
        fixed={**DECODER, "norm.placement": "parallel"},
        also=(_phi, partial(rotary, share=0.5)),
        parts={
            "embeddings.tokens": table("embed_tokens"),
            "layers.{i}.attention.q": linear(f"{_PHI_LAYER}.q_proj"),
            "layers.{i}.attention.k": linear(f"{_PHI_LAYER}.k_proj"),
            "layers.{i}.attention.v": linear(f"{_PHI_LAYER}.v_proj"),
            "layers.{i}.attention.q_norm": norm(f"{_PHI_LAYER}.q_layernorm", optional=True),
            "layers.{i}.attention.k_norm": norm(f"{_PHI_LAYER}.k_layernorm", optional=True),
            "layers.{i}.attention.out": linear(f"{_PHI_LAYER}.dense"),
            "layers.{i}.ffn.up": linear("layers.{i}.mlp.fc1"),
            "layers.{i}.ffn.down": linear("layers.{i}.mlp.fc2"),
            "layers.{i}.attention_norm": norm("layers.{i}.input_layernorm"),
            "final_norm": norm("final_layernorm"),
        },
        tops={
            "PhiForCausalLM": Top(
                head={"kind": "lm", "bias": True},
                parts={"lm_head.bias": vector("lm_head.bias")},
                decoder="lm_head",
            ),
            "PhiModel": Top(),
            **decoder_tops("Phi"),
        },
        tied=False,
        ignore=_ROTARY_BUFFERS,
    )
)
