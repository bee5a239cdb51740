"""Encoders that are not as BERT is: DeBERTa v2, ModernBERT.

May import: architecture, config, derive, tops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from tfgraph.hf.architecture import (
    Architecture,
    Top,
    linear,
    norm,
    register_architecture,
    table,
    vector,
)
from tfgraph.hf.config import Config, Key
from tfgraph.hf.derive import Values, alternating, local_layers, rotary_keys
from tfgraph.hf.tops import encoder_tops

if TYPE_CHECKING:
    from tfgraph.hf.architecture import Also

_NEEDS: dict[str, tuple[Any, ...]] = {"quantization_config": (None,)}


def _deberta(config: Config, values: Values) -> Values:
    """Distances that queries and keys have to do with, positions that are added, or both; and the
    convolution beside the first layer."""
    most = int(config.number("max_position_embeddings", None, "size"))
    added = bool(config.get("position_biased_input", True))
    size = config.number("embedding_size", values["width"], "size")
    near: Values = {}
    if added and size != values["width"]:
        raise config.error("position_biased_input", "positions are of another size than the width")
    if config.get("conv_kernel_size", 0):
        act = config.checked("conv_act", config.get("conv_act", "tanh"), "activation")
        near = {"convolution": act}
    rows: Values = {"positions.max": most} if added else {}
    if not config.get("relative_attention", False):
        return near | rows | ({"positions.kind": "learned"} if added else {})
    furthest, buckets = (
        int(config.number(key, -1)) for key in ("max_relative_positions", "position_buckets")
    )
    terms: Any = config.get("pos_att_type", [])
    terms = terms.lower().split("|") if isinstance(terms, str) else terms
    known = isinstance(terms, list) and all(t in ("c2p", "p2c") for t in cast("list[Any]", terms))
    if not known or not terms:
        raise config.error("pos_att_type", "expected c2p, p2c, or both")
    found: Values = {
        "positions.kind": "disentangled",
        "positions.max_distance": furthest if furthest > 0 else most,
        "positions.terms": [term for term in ("c2p", "p2c") if term in terms],
        "positions.shared": bool(config.get("share_att_key", False)),
        "positions.norm": "layer_norm" in str(config.get("norm_rel_ebd", "none")).split("|"),
    }
    if buckets > 0:
        found["positions.buckets"] = buckets
    return (
        near
        | rows
        | found
        | (
            {
                "embedding.size": size,
                "embedding.projection_first": True,
                "embedding.projection_bias": False,
            }
            if size != values["width"]
            else {}
        )
    )


def _deberta_pooler(config: Config, values: Values) -> Values:
    act = config.checked("pooler_hidden_act", config.get("pooler_hidden_act", "gelu"), "activation")
    return {"pooler.kind": "first", "pooler.activation": act}


_DEBERTA_LAYER = "encoder.layer.{i}"
_DEBERTA_SELF = f"{_DEBERTA_LAYER}.attention.self"
DEBERTA_V2 = register_architecture(
    Architecture(
        model_type="deberta-v2",
        title="DeBERTa v2",
        paper="He et al. 2020",
        prefix="deberta.",
        keys=(
            Key("num_hidden_layers", "layers"),
            Key("hidden_size", "width"),
            Key("num_attention_heads", "heads"),
            Key("intermediate_size", "ffn"),
            Key("hidden_act", "activation", "gelu", "activation"),
            Key("layer_norm_eps", "norm.eps", 1e-7, "number"),
            Key("type_vocab_size", "embedding.token_types", 0, "id"),
            Key("vocab_size", "vocabulary"),
        ),
        needs={
            **_NEEDS,
            "conv_kernel_size": (0, None, 3),
            "conv_groups": (1,),
        },
        fixed={
            "kind": "encoder",
            "norm.kind": "layer_norm",
            "norm.placement": "post",
            "embedding.norm": True,
            "mask": "padding",
        },
        also=(_deberta,),
        parts={
            "embeddings.tokens": table("embeddings.word_embeddings"),
            "embeddings.token_types": table("embeddings.token_type_embeddings", optional=True),
            "embeddings.norm": norm("embeddings.LayerNorm"),
            "embeddings.projection": linear("embeddings.embed_proj", optional=True),
            "positions.table": table("encoder.rel_embeddings", optional=True),
            "embeddings.positions": table("embeddings.position_embeddings", optional=True),
            "convolution": linear(
                "encoder.conv.conv", optional=True, weight_steps=("matrix({}, 1)",)
            ),
            "convolution.norm": norm("encoder.conv.LayerNorm", optional=True),
            "positions.norm": norm("encoder.LayerNorm", optional=True),
            "layers.{i}.attention.q": linear(f"{_DEBERTA_SELF}.query_proj"),
            "layers.{i}.attention.k": linear(f"{_DEBERTA_SELF}.key_proj"),
            "layers.{i}.attention.v": linear(f"{_DEBERTA_SELF}.value_proj"),
            "layers.{i}.attention.distance_k": linear(
                f"{_DEBERTA_SELF}.pos_key_proj", optional=True
            ),
            "layers.{i}.attention.distance_q": linear(
                f"{_DEBERTA_SELF}.pos_query_proj", optional=True
            ),
            "layers.{i}.attention.out": linear(f"{_DEBERTA_LAYER}.attention.output.dense"),
            "layers.{i}.attention_norm": norm(f"{_DEBERTA_LAYER}.attention.output.LayerNorm"),
            "layers.{i}.ffn.up": linear(f"{_DEBERTA_LAYER}.intermediate.dense"),
            "layers.{i}.ffn.down": linear(f"{_DEBERTA_LAYER}.output.dense"),
            "layers.{i}.ffn_norm": norm(f"{_DEBERTA_LAYER}.output.LayerNorm"),
        },
        pooler=linear("pooler.dense"),
        tops={
            "DebertaV2Model": Top(),
            "DebertaV2ForMaskedLM": Top(
                head={"kind": "mlm"},
                parts={
                    "lm_head.transform.dense": linear(
                        "cls.predictions.transform.dense", "lm_predictions.lm_head.dense"
                    ),
                    "lm_head.transform.norm": norm(
                        "cls.predictions.transform.LayerNorm", "lm_predictions.lm_head.LayerNorm"
                    ),
                    "lm_head.bias": vector(
                        "cls.predictions.decoder.bias",
                        "cls.predictions.bias",
                        "lm_predictions.lm_head.bias",
                    ),
                },
                decoder="cls.predictions.decoder",
                ignore=("cls.predictions.bias", "mask_predictions.*"),
            ),
            "DebertaV2ForSequenceClassification": Top(
                head={"kind": "classifier"},
                parts={
                    "pooler.dense": linear("pooler.dense"),
                    "classifier.out": linear("classifier"),
                },
                also=(_deberta_pooler,),
            ),
            **encoder_tops("DebertaV2"),
        },
        ignore=("lm_predictions.*", "mask_predictions.*"),
    )
)


def _modernbert(config: Config, values: Values) -> Values:
    """A window and a base of rotary positions of their own in two layers of three."""
    most = config.number("max_position_embeddings", None, "size")
    near = int(config.number("local_attention", 128, "size")) // 2
    every = int(config.number("global_attn_every_n_layers", 3, "size"))
    full = rotary_keys(config, values, "positions", "full_attention", "global_rope_theta", 160000)
    local = rotary_keys(
        config, values, "local.positions", "sliding_attention", "local_rope_theta", 10000
    )
    types = alternating(config, values, every, first=True)
    found: Values = {"positions.kind": "rotary", **full, "positions.max": most}
    layers = local_layers(config, types, left=near, right=near)
    if not layers:
        return found
    return found | layers | {"local.positions.kind": "rotary", **local, "local.positions.max": most}


def _modernbert_head(config: Config, values: Values) -> Values:
    named = config.get("classifier_activation", "gelu")
    return {
        "head.activation": config.checked("classifier_activation", named, "activation"),
        "head.transform_bias": bool(config.get("classifier_bias", False)),
    }


def _modernbert_bias(config: Config, values: Values) -> Values:
    return {"head.bias": bool(config.get("decoder_bias", True))}


def _modernbert_pooler(config: Config, values: Values) -> Values:
    """The first token, or the mean of all."""
    kind = config.get("classifier_pooling", "cls")
    if kind not in ("cls", "mean"):
        raise config.error("classifier_pooling", "expected cls or mean")
    return {"pooler.kind": "mean"} if kind == "mean" else {}


def _modernbert_classifier(kind: str, *also: Also) -> Top:
    """Classes behind the transform that stands before the masked language model's head."""
    return Top(
        head={"kind": kind, "transform": True},
        parts={
            "classifier.transform.dense": linear("head.dense"),
            "classifier.transform.norm": norm("head.norm"),
            "classifier.out": linear("classifier"),
        },
        also=(_modernbert_head, *also),
    )


MODERNBERT = register_architecture(
    Architecture(
        model_type="modernbert",
        title="ModernBERT",
        paper="Warner et al. 2024",
        prefix="model.",
        keys=(
            Key("num_hidden_layers", "layers"),
            Key("hidden_size", "width"),
            Key("num_attention_heads", "heads"),
            Key("intermediate_size", "ffn"),
            Key("hidden_activation", "activation", "gelu", "activation"),
            Key("attention_bias", "attention.bias", False, "flag"),
            Key("mlp_bias", "ffn_bias", False, "flag"),
            Key("norm_eps", "norm.eps", 1e-5, "number"),
            Key("norm_bias", "norm.bias", False, "flag"),
            Key("vocab_size", "vocabulary"),
        ),
        needs=_NEEDS,
        fixed={
            "kind": "encoder",
            "gated": True,
            "norm.kind": "layer_norm",
            "norm.placement": "pre",
            "norm.first": False,
            "embedding.norm": True,
            "mask": "padding",
        },
        also=(_modernbert,),
        parts={
            "embeddings.tokens": table("embeddings.tok_embeddings"),
            "embeddings.norm": norm("embeddings.norm"),
            "layers.{i}.attention.q": linear("layers.{i}.attn.Wqkv", parts=(0, 3)),
            "layers.{i}.attention.k": linear("layers.{i}.attn.Wqkv", parts=(1, 3)),
            "layers.{i}.attention.v": linear("layers.{i}.attn.Wqkv", parts=(2, 3)),
            "layers.{i}.attention.out": linear("layers.{i}.attn.Wo"),
            "layers.{i}.attention_norm": norm("layers.{i}.attn_norm", optional=True),
            "layers.{i}.ffn.gate": linear("layers.{i}.mlp.Wi", parts=(0, 2)),
            "layers.{i}.ffn.up": linear("layers.{i}.mlp.Wi", parts=(1, 2)),
            "layers.{i}.ffn.down": linear("layers.{i}.mlp.Wo"),
            "layers.{i}.ffn_norm": norm("layers.{i}.mlp_norm"),
            "final_norm": norm("final_norm"),
        },
        tops={
            "ModernBertModel": Top(),
            "ModernBertForMaskedLM": Top(
                head={"kind": "mlm"},
                parts={
                    "lm_head.transform.dense": linear("head.dense"),
                    "lm_head.transform.norm": norm("head.norm"),
                    "lm_head.bias": vector("decoder.bias", optional=True),
                },
                decoder="decoder",
                also=(_modernbert_head, _modernbert_bias),
            ),
            "ModernBertForSequenceClassification": _modernbert_classifier(
                "classifier", _modernbert_pooler
            ),
            "ModernBertForTokenClassification": _modernbert_classifier("token_classifier"),
            "ModernBertForQuestionAnswering": _modernbert_classifier("span"),
        },
    )
)
