"""Llama 3 (2024) with scaled positions, and Phi-3 (2024) with LongRoPE, a window, and its products
of Q, K and V and of gate and up in one matrix each."""

from __future__ import annotations

import math

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
    rms_norm,
    silu,
    split,
)

_BASE: Config = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 40, "vocab_size": 50, "max_position_embeddings": 32, "hidden_act": "silu",
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
}  # fmt: skip
_LONG = {"short_factor": [1.0, 1.1, 1.25, 1.5], "long_factor": [2.0, 2.5, 4.0, 5.5]}
_PHI3 = _BASE | {"model_type": "phi3", "architectures": ["Phi3ForCausalLM"]}
CASES: dict[str, Config] = {
    "llama3": _BASE | {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "rope_theta": 500.0,
        "attention_bias": True, "mlp_bias": True, "head_dim": 10,
        "rope_scaling": {
            "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 3.0,
            "original_max_position_embeddings": 16,
        },
    },
    "llama_yarn": _BASE | {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "rope_theta": 100.0,
        "attention_bias": False, "mlp_bias": True, "head_dim": 16,
        "rope_scaling": {
            "rope_type": "yarn", "factor": 4.0, "beta_fast": 2.0, "beta_slow": 0.1, "mscale": 0.7,
            "mscale_all_dim": 1.3, "original_max_position_embeddings": 16, "truncate": False,
        },
    },
    "phi3_short": _PHI3 | {
        "original_max_position_embeddings": 12, "sliding_window": 4,
        "rope_scaling": {"type": "longrope"} | _LONG,
    },
    "phi3_long": _PHI3 | {
        "original_max_position_embeddings": 4, "sliding_window": None,
        "rope_scaling": {"type": "longrope"} | _LONG,
    },
    "phi4": _PHI3 | {
        "original_max_position_embeddings": 4, "sliding_window": None, "rope_theta": None,
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "longrope", "rope_theta": 300.0, "partial_rotary_factor": 0.75,
            "short_factor": [1.0, 1.1, 1.2], "long_factor": [2.0, 2.5, 3.5],
            "original_max_position_embeddings": 4,
        },
    },
}  # fmt: skip


def shapes(c: Config) -> Shapes:
    w, m, heads, groups = (
        c[k]
        for k in (
            "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"
        )
    )  # fmt: skip
    d, bias = c.get("head_dim") or w // heads, c.get("attention_bias", False)
    found: Shapes = {"model.embed_tokens.weight": (c["vocab_size"], w), "model.norm.weight": (w,)}
    if not c["tie_word_embeddings"]:
        found["lm_head.weight"] = (c["vocab_size"], w)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}"
        found[f"{p}.input_layernorm.weight"] = found[f"{p}.post_attention_layernorm.weight"] = (w,)
        found |= dense(f"{p}.self_attn.o_proj", w, heads * d, bias)
        found |= dense(f"{p}.mlp.down_proj", w, m, c.get("mlp_bias", False))
        if c["model_type"] == "phi3":
            found |= dense(f"{p}.self_attn.qkv_proj", (heads + 2 * groups) * d, w, False)
            found |= dense(f"{p}.mlp.gate_up_proj", 2 * m, w, False)
            continue
        for name, n in (("q", heads), ("k", groups), ("v", groups)):
            found |= dense(f"{p}.self_attn.{name}_proj", n * d, w, bias)
        found |= dense(f"{p}.mlp.gate_proj", m, w, True) | dense(f"{p}.mlp.up_proj", m, w, True)
    return found


def turns(c: Config, length: int, d: int) -> tuple[Array, Array]:
    """cos and sin [s, d/2] of the positions."""
    given = c.get("rope_parameters") or c["rope_scaling"]
    base = c["rope_theta"] or given["rope_theta"]
    f = frequencies(int(d * given.get("partial_rotary_factor", 1)), base)
    magnitude = 1.0
    if given.get("rope_type") == "llama3":
        low, high = given["low_freq_factor"], given["high_freq_factor"]
        wave = 2 * np.pi / f
        original = given["original_max_position_embeddings"]
        smooth = (original / wave - low) / (high - low)
        between = (1 - smooth) * f / given["factor"] + smooth * f
        f = np.where(
            wave < original / high,
            f,
            np.where(wave > original / low, f / given["factor"], between),
        )
    elif given.get("rope_type") == "yarn":
        s, original = given["factor"], given["original_max_position_embeddings"]
        turned = original * f / (2 * np.pi)  # a pair is where its number is, in logarithms
        low, high = (np.log(given[k] / turned[0]) for k in ("beta_slow", "beta_fast"))
        extrapolated = np.clip((np.log(turned / turned[0]) - low) / (high - low), 0, 1)
        assert 0 < extrapolated[2] < 1 == extrapolated[0] > extrapolated[-1] == 0
        f = f / s * (1 - extrapolated) + f * extrapolated
        magnitude = (0.07 * math.log(s) + 1) / (0.13 * math.log(s) + 1)
    else:
        original = c["original_max_position_embeddings"]
        f = f / np.array(given["long_factor" if length > original else "short_factor"])
        longer = c["max_position_embeddings"] / original
        magnitude = math.sqrt(1 + math.log(longer) / math.log(original))
    angles = np.arange(length)[:, None] * f
    return np.cos(angles) * magnitude, np.sin(angles) * magnitude


def turn(x: Array, cos: Array, sin: Array) -> Array:
    n = cos.shape[-1]
    a, b = x[..., :n], x[..., n : 2 * n]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., 2 * n :]], -1)


def forward(c: Config, t: Tensors, ids: Array, mask: Array) -> dict[str, Array]:
    heads, groups, eps = c["num_attention_heads"], c["num_key_value_heads"], c["rms_norm_eps"]
    d = c.get("head_dim") or c["hidden_size"] // heads
    cos, sin = turns(c, ids.shape[1], d)
    x = t["model.embed_tokens.weight"][ids]
    out = {"hidden.0": x}
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}"
        y = rms_norm(x, t[f"{p}.input_layernorm.weight"], eps)
        if c["model_type"] == "phi3":
            qkv = affine(y, t, f"{p}.self_attn.qkv_proj")
            q, k, v = np.split(qkv, [heads * d, (heads + groups) * d], -1)
        else:
            q, k, v = (affine(y, t, f"{p}.self_attn.{n}_proj") for n in "qkv")
        q, k, v = split(q, heads), split(k, groups), split(v, groups)
        allowed = causal(mask, c.get("sliding_window"))
        y = merge(attend(turn(q, cos, sin), turn(k, cos, sin), v, allowed, d**-0.5))
        x = x + affine(y, t, f"{p}.self_attn.o_proj")
        y = rms_norm(x, t[f"{p}.post_attention_layernorm.weight"], eps)
        if c["model_type"] == "phi3":
            gate, up = np.split(affine(y, t, f"{p}.mlp.gate_up_proj"), 2, -1)
        else:
            gate, up = affine(y, t, f"{p}.mlp.gate_proj"), affine(y, t, f"{p}.mlp.up_proj")
        x = x + affine(silu(gate) * up, t, f"{p}.mlp.down_proj")
        out[f"hidden.{i + 1}"] = x
    x = rms_norm(x, t["model.norm.weight"], eps)
    out[f"hidden.{c['num_hidden_layers']}"] = x
    head = t.get("lm_head.weight", t["model.embed_tokens.weight"])
    return out | {"logits": x @ head.T}
