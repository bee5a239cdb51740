"""BERT and its family: encoders with learned positions, norms behind each sum.

May import: architecture, config, derive, tops.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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
from tfgraph.hf.derive import Values
from tfgraph.hf.tops import encoder_tops

_SIZES = (
    Key("num_hidden_layers", "layers"),
    Key("hidden_size", "width"),
    Key("num_attention_heads", "heads"),
    Key("intermediate_size", "ffn"),
    Key("vocab_size", "vocabulary"),
    Key("max_position_embeddings", "positions.max", 512),
    Key("type_vocab_size", "embedding.token_types", 2),
    Key("layer_norm_eps", "norm.eps", 1e-12, "number"),
)
_ENCODER = {
    "kind": "encoder",
    "norm.kind": "layer_norm",
    "norm.placement": "post",
    "positions.kind": "learned",
    "embedding.norm": True,
    "mask": "padding",
}
_NEEDS: dict[str, tuple[Any, ...]] = {
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
}
_EMBEDDINGS = {
    "embeddings.tokens": table("embeddings.word_embeddings"),
    "embeddings.positions": table("embeddings.position_embeddings"),
    "embeddings.token_types": table("embeddings.token_type_embeddings"),
    "embeddings.norm": norm("embeddings.LayerNorm"),
}
_BERT_PARTS = {
    **_EMBEDDINGS,
    "layers.{i}.attention.q": linear("encoder.layer.{i}.attention.self.query"),
    "layers.{i}.attention.k": linear("encoder.layer.{i}.attention.self.key"),
    "layers.{i}.attention.v": linear("encoder.layer.{i}.attention.self.value"),
    "layers.{i}.attention.out": linear("encoder.layer.{i}.attention.output.dense"),
    "layers.{i}.attention_norm": norm("encoder.layer.{i}.attention.output.LayerNorm"),
    "layers.{i}.ffn.up": linear("encoder.layer.{i}.intermediate.dense"),
    "layers.{i}.ffn.down": linear("encoder.layer.{i}.output.dense"),
    "layers.{i}.ffn_norm": norm("encoder.layer.{i}.output.LayerNorm"),
}

_NEXT_SENTENCE = {"classifier.out": linear("cls.seq_relationship")}
_BERT_MLM = Top(
    head={"kind": "mlm"},
    parts={
        "lm_head.transform.dense": linear("cls.predictions.transform.dense"),
        "lm_head.transform.norm": norm("cls.predictions.transform.LayerNorm"),
        "lm_head.bias": vector("cls.predictions.decoder.bias", "cls.predictions.bias"),
    },
    decoder="cls.predictions.decoder",
    ignore=("cls.seq_relationship.*", "cls.predictions.bias"),
)
_ROBERTA_MLM = Top(
    head={"kind": "mlm", "activation": "gelu"},  # whatever hidden_act is
    parts={
        "lm_head.transform.dense": linear("lm_head.dense"),
        "lm_head.transform.norm": norm("lm_head.layer_norm"),
        "lm_head.bias": vector("lm_head.decoder.bias", "lm_head.bias"),
    },
    decoder="lm_head.decoder",
    ignore=("lm_head.bias",),
)
_POOLED = Top(
    head={"kind": "classifier"}, parts={"classifier.out": linear("classifier")}, pooler=True
)
_ROBERTA_CLASSIFIER = Top(
    head={"kind": "classifier", "activation": "tanh"},
    parts={
        "classifier.dense": linear("classifier.dense"),
        "classifier.out": linear("classifier.out_proj"),
    },
)
BERT = register_architecture(
    Architecture(
        model_type="bert",
        title="BERT",
        paper="Devlin et al. 2018",
        prefix="bert.",
        keys=(*_SIZES, Key("hidden_act", "activation", "gelu", "activation")),
        needs=_NEEDS,
        fixed=_ENCODER,
        parts=_BERT_PARTS,
        pooler=linear("pooler.dense"),
        tops={
            "BertModel": Top(pooler=True),
            "BertForMaskedLM": _BERT_MLM,
            "BertForPreTraining": replace(
                _BERT_MLM,
                head={"kind": "mlm", "labels": 2},
                parts={**_BERT_MLM.parts, **_NEXT_SENTENCE},
                pooler=True,
            ),
            "BertForNextSentencePrediction": Top(
                head={"kind": "classifier", "labels": 2},
                parts=_NEXT_SENTENCE,
                pooler=True,
                ignore=("cls.predictions.*",),
            ),
            "BertForSequenceClassification": _POOLED,
            **encoder_tops("Bert"),
        },
    )
)

ROBERTA = register_architecture(
    Architecture(
        model_type="roberta",
        title="RoBERTa",
        paper="Liu et al. 2019",
        prefix="roberta.",
        keys=(
            *_SIZES,
            Key("hidden_act", "activation", "gelu", "activation"),
            Key("pad_token_id", "positions.padding_id", 1, "id"),
        ),
        needs=_NEEDS,
        fixed=_ENCODER,
        parts=_BERT_PARTS,
        pooler=linear("pooler.dense"),
        tops={
            "RobertaModel": Top(pooler=True),
            "RobertaForMaskedLM": _ROBERTA_MLM,
            "RobertaForSequenceClassification": _ROBERTA_CLASSIFIER,
            **encoder_tops("Roberta"),
        },
    )
)

DISTILBERT = register_architecture(
    Architecture(
        model_type="distilbert",
        title="DistilBERT",
        paper="Sanh et al. 2019",
        prefix="distilbert.",
        keys=(
            Key("n_layers", "layers"),
            Key("dim", "width"),
            Key("n_heads", "heads"),
            Key("hidden_dim", "ffn"),
            Key("vocab_size", "vocabulary"),
            Key("max_position_embeddings", "positions.max", 512),
            Key("activation", "activation", "gelu", "activation"),
        ),
        needs={"pruned_heads": ({}, None), "quantization_config": (None,)},
        fixed={**_ENCODER, "norm.eps": 1e-12},
        parts={
            "embeddings.tokens": table("embeddings.word_embeddings"),
            "embeddings.positions": table("embeddings.position_embeddings"),
            "embeddings.norm": norm("embeddings.LayerNorm"),
            "layers.{i}.attention.q": linear("transformer.layer.{i}.attention.q_lin"),
            "layers.{i}.attention.k": linear("transformer.layer.{i}.attention.k_lin"),
            "layers.{i}.attention.v": linear("transformer.layer.{i}.attention.v_lin"),
            "layers.{i}.attention.out": linear("transformer.layer.{i}.attention.out_lin"),
            "layers.{i}.attention_norm": norm("transformer.layer.{i}.sa_layer_norm"),
            "layers.{i}.ffn.up": linear("transformer.layer.{i}.ffn.lin1"),
            "layers.{i}.ffn.down": linear("transformer.layer.{i}.ffn.lin2"),
            "layers.{i}.ffn_norm": norm("transformer.layer.{i}.output_layer_norm"),
        },
        tops={
            "DistilBertModel": Top(),
            "DistilBertForMaskedLM": Top(
                head={"kind": "mlm"},
                parts={
                    "lm_head.transform.dense": linear("vocab_transform"),
                    "lm_head.transform.norm": norm("vocab_layer_norm"),
                    "lm_head.bias": vector("vocab_projector.bias"),
                },
                decoder="vocab_projector",
            ),
            "DistilBertForSequenceClassification": Top(
                head={"kind": "classifier", "activation": "relu"},
                parts={
                    "classifier.dense": linear("pre_classifier"),
                    "classifier.out": linear("classifier"),
                },
            ),
            **encoder_tops("DistilBert"),
        },
    )
)

_GROUP = "encoder.albert_layer_groups.0.albert_layers.0"
ALBERT = register_architecture(
    Architecture(
        model_type="albert",
        title="ALBERT",
        paper="Lan et al. 2019",
        prefix="albert.",
        keys=(
            *_SIZES,
            Key("embedding_size", "embedding.size", 128),
            Key("hidden_act", "activation", "gelu_new", "activation"),
        ),
        needs={**_NEEDS, "num_hidden_groups": (1,), "inner_group_num": (1,)},
        fixed={**_ENCODER, "share_layers": True},
        parts={
            **_EMBEDDINGS,
            "embeddings.projection": linear("encoder.embedding_hidden_mapping_in"),
            "layers.shared.attention.q": linear(f"{_GROUP}.attention.query"),
            "layers.shared.attention.k": linear(f"{_GROUP}.attention.key"),
            "layers.shared.attention.v": linear(f"{_GROUP}.attention.value"),
            "layers.shared.attention.out": linear(f"{_GROUP}.attention.dense"),
            "layers.shared.attention_norm": norm(f"{_GROUP}.attention.LayerNorm"),
            "layers.shared.ffn.up": linear(f"{_GROUP}.ffn"),
            "layers.shared.ffn.down": linear(f"{_GROUP}.ffn_output"),
            "layers.shared.ffn_norm": norm(f"{_GROUP}.full_layer_layer_norm"),
        },
        pooler=linear("pooler"),
        tops={
            "AlbertModel": Top(pooler=True),
            "AlbertForMaskedLM": Top(
                head={"kind": "mlm"},
                parts={
                    "lm_head.transform.dense": linear("predictions.dense"),
                    "lm_head.transform.norm": norm("predictions.LayerNorm"),
                    "lm_head.bias": vector("predictions.decoder.bias", "predictions.bias"),
                },
                decoder="predictions.decoder",
                ignore=("sop_classifier.*", "predictions.bias"),
            ),
            "AlbertForSequenceClassification": _POOLED,
            **encoder_tops("Albert"),
        },
    )
)


def _electra(config: Config, values: Values) -> Values:
    """Embeddings as wide as the stack have no projection, as ALBERT's have."""
    return {"embedding.size": None} if values["embedding.size"] == values["width"] else {}


ELECTRA = register_architecture(
    Architecture(
        model_type="electra",
        title="ELECTRA",
        paper="Clark et al. 2020",
        prefix="electra.",
        keys=(
            *_SIZES,
            Key("embedding_size", "embedding.size", 128),
            Key("hidden_act", "activation", "gelu", "activation"),
        ),
        needs=_NEEDS,
        fixed=_ENCODER,
        also=(_electra,),
        parts={
            **_BERT_PARTS,
            "embeddings.projection": linear("embeddings_project", optional=True),
        },
        tops={
            "ElectraModel": Top(),
            "ElectraForPreTraining": Top(
                head={"kind": "detector"},
                parts={
                    "classifier.dense": linear("discriminator_predictions.dense"),
                    "classifier.out": linear("discriminator_predictions.dense_prediction"),
                },
            ),
            "ElectraForMaskedLM": Top(
                head={"kind": "mlm", "activation": "gelu"},  # whatever hidden_act is
                parts={
                    "lm_head.transform.dense": linear("generator_predictions.dense"),
                    "lm_head.transform.norm": norm("generator_predictions.LayerNorm"),
                    "lm_head.bias": vector("generator_lm_head.bias"),
                },
                decoder="generator_lm_head",
            ),
            "ElectraForSequenceClassification": Top(
                head={"kind": "classifier", "activation": "gelu"},
                parts={
                    "classifier.dense": linear("classifier.dense"),
                    "classifier.out": linear("classifier.out_proj"),
                },
            ),
            **encoder_tops("Electra"),
        },
    )
)

MPNET = register_architecture(
    Architecture(
        model_type="mpnet",
        title="MPNet",
        paper="Song et al. 2020",
        prefix="mpnet.",
        keys=(
            *(key for key in _SIZES if key.theirs != "type_vocab_size"),
            Key("hidden_act", "activation", "gelu", "activation"),
            Key("pad_token_id", "positions.padding_id", 1, "id"),
            Key("relative_attention_num_buckets", "positions.buckets", 32),
        ),
        needs=_NEEDS,
        fixed={**_ENCODER, "positions.max_distance": 128},
        parts={
            "embeddings.tokens": table("embeddings.word_embeddings"),
            "embeddings.positions": table("embeddings.position_embeddings"),
            "embeddings.norm": norm("embeddings.LayerNorm"),
            "positions.table": table("encoder.relative_attention_bias"),
            "layers.{i}.attention.q": linear("encoder.layer.{i}.attention.attn.q"),
            "layers.{i}.attention.k": linear("encoder.layer.{i}.attention.attn.k"),
            "layers.{i}.attention.v": linear("encoder.layer.{i}.attention.attn.v"),
            "layers.{i}.attention.out": linear("encoder.layer.{i}.attention.attn.o"),
            "layers.{i}.attention_norm": norm("encoder.layer.{i}.attention.LayerNorm"),
            "layers.{i}.ffn.up": linear("encoder.layer.{i}.intermediate.dense"),
            "layers.{i}.ffn.down": linear("encoder.layer.{i}.output.dense"),
            "layers.{i}.ffn_norm": norm("encoder.layer.{i}.output.LayerNorm"),
        },
        pooler=linear("pooler.dense"),
        tops={
            "MPNetModel": Top(pooler=True),
            "MPNetForMaskedLM": _ROBERTA_MLM,
            "MPNetForSequenceClassification": _ROBERTA_CLASSIFIER,
            **encoder_tops("MPNet"),
        },
    )
)
