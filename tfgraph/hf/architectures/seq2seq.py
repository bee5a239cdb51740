"""Encoders with decoders: T5, BART, Marian, Whisper.

May import: architecture, config, derive, tops.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tfgraph.hf.architecture import (
    Architecture,
    Part,
    Top,
    linear,
    norm,
    register_architecture,
    table,
    vector,
)
from tfgraph.hf.config import Config, Key
from tfgraph.hf.derive import Values, embedding_scale, two_rows_before
from tfgraph.hf.tops import TOKENS, source_tops

_TABLES = {f"{s}.embeddings.tokens": f"{s}.embed_tokens.weight" for s in ("encoder", "decoder")}
_FIXED: dict[str, Any] = {"kind": "encoder-decoder", "mask": "padding"}
_NEEDS: dict[str, tuple[Any, ...]] = {
    "quantization_config": (None,),
    "is_encoder_decoder": (True,),
}


def _t5(config: Config, values: Values) -> Values:
    """The activation, gated or not, and heads whose logits are scaled where they are tied."""
    named = str(config.get("feed_forward_proj", "relu"))
    gated, _, act = named.rpartition("-")
    if gated not in ("", "gated"):
        raise config.error("feed_forward_proj", f"expected such as relu or gated-gelu, got {named}")
    act = "gelu_new" if named == "gated-gelu" else act
    found: Values = {
        "activation": config.checked("feed_forward_proj", act, "activation"),
        "gated": bool(gated),
    }
    tied = config.get("tie_word_embeddings", True)
    if config.get("scale_decoder_outputs", tied):
        found["head.scale"] = f"rsqrt({values['width']})"
    return found


def _t5_stack(stack: str, ffn: int) -> dict[str, Part]:
    block, ours = f"{stack}.block.{{i}}.layer", f"{stack}.layers.{{i}}"
    dense = f"{block}.{ffn}.DenseReluDense"
    parts = {
        f"{stack}.positions.table": table(
            f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias"
        ),
        f"{ours}.ffn.gate": linear(f"{dense}.wi_0", optional=True),
        f"{ours}.ffn.up": linear(f"{dense}.wi_1", f"{dense}.wi"),
        f"{ours}.ffn.down": linear(f"{dense}.wo"),
        f"{ours}.ffn_norm": norm(f"{block}.{ffn}.layer_norm"),
        f"{stack}.final_norm": norm(f"{stack}.final_layer_norm"),
    }
    attentions = [("attention", "SelfAttention"), ("cross_attention", "EncDecAttention")]
    for i, (name, theirs) in enumerate(attentions[:ffn]):
        for letter, stored in (("q", "q"), ("k", "k"), ("v", "v"), ("out", "o")):
            parts[f"{ours}.{name}.{letter}"] = linear(f"{block}.{i}.{theirs}.{stored}")
        parts[f"{ours}.{name}_norm"] = norm(f"{block}.{i}.layer_norm")
    return parts


def _t5_tops(name: str) -> dict[str, Top]:
    """The encoder alone, and classifiers; some files have `transformer.` before the stacks."""
    inside = ("transformer.",)
    tops = {name: replace(top, prefixes=inside) for name, top in source_tops(name).items()}
    return {
        f"{name}EncoderModel": Top(encoder_alone=True),
        f"{name}ForTokenClassification": replace(TOKENS, encoder_alone=True, prefixes=inside),
        **tops,
    }


T5 = register_architecture(
    Architecture(
        model_type="t5",
        title="T5",
        paper="Raffel et al. 2020",
        prefix="",
        keys=(
            Key("num_decoder_layers|num_layers", "layers"),
            Key("num_layers", "encoder.layers"),
            Key("d_model", "width"),
            Key("num_heads", "heads"),
            Key("d_kv", "head_size"),
            Key("d_ff", "ffn"),
            Key("layer_norm_epsilon", "norm.eps", 1e-6, "number"),
            Key("relative_attention_num_buckets", "positions.buckets", 32),
            Key("relative_attention_max_distance", "positions.max_distance", 128),
            Key("vocab_size", "vocabulary"),
        ),
        needs=_NEEDS,
        fixed={
            **_FIXED,
            "bias": False,
            "norm.kind": "rms_norm",
            "norm.placement": "pre",
            "attention.scale": 1,
            "positions.kind": "relative",
        },
        also=(_t5,),
        parts={
            "embeddings.tokens": table("shared", "decoder.embed_tokens", "encoder.embed_tokens"),
            **_t5_stack("encoder", 1),
            **_t5_stack("decoder", 2),
        },
        tops={
            "T5ForConditionalGeneration": Top(head={"kind": "lm"}, decoder="lm_head"),
            "T5Model": Top(),
            **_t5_tops("T5"),
        },
        tables=_TABLES,
        ignore=(
            "*coder.embed_tokens.weight",
            "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
        ),
    )
)


def _mt5(config: Config, values: Values) -> Values:
    """Logits as they are, tied or not."""
    return _t5(config, values) | {"head.scale": None}


MT5 = register_architecture(
    replace(
        T5,
        model_type="mt5",
        title="mT5",
        paper="Xue et al. 2020",
        also=(_mt5,),
        tops={
            "MT5ForConditionalGeneration": T5.tops["T5ForConditionalGeneration"],
            "MT5Model": Top(),
            **_t5_tops("MT5"),
        },
    )
)


def _bart_stack(stack: str) -> dict[str, Part]:
    base, ours = f"{stack}.layers.{{i}}", f"{stack}.layers.{{i}}"
    parts = {
        f"{stack}.embeddings.norm": norm(f"{stack}.layernorm_embedding", optional=True),
        f"{ours}.ffn.up": linear(f"{base}.fc1"),
        f"{ours}.ffn.down": linear(f"{base}.fc2"),
        f"{ours}.ffn_norm": norm(f"{base}.final_layer_norm"),
        f"{stack}.final_norm": norm(f"{stack}.layer_norm", optional=True),
    }
    attentions = [("attention", "self_attn"), ("cross_attention", "encoder_attn")]
    for name, theirs in attentions[: 2 if stack == "decoder" else 1]:
        for letter in ("q", "k", "v", "out"):
            parts[f"{ours}.{name}.{letter}"] = linear(f"{base}.{theirs}.{letter}_proj")
        parts[f"{ours}.{name}_norm"] = norm(f"{base}.{theirs}_layer_norm")
    return parts


def _positions(stack: str) -> dict[str, Part]:
    return {f"{stack}.embeddings.positions": table(f"{stack}.embed_positions")}


_BART_KEYS = (
    Key("decoder_layers", "layers"),
    Key("encoder_layers", "encoder.layers"),
    Key("d_model", "width"),
    Key("decoder_attention_heads", "heads"),
    Key("encoder_attention_heads", "encoder.heads"),
    Key("decoder_ffn_dim", "ffn"),
    Key("encoder_ffn_dim", "encoder.ffn"),
    Key("activation_function", "activation", "gelu", "activation"),
    Key("vocab_size", "vocabulary"),
)
_BART_FIXED = {**_FIXED, "norm.kind": "layer_norm", "norm.placement": "post", "norm.eps": 1e-5}
_LOGITS_BIAS = {"lm_head.bias": vector("final_logits_bias", steps=("flat({})",))}
_COPIES = ("*coder.embed_tokens.weight",)
BART = register_architecture(
    Architecture(
        model_type="bart",
        title="BART",
        paper="Lewis et al. 2019",
        prefix="model.",
        keys=_BART_KEYS,
        needs=_NEEDS,
        fixed={**_BART_FIXED, "positions.kind": "learned", "embedding.norm": True},
        also=(two_rows_before("positions"), embedding_scale),
        parts={
            "embeddings.tokens": table("shared", "decoder.embed_tokens", "encoder.embed_tokens"),
            **_positions("encoder"),
            **_bart_stack("encoder"),
            **_positions("decoder"),
            **_bart_stack("decoder"),
        },
        tops={
            "BartForConditionalGeneration": Top(
                head={"kind": "lm", "bias": True}, parts=_LOGITS_BIAS, decoder="lm_head"
            ),
            "BartModel": Top(),
            **source_tops("Bart"),
        },
        tables=_TABLES,
        ignore=_COPIES,
    )
)


def _marian(config: Config, values: Values) -> Values:
    """Both vocabularies are of one size."""
    if config.get("decoder_vocab_size", values["vocabulary"]) != values["vocabulary"]:
        raise config.error("decoder_vocab_size", "expected that of the encoder, vocab_size")
    return {}


MARIAN = register_architecture(
    Architecture(
        model_type="marian",
        title="Marian",
        paper="Junczys-Dowmunt et al. 2018",
        prefix="model.",
        keys=(*_BART_KEYS, Key("max_position_embeddings", "positions.max", 1024)),
        needs=_NEEDS,
        # Positions are computed: files need not have them.
        fixed={**_BART_FIXED, "positions.kind": "sinusoidal", "positions.layout": "halves"},
        also=(embedding_scale, _marian),
        parts={
            "embeddings.tokens": table("shared", "decoder.embed_tokens", "encoder.embed_tokens"),
            **_bart_stack("encoder"),
            **_bart_stack("decoder"),
        },
        tops={
            "MarianMTModel": Top(
                head={"kind": "lm", "bias": True}, parts=_LOGITS_BIAS, decoder="lm_head"
            ),
            "MarianModel": Top(),
        },
        tables=_TABLES,
        ignore=(*_COPIES, "*.embed_positions.weight"),
    )
)

_CONVOLUTION = ("matrix({}, 1)",)
WHISPER = register_architecture(
    Architecture(
        model_type="whisper",
        title="Whisper",
        paper="Radford et al. 2022",
        prefix="model.",
        keys=(
            *_BART_KEYS,
            Key("max_target_positions", "positions.max", 448),
            Key("max_source_positions", "encoder.positions.max", 1500),
            Key("num_mel_bins", "stem.channels", 80),
        ),
        needs=_NEEDS,
        fixed={
            **_BART_FIXED,
            "mask": "none",
            "norm.placement": "pre",
            "attention.key_bias": False,
            "positions.kind": "learned",
            "encoder.positions.kind": "learned",
            "stem.kind": "audio",
        },  # `scale_embedding` is read by nothing
        parts={
            "embeddings.tokens": table("decoder.embed_tokens"),
            "encoder.stem.conv1": linear("encoder.conv1", weight_steps=_CONVOLUTION),
            "encoder.stem.conv2": linear("encoder.conv2", weight_steps=_CONVOLUTION),
            **_positions("encoder"),
            **_bart_stack("encoder"),
            **_positions("decoder"),
            **_bart_stack("decoder"),
        },
        tops={
            "WhisperForConditionalGeneration": Top(head={"kind": "lm"}, decoder="proj_out"),
            "WhisperModel": Top(),
        },
    )
)
