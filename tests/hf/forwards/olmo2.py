"""OLMo 2 (OLMo Team 2024): norms behind attention and network, inside the sum; Q and K normed over
all heads at once."""

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
    merge,
    norm_of,
    rms_norm,
    silu,
    split,
    turn_halves,
)

CASES: dict[str, Config] = {
    "olmo2": {
        "model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"], "hidden_size": 24,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 40, "vocab_size": 50, "max_position_embeddings": 32,
        "rms_norm_eps": 1e-5, "rope_theta": 5000.0, "tie_word_embeddings": False,
        "hidden_act": "silu", "attention_bias": False,
    },
}  # fmt: skip


def shapes(c: Config) -> Shapes:
    w, m, v = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    d = w // c["num_attention_heads"]
    kv = c["num_key_value_heads"] * d
    found: Shapes = {"model.embed_tokens.weight": (v, w), "model.norm.weight": (w,)}
    found |= dense("lm_head", v, w, bias=False)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}"
        for name, out, inner in (("q", w, w), ("k", kv, w), ("v", kv, w), ("o", w, w)):
            found |= dense(f"{p}.self_attn.{name}_proj", out, inner, bias=False)
        found |= norm_of(f"{p}.self_attn.q_norm", w, False)
        found |= norm_of(f"{p}.self_attn.k_norm", kv, False)
        found |= norm_of(f"{p}.post_attention_layernorm", w, False)
        found |= norm_of(f"{p}.post_feedforward_layernorm", w, False)
        found |= dense(f"{p}.mlp.gate_proj", m, w, False) | dense(f"{p}.mlp.up_proj", m, w, False)
        found |= dense(f"{p}.mlp.down_proj", w, m, False)
    return found


def forward(c: Config, t: Tensors, ids: Array, mask: Array) -> dict[str, Array]:
    heads, groups, eps = c["num_attention_heads"], c["num_key_value_heads"], c["rms_norm_eps"]
    d = c["hidden_size"] // heads
    angles = np.arange(ids.shape[1])[:, None] * frequencies(d, c["rope_theta"])
    x = t["model.embed_tokens.weight"][ids]
    out = {"hidden.0": x}
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}"
        q = rms_norm(affine(x, t, f"{p}.self_attn.q_proj"), t[f"{p}.self_attn.q_norm.weight"], eps)
        k = rms_norm(affine(x, t, f"{p}.self_attn.k_proj"), t[f"{p}.self_attn.k_norm.weight"], eps)
        v = affine(x, t, f"{p}.self_attn.v_proj")
        q, k = turn_halves(split(q, heads), angles), turn_halves(split(k, groups), angles)
        y = merge(attend(q, k, split(v, groups), causal(mask), d**-0.5))
        y = affine(y, t, f"{p}.self_attn.o_proj")
        x = x + rms_norm(y, t[f"{p}.post_attention_layernorm.weight"], eps)
        y = silu(affine(x, t, f"{p}.mlp.gate_proj")) * affine(x, t, f"{p}.mlp.up_proj")
        y = affine(y, t, f"{p}.mlp.down_proj")
        x = x + rms_norm(y, t[f"{p}.post_feedforward_layernorm.weight"], eps)
        out[f"hidden.{i + 1}"] = x
    x = rms_norm(x, t["model.norm.weight"], eps)
    out[f"hidden.{c['num_hidden_layers']}"] = x
    return out | {"logits": affine(x, t, "lm_head")}
