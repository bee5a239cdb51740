"""OPT 350M (Zhang et al. 2022): norms behind each sum and none at the end; tokens in vectors of
half the width, from which and to which layers project; positions count what the mask keeps."""

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
    split,
)

CASES: dict[str, Config] = {
    "opt_350m": {
        "model_type": "opt", "architectures": ["OPTForCausalLM"], "hidden_size": 24,
        "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 40, "vocab_size": 50,
        "max_position_embeddings": 32, "do_layer_norm_before": False, "word_embed_proj_dim": 12,
        "activation_function": "relu", "enable_bias": True, "_remove_final_layer_norm": False,
    },
}  # fmt: skip


def shapes(c: Config) -> Shapes:
    w, m, e = c["hidden_size"], c["ffn_dim"], c["word_embed_proj_dim"]
    p = "model.decoder"
    found: Shapes = {
        f"{p}.embed_tokens.weight": (c["vocab_size"], e),
        f"{p}.embed_positions.weight": (c["max_position_embeddings"] + 2, w),
    }
    found |= dense(f"{p}.project_in", w, e, False) | dense(f"{p}.project_out", e, w, False)
    for i in range(c["num_hidden_layers"]):
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            found |= dense(f"{p}.layers.{i}.self_attn.{name}", w, w)
        found |= dense(f"{p}.layers.{i}.fc1", m, w) | dense(f"{p}.layers.{i}.fc2", w, m)
        found |= norm_of(f"{p}.layers.{i}.self_attn_layer_norm", w)
        found |= norm_of(f"{p}.layers.{i}.final_layer_norm", w)
    return found


def forward(c: Config, t: Tensors, ids: Array, mask: Array) -> dict[str, Array]:
    heads, d = c["num_attention_heads"], c["hidden_size"] // c["num_attention_heads"]

    def norm(x: Array, name: str) -> Array:
        return layer_norm(x, t[f"{name}.weight"], t[f"{name}.bias"], 1e-5)

    places = np.cumsum(mask, 1) * mask - 1 + 2
    x = affine(t["model.decoder.embed_tokens.weight"][ids], t, "model.decoder.project_in")
    x = x + t["model.decoder.embed_positions.weight"][places]
    out = {"hidden.0": x}
    for i in range(c["num_hidden_layers"]):
        p = f"model.decoder.layers.{i}"
        q, k, v = (split(affine(x, t, f"{p}.self_attn.{n}_proj"), heads) for n in "qkv")
        y = merge(attend(q, k, v, causal(mask), d**-0.5))
        x = norm(x + affine(y, t, f"{p}.self_attn.out_proj"), f"{p}.self_attn_layer_norm")
        y = affine(np.maximum(affine(x, t, f"{p}.fc1"), 0), t, f"{p}.fc2")
        x = norm(x + y, f"{p}.final_layer_norm")
        out[f"hidden.{i + 1}"] = x
    x = affine(x, t, "model.decoder.project_out")
    out[f"hidden.{c['num_hidden_layers']}"] = x
    return out | {"logits": x @ t["model.decoder.embed_tokens.weight"].T}
