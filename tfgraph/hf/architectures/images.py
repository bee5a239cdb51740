"""Encoders of images, and of the texts beside them: ViT, CLIP.

May import: architecture, config, derive.
"""

from __future__ import annotations

from typing import Any, cast

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

_NEEDS: dict[str, tuple[Any, ...]] = {"quantization_config": (None,)}


def _vit(config: Config, values: Values) -> Values:
    """A square of whole patches, and a row of positions for each and for the class token."""
    sides: dict[str, tuple[int, int]] = {}
    for key, usual in (("image_size", 224), ("patch_size", 16)):
        given: Any = config.get(key, usual)
        pair = cast("list[Any]", given) if isinstance(given, list) else [given, given]
        if len(pair) != 2 or not all(type(n) is int and n > 0 for n in pair):
            raise config.error(key, "expected a number of pixels, or two")
        sides[key] = (pair[0], pair[1])
    (height, width), (patch, other) = sides["image_size"], sides["patch_size"]
    if patch != other or height % patch or width % patch:
        raise config.error("patch_size", "expected squares of which an image has whole ones")
    return {
        "stem.kind": "image",
        "stem.channels": config.number("num_channels", 3, "size"),
        "stem.height": height,
        "stem.width": width,
        "stem.patch": patch,
        "positions.kind": "learned",
        "positions.max": (height // patch) * (width // patch) + 1,
    }


_VIT_LAYER = "encoder.layer.{i}"
VIT = register_architecture(
    Architecture(
        model_type="vit",
        title="ViT",
        paper="Dosovitskiy et al. 2020",
        prefix="vit.",
        keys=(
            Key("num_hidden_layers", "layers"),
            Key("hidden_size", "width"),
            Key("num_attention_heads", "heads"),
            Key("intermediate_size", "ffn"),
            Key("hidden_act", "activation", "gelu", "activation"),
            Key("layer_norm_eps", "norm.eps", 1e-12, "number"),
            Key("qkv_bias", "attention.bias", True, "flag"),
        ),
        needs={**_NEEDS, "pooler_act": ("tanh",)},
        fixed={
            "kind": "encoder",
            "norm.kind": "layer_norm",
            "norm.placement": "pre",
            "final_norm": "above",
            "attention.out_bias": True,
        },
        also=(_vit,),
        parts={
            "stem.class_token": vector("embeddings.cls_token", steps=("flat({})",)),
            "stem.patches": linear(
                "embeddings.patch_embeddings.projection", weight_steps=("matrix({}, 1)",)
            ),
            "embeddings.positions": vector(
                "embeddings.position_embeddings", steps=("matrix({}, 2)",)
            ),
            "layers.{i}.attention.q": linear(f"{_VIT_LAYER}.attention.attention.query"),
            "layers.{i}.attention.k": linear(f"{_VIT_LAYER}.attention.attention.key"),
            "layers.{i}.attention.v": linear(f"{_VIT_LAYER}.attention.attention.value"),
            "layers.{i}.attention.out": linear(f"{_VIT_LAYER}.attention.output.dense"),
            "layers.{i}.attention_norm": norm(f"{_VIT_LAYER}.layernorm_before"),
            "layers.{i}.ffn.up": linear(f"{_VIT_LAYER}.intermediate.dense"),
            "layers.{i}.ffn.down": linear(f"{_VIT_LAYER}.output.dense"),
            "layers.{i}.ffn_norm": norm(f"{_VIT_LAYER}.layernorm_after"),
            "final_norm": norm("layernorm"),
        },
        pooler=linear("pooler.dense"),
        tops={
            "ViTModel": Top(pooler=True),
            "ViTForImageClassification": Top(
                head={"kind": "classifier"}, parts={"classifier.out": linear("classifier")}
            ),
        },
        ignore=("*embeddings.mask_token",),
    )
)


def _clip(config: Config, values: Values) -> Values:
    """The end of a text: the first end token; 2, which was always wrong, means the largest id."""
    end = config.number("eos_token_id", 49407, "id")
    return {"pooler.kind": "end"} | ({} if end == 2 else {"pooler.token": end})


_CLIP_LAYER = "encoder.layers.{i}"
CLIP_TEXT = register_architecture(
    Architecture(
        model_type="clip_text_model",
        title="CLIP's encoder of text",
        paper="Radford et al. 2021",
        prefix="text_model.",
        keys=(
            Key("num_hidden_layers", "layers", 12),
            Key("hidden_size", "width", 512),
            Key("num_attention_heads", "heads", 8),
            Key("intermediate_size", "ffn", 2048),
            Key("hidden_act", "activation", "quick_gelu", "activation"),
            Key("layer_norm_eps", "norm.eps", 1e-5, "number"),
            Key("max_position_embeddings", "positions.max", 77),
            Key("vocab_size", "vocabulary", 49408),
        ),
        needs=_NEEDS,
        fixed={
            "kind": "decoder",
            "norm.kind": "layer_norm",
            "norm.placement": "pre",
            "final_norm": "above",
            "positions.kind": "learned",
            "mask": ["causal", "padding"],
        },
        also=(_clip,),
        parts={
            "embeddings.tokens": table("embeddings.token_embedding"),
            "embeddings.positions": table("embeddings.position_embedding"),
            "layers.{i}.attention.q": linear(f"{_CLIP_LAYER}.self_attn.q_proj"),
            "layers.{i}.attention.k": linear(f"{_CLIP_LAYER}.self_attn.k_proj"),
            "layers.{i}.attention.v": linear(f"{_CLIP_LAYER}.self_attn.v_proj"),
            "layers.{i}.attention.out": linear(f"{_CLIP_LAYER}.self_attn.out_proj"),
            "layers.{i}.attention_norm": norm(f"{_CLIP_LAYER}.layer_norm1"),
            "layers.{i}.ffn.up": linear(f"{_CLIP_LAYER}.mlp.fc1"),
            "layers.{i}.ffn.down": linear(f"{_CLIP_LAYER}.mlp.fc2"),
            "layers.{i}.ffn_norm": norm(f"{_CLIP_LAYER}.layer_norm2"),
            "final_norm": norm("final_layer_norm"),
        },
        tops={
            "CLIPTextModel": Top(),
            "CLIPTextModelWithProjection": Top(
                parts={"pooler.projection": linear("text_projection")},
                also=(
                    lambda config, values: {
                        "pooler.projection": config.number("projection_dim", 512, "size")
                    },
                ),
            ),
        },
    )
)
