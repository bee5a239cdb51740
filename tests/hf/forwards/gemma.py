"""Gemma 2 (2024) and 3 (2025): norms 1 + w before and behind each part; every second, or all but
every sixth layer local. Gemma 2 caps scores and logits; Gemma 3 norms the heads of Q and K, and
its local layers turn by a base of their own."""

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
    gelu_tanh,
    merge,
    rms_norm,
    split,
    turn_halves,
)

_BASE: Config = {
    "hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "intermediate_size": 40, "vocab_size": 50, "max_position_embeddings": 32,
    "rms_norm_eps": 1e-6, "sliding_window": 3, "query_pre_attn_scalar": 12,
    "hidden_activation": "gelu_pytorch_tanh", "attention_bias": False, "tie_word_embeddings": True,
}  # fmt: skip
_GEMMA3 = _BASE | {
    "model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "num_hidden_layers": 4,
}  # fmt: skip
CASES: dict[str, Config] = {
    "gemma2": _BASE | {
        "model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "num_hidden_layers": 2,
        "attn_logit_softcapping": 3.0, "final_logit_softcapping": 4.0, "rope_theta": 10000.0,
    },
    "gemma3": _GEMMA3 | {
        "rope_theta": 90000.0, "rope_local_base_freq": 500.0, "sliding_window_pattern": 3,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "final_logit_softcapping": None,
        "attn_logit_softcapping": 0.5,  # which transformers does not read there
    },
    "gemma3_new_keys": _GEMMA3 | {
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "rope_parameters": {
            "full_attention": {"rope_theta": 90000.0, "rope_type": "linear", "factor": 4.0},
            "sliding_attention": {"rope_theta": 700.0, "rope_type": "default"},
        },
    },
}  # fmt: skip


def shapes(c: Config) -> Shapes:
    w, m, d = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    found: Shapes = {"model.embed_tokens.weight": (c["vocab_size"], w), "model.norm.weight": (w,)}
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}"
        for name, out, inner in (("q", q, w), ("k", kv, w), ("v", kv, w), ("o", w, q)):
            found |= dense(f"{p}.self_attn.{name}_proj", out, inner, False)
        if c["model_type"] == "gemma3_text":
            found[f"{p}.self_attn.q_norm.weight"] = found[f"{p}.self_attn.k_norm.weight"] = (d,)
        for name in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            found[f"{p}.{name}_layernorm.weight"] = (w,)
        found |= dense(f"{p}.mlp.gate_proj", m, w, False) | dense(f"{p}.mlp.up_proj", m, w, False)
        found |= dense(f"{p}.mlp.down_proj", w, m, False)
    return found


def turning(c: Config, local: bool) -> tuple[float, float]:
    """The base, and what positions are divided by."""
    if "rope_parameters" in c:
        given = c["rope_parameters"]["sliding_attention" if local else "full_attention"]
        return given["rope_theta"], given.get("factor", 1.0)
    if c["model_type"] == "gemma2":
        return c["rope_theta"], 1.0
    if local:
        return c["rope_local_base_freq"], 1.0
    return c["rope_theta"], c["rope_scaling"]["factor"]


def is_local(c: Config, i: int) -> bool:
    if "layer_types" in c:
        return bool(c["layer_types"][i] == "sliding_attention")
    every = 2 if c["model_type"] == "gemma2" else c["sliding_window_pattern"]
    return bool((i + 1) % every != 0)


def forward(c: Config, t: Tensors, ids: Array, mask: Array) -> dict[str, Array]:
    heads, groups, d = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]

    def norm(x: Array, name: str) -> Array:
        return rms_norm(x, 1 + t[f"{name}.weight"], c["rms_norm_eps"])

    x = t["model.embed_tokens.weight"][ids] * np.sqrt(c["hidden_size"])
    out = {"hidden.0": x}
    for i in range(c["num_hidden_layers"]):
        p, local = f"model.layers.{i}", is_local(c, i)
        base, factor = turning(c, local)
        angles = np.arange(ids.shape[1])[:, None] / factor * frequencies(d, base)
        y = norm(x, f"{p}.input_layernorm")
        q = split(affine(y, t, f"{p}.self_attn.q_proj"), heads)
        k = split(affine(y, t, f"{p}.self_attn.k_proj"), groups)
        v = split(affine(y, t, f"{p}.self_attn.v_proj"), groups)
        if c["model_type"] == "gemma3_text":
            q, k = norm(q, f"{p}.self_attn.q_norm"), norm(k, f"{p}.self_attn.k_norm")
        allowed = causal(mask, c["sliding_window"] if local else None)
        scale = c["query_pre_attn_scalar"] ** -0.5
        cap = c["attn_logit_softcapping"] if c["model_type"] == "gemma2" else None
        y = attend(turn_halves(q, angles), turn_halves(k, angles), v, allowed, scale, cap=cap)
        y = affine(merge(y), t, f"{p}.self_attn.o_proj")
        x = x + norm(y, f"{p}.post_attention_layernorm")
        y = norm(x, f"{p}.pre_feedforward_layernorm")
        y = gelu_tanh(affine(y, t, f"{p}.mlp.gate_proj")) * affine(y, t, f"{p}.mlp.up_proj")
        x = x + norm(affine(y, t, f"{p}.mlp.down_proj"), f"{p}.post_feedforward_layernorm")
        out[f"hidden.{i + 1}"] = x
    x = norm(x, "model.norm")
    out[f"hidden.{c['num_hidden_layers']}"] = x
    logits, cap = x @ t["model.embed_tokens.weight"].T, c.get("final_logit_softcapping")
    return out | {"logits": logits if cap is None else cap * np.tanh(logits / cap)}
