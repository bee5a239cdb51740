"""GPT-2 and the decoders after it that have layer norms: one entry an architecture.

May import: architecture, config, derive, tops.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tfgraph.hf.architecture import (
    Architecture,
    Part,
    Top,
    grouped,
    linear,
    norm,
    register_architecture,
    table,
    vector,
)
from tfgraph.hf.config import Config, Key
from tfgraph.hf.derive import Values, rotary, two_rows_before
from tfgraph.hf.tops import decoder_tops

DECODER: dict[str, Any] = {
    "kind": "decoder",
    "norm.kind": "layer_norm",
    "norm.placement": "pre",
    "mask": ["causal", "padding"],
}
NEEDS: dict[str, tuple[Any, ...]] = {
    "quantization_config": (None,),
    "add_cross_attention": (False,),
    "is_encoder_decoder": (False,),
}


def _norms(base: str, first: str, second: str, last: str) -> dict[str, Part]:
    return {
        "layers.{i}.attention_norm": norm(f"{base}.{first}"),
        "layers.{i}.ffn_norm": norm(f"{base}.{second}", optional=True),
        "final_norm": norm(last),
    }


def _gpt2(config: Config, values: Values) -> Values:
    """Scores that are not scaled by the size of a head, or by the number of the layer too."""
    scaled = config.number("scale_attn_weights", True, "flag")
    by_layer = config.number("scale_attn_by_inverse_layer_idx", False, "flag")
    found: Values = {} if scaled else {"attention.scale": 1}
    return found | ({"attention.scale_by_layer": True} if by_layer else {})


GPT2 = register_architecture(
    Architecture(
        model_type="gpt2",
        title="GPT-2",
        paper="Radford et al. 2019",
        prefix="transformer.",
        keys=(
            Key("n_layer", "layers"),
            Key("n_embd", "width"),
            Key("n_head", "heads"),
            Key("n_inner", "ffn", optional=True),
            Key("activation_function", "activation", "gelu_new", "activation"),
            Key("layer_norm_epsilon", "norm.eps", 1e-5, "number"),
            Key("n_positions|n_ctx", "positions.max", 1024),
            Key("vocab_size", "vocabulary"),
        ),
        needs=NEEDS,
        fixed={**DECODER, "positions.kind": "learned"},
        also=(_gpt2,),
        parts={
            "embeddings.tokens": table("wte"),
            "embeddings.positions": table("wpe"),
            "layers.{i}.attention.q": linear("h.{i}.attn.c_attn", transposed=True, parts=(0, 3)),
            "layers.{i}.attention.k": linear("h.{i}.attn.c_attn", transposed=True, parts=(1, 3)),
            "layers.{i}.attention.v": linear("h.{i}.attn.c_attn", transposed=True, parts=(2, 3)),
            "layers.{i}.attention.out": linear("h.{i}.attn.c_proj", transposed=True),
            "layers.{i}.ffn.up": linear("h.{i}.mlp.c_fc", transposed=True),
            "layers.{i}.ffn.down": linear("h.{i}.mlp.c_proj", transposed=True),
            **_norms("h.{i}", "ln_1", "ln_2", "ln_f"),
        },
        tops={
            "GPT2LMHeadModel": Top(head={"kind": "lm"}, decoder="lm_head"),
            "GPT2Model": Top(),
            **decoder_tops("GPT2"),
        },
        ignore=("*.attn.bias", "*.attn.masked_bias"),
    )
)


def _neox(config: Config, values: Values) -> Values:
    parallel = config.get("use_parallel_residual", True)
    return {"norm.placement": "parallel", "norm.shared": False} if parallel else {}


_NEOX_QKV = "layers.{i}.attention.query_key_value"
GPT_NEOX = register_architecture(
    Architecture(
        model_type="gpt_neox",
        title="GPT-NeoX",
        paper="Black et al. 2022",
        prefix="gpt_neox.",
        keys=(
            Key("num_hidden_layers", "layers"),
            Key("hidden_size", "width"),
            Key("num_attention_heads", "heads"),
            Key("intermediate_size", "ffn"),
            Key("hidden_act", "activation", "gelu", "activation"),
            Key("attention_bias", "attention.bias", True, "flag"),
            Key("layer_norm_eps", "norm.eps", 1e-5, "number"),
            Key("vocab_size", "vocabulary"),
        ),
        needs=NEEDS,
        fixed=DECODER,
        also=(_neox, partial(rotary, share=0.25)),
        parts={
            "embeddings.tokens": table("embed_in"),
            "layers.{i}.attention.q": grouped(_NEOX_QKV, "q"),
            "layers.{i}.attention.k": grouped(_NEOX_QKV, "k"),
            "layers.{i}.attention.v": grouped(_NEOX_QKV, "v"),
            "layers.{i}.attention.out": linear("layers.{i}.attention.dense"),
            "layers.{i}.ffn.up": linear("layers.{i}.mlp.dense_h_to_4h"),
            "layers.{i}.ffn.down": linear("layers.{i}.mlp.dense_4h_to_h"),
            **_norms(
                "layers.{i}", "input_layernorm", "post_attention_layernorm", "final_layer_norm"
            ),
        },
        tops={
            "GPTNeoXForCausalLM": Top(head={"kind": "lm"}, decoder="embed_out"),
            "GPTNeoXModel": Top(),
            **decoder_tops("GPTNeoX"),
        },
        tied=False,
        ignore=("*.attention.bias", "*.attention.masked_bias", "*.attention.rotary_emb.inv_freq"),
    )
)

GPTJ = register_architecture(
    Architecture(
        model_type="gptj",
        title="GPT-J",
        paper="Wang and Komatsuzaki 2021",
        prefix="transformer.",
        keys=(
            Key("n_layer", "layers"),
            Key("n_embd", "width"),
            Key("n_head", "heads"),
            Key("n_inner", "ffn", optional=True),
            Key("activation_function", "activation", "gelu_new", "activation"),
            Key("layer_norm_epsilon", "norm.eps", 1e-5, "number"),
            Key("rotary_dim", "positions.size", optional=True),
            Key("n_positions", "positions.max", 2048),
            Key("vocab_size", "vocabulary"),
        ),
        needs=NEEDS,
        fixed={
            **DECODER,
            "norm.placement": "parallel",
            "attention.bias": False,
            "positions.kind": "rotary",
            "positions.layout": "interleaved",
        },
        parts={
            "embeddings.tokens": table("wte"),
            "layers.{i}.attention.q": linear("h.{i}.attn.q_proj"),
            "layers.{i}.attention.k": linear("h.{i}.attn.k_proj"),
            "layers.{i}.attention.v": linear("h.{i}.attn.v_proj"),
            "layers.{i}.attention.out": linear("h.{i}.attn.out_proj"),
            "layers.{i}.ffn.up": linear("h.{i}.mlp.fc_in"),
            "layers.{i}.ffn.down": linear("h.{i}.mlp.fc_out"),
            "layers.{i}.attention_norm": norm("h.{i}.ln_1"),
            "final_norm": norm("ln_f"),
        },
        tops={
            "GPTJForCausalLM": Top(
                head={"kind": "lm", "bias": True},
                parts={"lm_head.bias": vector("lm_head.bias")},
                decoder="lm_head",
            ),
            "GPTJModel": Top(),
            **decoder_tops("GPTJ"),
        },
        tied=False,
        ignore=("*.attn.bias", "*.attn.masked_bias", "*.attn.embed_positions"),
    )
)


def _opt(config: Config, values: Values) -> Values:
    before = config.get("do_layer_norm_before", True)
    found: Values = {
        "norm.placement": "pre" if before else "post",
        "final_norm": bool(before and not config.get("_remove_final_layer_norm", False)),
    }
    size = int(config.number("word_embed_proj_dim", values["width"], "size"))
    if size != values["width"]:
        found |= {
            "embedding.size": size,
            "embedding.projection_first": True,
            "embedding.projection_bias": False,
            "embedding.project_back": True,
        }
    return found


_OPT_LAYER = "decoder.layers.{i}"
OPT = register_architecture(
    Architecture(
        model_type="opt",
        title="OPT",
        paper="Zhang et al. 2022",
        prefix="model.",
        keys=(
            Key("num_hidden_layers", "layers"),
            Key("hidden_size", "width"),
            Key("num_attention_heads", "heads"),
            Key("ffn_dim", "ffn"),
            Key("activation_function", "activation", "relu", "activation"),
            Key("enable_bias", "bias", True, "flag"),
            Key("layer_norm_elementwise_affine", "norm.scale", True, "flag"),
            Key("vocab_size", "vocabulary"),
        ),
        needs=NEEDS,
        fixed={
            **DECODER,
            "norm.eps": 1e-5,
            "positions.kind": "learned",
            "positions.masked": True,
        },
        also=(two_rows_before("positions"), _opt),
        parts={
            "embeddings.tokens": table("decoder.embed_tokens"),
            "embeddings.positions": table("decoder.embed_positions"),
            "embeddings.projection": linear("decoder.project_in", optional=True),
            "projection_back": linear("decoder.project_out", optional=True),
            "layers.{i}.attention.q": linear(f"{_OPT_LAYER}.self_attn.q_proj"),
            "layers.{i}.attention.k": linear(f"{_OPT_LAYER}.self_attn.k_proj"),
            "layers.{i}.attention.v": linear(f"{_OPT_LAYER}.self_attn.v_proj"),
            "layers.{i}.attention.out": linear(f"{_OPT_LAYER}.self_attn.out_proj"),
            "layers.{i}.ffn.up": linear(f"{_OPT_LAYER}.fc1"),
            "layers.{i}.ffn.down": linear(f"{_OPT_LAYER}.fc2"),
            "layers.{i}.attention_norm": norm(f"{_OPT_LAYER}.self_attn_layer_norm", optional=True),
            "layers.{i}.ffn_norm": norm(f"{_OPT_LAYER}.final_layer_norm", optional=True),
            "final_norm": norm("decoder.final_layer_norm", optional=True),
        },
        tops={
            "OPTForCausalLM": Top(head={"kind": "lm"}, decoder="lm_head"),
            "OPTModel": Top(),
            **decoder_tops("OPT"),
        },
    )
)

_BLOOM_QKV = "h.{i}.self_attention.query_key_value"
BLOOM = register_architecture(
    Architecture(
        model_type="bloom",
        title="BLOOM",
        paper="BigScience 2022",
        prefix="transformer.",
        keys=(
            Key("n_layer|num_hidden_layers", "layers"),
            Key("hidden_size|n_embed", "width"),
            Key("n_head|num_attention_heads", "heads"),
            Key("layer_norm_epsilon", "norm.eps", 1e-5, "number"),
            Key("vocab_size", "vocabulary"),
        ),
        needs={**NEEDS, "apply_residual_connection_post_layernorm": (False,)},
        fixed={
            **DECODER,
            "activation": "gelu_tanh",
            "positions.kind": "alibi",
            "embedding.norm": True,
        },
        parts={
            "embeddings.tokens": table("word_embeddings"),
            "embeddings.norm": norm("word_embeddings_layernorm"),
            "layers.{i}.attention.q": grouped(_BLOOM_QKV, "q"),
            "layers.{i}.attention.k": grouped(_BLOOM_QKV, "k"),
            "layers.{i}.attention.v": grouped(_BLOOM_QKV, "v"),
            "layers.{i}.attention.out": linear("h.{i}.self_attention.dense"),
            "layers.{i}.ffn.up": linear("h.{i}.mlp.dense_h_to_4h"),
            "layers.{i}.ffn.down": linear("h.{i}.mlp.dense_4h_to_h"),
            **_norms("h.{i}", "input_layernorm", "post_attention_layernorm", "ln_f"),
        },
        tops={
            "BloomForCausalLM": Top(head={"kind": "lm"}, decoder="lm_head"),
            "BloomModel": Top(),
            **decoder_tops("Bloom"),
        },
    )
)
