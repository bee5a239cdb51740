"""Command R (Cohere 2024): one norm without bias for attention and network, which stand beside each
other; pairs of neighbours turn; in the larger model Q and K are normed, each head by its scale."""

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
    frequencies,
    layer_norm,
    merge,
    silu,
    split,
    turn_pairs,
)

_BASE: Config = {
    "model_type": "cohere", "architectures": ["CohereForCausalLM"], "hidden_size": 24,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 40, "vocab_size": 50, "max_position_embeddings": 32,
    "layer_norm_eps": 1e-5, "rope_theta": 8000.0, "logit_scale": 0.25, "hidden_act": "silu",
    "attention_bias": False, "tie_word_embeddings": True,
}  # fmt: skip
CASES: dict[str, Config] = {
    "cohere": _BASE | {"use_qk_norm": False, "attention_bias": True},
    "cohere_qk_norm": _BASE | {"use_qk_norm": True},
}


def shapes(c: Config) -> Shapes:
    w, m, v, bias = c["hidden_size"], c["intermediate_size"], c["vocab_size"], c["attention_bias"]
    heads, groups = c["num_attention_heads"], c["num_key_value_heads"]
    d = w // heads
    found: Shapes = {"model.embed_tokens.weight": (v, w), "model.norm.weight": (w,)}
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}"
        sizes = (("q", w), ("k", groups * d), ("v", groups * d), ("o", w))
        for name, out in sizes:
            found |= dense(f"{p}.self_attn.{name}_proj", out, w, bias)
        if c["use_qk_norm"]:
            found[f"{p}.self_attn.q_norm.weight"] = (heads, d)
            found[f"{p}.self_attn.k_norm.weight"] = (groups, d)
        found[f"{p}.input_layernorm.weight"] = (w,)
        found |= dense(f"{p}.mlp.gate_proj", m, w, False) | dense(f"{p}.mlp.up_proj", m, w, False)
        found |= dense(f"{p}.mlp.down_proj", w, m, False)
    return found


def forward(c: Config, t: Tensors, ids: Array, mask: Array) -> dict[str, Array]:
    heads, groups, eps = c["num_attention_heads"], c["num_key_value_heads"], c["layer_norm_eps"]
    d = c["hidden_size"] // heads
    angles = np.arange(ids.shape[1])[:, None] * frequencies(d, c["rope_theta"])
    x = t["model.embed_tokens.weight"][ids]
    out = {"hidden.0": x}
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}"
        y = layer_norm(x, t[f"{p}.input_layernorm.weight"], None, eps)
        q = split(affine(y, t, f"{p}.self_attn.q_proj"), heads)
        k = split(affine(y, t, f"{p}.self_attn.k_proj"), groups)
        v = split(affine(y, t, f"{p}.self_attn.v_proj"), groups)
        if c["use_qk_norm"]:
            q = layer_norm(q, t[f"{p}.self_attn.q_norm.weight"][:, None, :], None, eps)
            k = layer_norm(k, t[f"{p}.self_attn.k_norm.weight"][:, None, :], None, eps)
        q, k = turn_pairs(q, angles), turn_pairs(k, angles)
        a = affine(merge(attend(q, k, v, causal(mask), d**-0.5)), t, f"{p}.self_attn.o_proj")
        f = silu(affine(y, t, f"{p}.mlp.gate_proj")) * affine(y, t, f"{p}.mlp.up_proj")
        x = x + a + affine(f, t, f"{p}.mlp.down_proj")
        out[f"hidden.{i + 1}"] = x
    x = layer_norm(x, t["model.norm.weight"], None, eps)
    out[f"hidden.{c['num_hidden_layers']}"] = x
    return out | {"logits": x @ t["model.embed_tokens.weight"].T * c["logit_scale"]}
