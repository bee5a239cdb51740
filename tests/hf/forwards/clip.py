"""CLIP's encoder of text (Radford et al. 2021): causal, and the vector of a text is that of its end
token: the first one, or where its id is given as 2, the token of the largest id."""

from __future__ import annotations

import numpy as np
from hf.forwards.common import (
    Array,
    Config,
    Shapes,
    Tensors,
    affine,
    attend,
    causal,
    dense,
    layer_norm,
    merge,
    norm_of,
    quick_gelu,
    split,
)

_BASE: Config = {
    "model_type": "clip_text_model", "hidden_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "intermediate_size": 40, "vocab_size": 50, "projection_dim": 10,
    "max_position_embeddings": 32, "layer_norm_eps": 1e-5, "hidden_act": "quick_gelu",
}  # fmt: skip
CASES: dict[str, Config] = {
    "clip_text": _BASE | {"architectures": ["CLIPTextModel"], "eos_token_id": 2},
    "clip_text_projected": _BASE
    | {"architectures": ["CLIPTextModelWithProjection"], "eos_token_id": 7},
}


def shapes(c: Config) -> Shapes:
    w, m, p = c["hidden_size"], c["intermediate_size"], "text_model"
    found: Shapes = {
        f"{p}.embeddings.token_embedding.weight": (c["vocab_size"], w),
        f"{p}.embeddings.position_embedding.weight": (c["max_position_embeddings"], w),
    }
    found |= norm_of(f"{p}.final_layer_norm", w)
    for i in range(c["num_hidden_layers"]):
        q = f"{p}.encoder.layers.{i}"
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            found |= dense(f"{q}.self_attn.{name}", w, w)
        found |= norm_of(f"{q}.layer_norm1", w) | norm_of(f"{q}.layer_norm2", w)
        found |= dense(f"{q}.mlp.fc1", m, w) | dense(f"{q}.mlp.fc2", w, m)
    if c["eos_token_id"] != 2:
        found |= dense("text_projection", c["projection_dim"], w, False)
    return found


def forward(c: Config, t: Tensors, ids: Array, mask: Array) -> dict[str, Array]:
    heads, d = c["num_attention_heads"], c["hidden_size"] // c["num_attention_heads"]

    def norm(x: Array, name: str) -> Array:
        return layer_norm(x, t[f"{name}.weight"], t[f"{name}.bias"], c["layer_norm_eps"])

    p = "text_model.embeddings"
    x = t[f"{p}.token_embedding.weight"][ids]
    x = x + t[f"{p}.position_embedding.weight"][: ids.shape[1]]
    out = {"hidden.0": x}
    for i in range(c["num_hidden_layers"]):
        p = f"text_model.encoder.layers.{i}"
        y = norm(x, f"{p}.layer_norm1")
        q, k, v = (split(affine(y, t, f"{p}.self_attn.{n}_proj"), heads) for n in "qkv")
        y = merge(attend(q, k, v, causal(mask), d**-0.5))
        x = x + affine(y, t, f"{p}.self_attn.out_proj")
        y = quick_gelu(affine(norm(x, f"{p}.layer_norm2"), t, f"{p}.mlp.fc1"))
        x = x + affine(y, t, f"{p}.mlp.fc2")
        out[f"hidden.{i + 1}"] = x
    x = norm(x, "text_model.final_layer_norm")
    end = c["eos_token_id"]
    where = ids.argmax(-1) if end == 2 else (ids == end).argmax(-1)
    row = x[np.arange(len(ids)), where]
    if end == 2:
        return out | {"last_hidden_state": x, "pooler_output": row}
    return out | {"last_hidden_state": x, "text_embeds": affine(row, t, "text_projection")}
