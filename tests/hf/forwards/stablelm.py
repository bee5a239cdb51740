"""StableLM (Bellagente et al. 2024), the example of docs/extending.md: layer norms, gates, and a
share of each head that turns."""

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
    norm_of,
    silu,
    split,
    turn_halves,
)

CASES: dict[str, Config] = {
    "stablelm": {
        "model_type": "stablelm", "architectures": ["StableLmForCausalLM"], "hidden_size": 32,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 40, "vocab_size": 50, "max_position_embeddings": 32,
        "layer_norm_eps": 1e-5, "rope_theta": 10000, "partial_rotary_factor": 0.25,
        "use_qkv_bias": True, "hidden_act": "silu", "tie_word_embeddings": False,
    },
}  # fmt: skip


def shapes(c: Config) -> Shapes:
    w, m, v = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    kv = c["num_key_value_heads"] * w // c["num_attention_heads"]
    found: Shapes = {"model.embed_tokens.weight": (v, w)} | norm_of("model.norm", w)
    found |= dense("lm_head", v, w, bias=False)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}"
        for name, out in (("q", w), ("k", kv), ("v", kv)):
            found |= dense(f"{p}.self_attn.{name}_proj", out, w)
        found |= dense(f"{p}.self_attn.o_proj", w, w, False)
        found |= norm_of(f"{p}.input_layernorm", w) | norm_of(f"{p}.post_attention_layernorm", w)
        found |= dense(f"{p}.mlp.gate_proj", m, w, False) | dense(f"{p}.mlp.up_proj", m, w, False)
        found |= dense(f"{p}.mlp.down_proj", w, m, False)
    return found


def forward(c: Config, t: Tensors, ids: Array, mask: Array) -> dict[str, Array]:
    heads, groups = c["num_attention_heads"], c["num_key_value_heads"]
    d = c["hidden_size"] // heads
    turned = int(d * c["partial_rotary_factor"])
    angles = np.arange(ids.shape[1])[:, None] * frequencies(turned, c["rope_theta"])

    def norm(x: Array, name: str) -> Array:
        return layer_norm(x, t[f"{name}.weight"], t[f"{name}.bias"], c["layer_norm_eps"])

    x = t["model.embed_tokens.weight"][ids]
    out = {"hidden.0": x}
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}"
        y = norm(x, f"{p}.input_layernorm")
        q = turn_halves(split(affine(y, t, f"{p}.self_attn.q_proj"), heads), angles)
        k = turn_halves(split(affine(y, t, f"{p}.self_attn.k_proj"), groups), angles)
        v = split(affine(y, t, f"{p}.self_attn.v_proj"), groups)
        y = merge(attend(q, k, v, causal(mask), d**-0.5))
        x = x + affine(y, t, f"{p}.self_attn.o_proj")
        y = norm(x, f"{p}.post_attention_layernorm")
        y = silu(affine(y, t, f"{p}.mlp.gate_proj")) * affine(y, t, f"{p}.mlp.up_proj")
        x = x + affine(y, t, f"{p}.mlp.down_proj")
        out[f"hidden.{i + 1}"] = x
    x = norm(x, "model.norm")
    out[f"hidden.{c['num_hidden_layers']}"] = x
    return out | {"logits": affine(x, t, "lm_head")}
