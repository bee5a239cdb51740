"""Falcon (Almazrouei et al. 2023): 7B, whose heads share one K and V; RW 1B, with ALiBi and its
parts one after another; 40B, with groups of heads and two norms; 11B, with groups and one norm."""

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
    gelu,
    layer_norm,
    merge,
    norm_of,
    turn_halves,
)

_BASE: Config = {
    "model_type": "falcon", "architectures": ["FalconForCausalLM"], "hidden_size": 32,
    "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 50, "bias": False,
    "layer_norm_epsilon": 1e-5, "max_position_embeddings": 32, "rope_theta": 900.0, "alibi": False,
    "activation": "gelu", "multi_query": True, "parallel_attn": True,
    "new_decoder_architecture": False,
}  # fmt: skip
CASES: dict[str, Config] = {
    "falcon_7b": _BASE,
    "falcon_rw": _BASE | {
        "alibi": True, "multi_query": False, "parallel_attn": False, "bias": True,
        "num_attention_heads": 2, "tie_word_embeddings": False,
    },
    "falcon_40b": _BASE | {
        "new_decoder_architecture": True, "num_kv_heads": 2, "ffn_hidden_size": 48,
    },
    "falcon_11b": _BASE | {
        "new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1,
    },
}  # fmt: skip


def groups_of(c: Config) -> int:
    if c["new_decoder_architecture"]:
        return int(c["num_kv_heads"])
    return 1 if c["multi_query"] else int(c["num_attention_heads"])


def shapes(c: Config) -> Shapes:
    w, heads, bias = c["hidden_size"], c["num_attention_heads"], c["bias"]
    m = c.get("ffn_hidden_size", 4 * w)
    found: Shapes = {"transformer.word_embeddings.weight": (c["vocab_size"], w)}
    found |= norm_of("transformer.ln_f", w)
    if c.get("tie_word_embeddings", True) is False:
        found["lm_head.weight"] = (c["vocab_size"], w)
    for i in range(c["num_hidden_layers"]):
        p = f"transformer.h.{i}"
        rows = (heads + 2 * groups_of(c)) * (w // heads)
        found |= dense(f"{p}.self_attention.query_key_value", rows, w, bias)
        found |= dense(f"{p}.self_attention.dense", w, w, bias)
        found |= dense(f"{p}.mlp.dense_h_to_4h", m, w, bias)
        found |= dense(f"{p}.mlp.dense_4h_to_h", w, m, bias)
        if c["new_decoder_architecture"] and "num_ln_in_parallel_attn" not in c:
            found |= norm_of(f"{p}.ln_attn", w) | norm_of(f"{p}.ln_mlp", w)
        else:
            found |= norm_of(f"{p}.input_layernorm", w)
        if not c["parallel_attn"]:
            found |= norm_of(f"{p}.post_attention_layernorm", w)
    return found


def forward(c: Config, t: Tensors, ids: Array, mask: Array) -> dict[str, Array]:
    heads, groups, s = c["num_attention_heads"], groups_of(c), ids.shape[1]
    d = c["hidden_size"] // heads
    angles = np.arange(s)[:, None] * frequencies(d, c["rope_theta"])

    def norm(x: Array, name: str) -> Array:
        return layer_norm(x, t[f"{name}.weight"], t[f"{name}.bias"], c["layer_norm_epsilon"])

    bias: Array | float = 0.0
    if c["alibi"]:  # added before scores are divided by sqrt(d); a number for each key alone
        slopes = 2.0 ** (-8 * np.arange(1, heads + 1) / heads)
        bias = slopes[:, None, None] * np.arange(s) / np.sqrt(d)
    x = t["transformer.word_embeddings.weight"][ids]
    out = {"hidden.0": x}
    for i in range(c["num_hidden_layers"]):
        p = f"transformer.h.{i}"
        two = f"{p}.ln_attn.weight" in t
        y = norm(x, f"{p}.ln_attn" if two else f"{p}.input_layernorm")
        qkv = affine(y, t, f"{p}.self_attention.query_key_value")
        each = qkv.reshape(*ids.shape, groups, heads // groups + 2, d)
        q = each[..., :-2, :].reshape(*ids.shape, heads, d).transpose(0, 2, 1, 3)
        k, v = (each[..., n, :].transpose(0, 2, 1, 3) for n in (-2, -1))
        if not c["alibi"]:
            q, k = turn_halves(q, angles), turn_halves(k, angles)
        a = merge(attend(q, k, v, causal(mask), d**-0.5, bias))
        a = affine(a, t, f"{p}.self_attention.dense")
        if c["parallel_attn"]:
            fed = norm(x, f"{p}.ln_mlp") if two else y
        else:
            x = x + a
            fed, a = norm(x, f"{p}.post_attention_layernorm"), np.zeros_like(a)
        f = gelu(affine(fed, t, f"{p}.mlp.dense_h_to_4h"))
        x = x + a + affine(f, t, f"{p}.mlp.dense_4h_to_h")
        out[f"hidden.{i + 1}"] = x
    x = norm(x, "transformer.ln_f")
    out[f"hidden.{c['num_hidden_layers']}"] = x
    head = t.get("lm_head.weight", t["transformer.word_embeddings.weight"])
    return out | {"logits": x @ head.T}
