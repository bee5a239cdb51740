"""BART (Lewis et al. 2019): norms behind each sum, learned positions behind two rows that count for
nothing; here with fewer layers in the decoder, as in its distilled forms."""

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
    gelu,
    layer_norm,
    merge,
    norm_of,
    split,
)

CASES: dict[str, Config] = {
    "bart": {
        "model_type": "bart", "architectures": ["BartForConditionalGeneration"], "d_model": 24,
        "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 2,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 32, "decoder_ffn_dim": 40,
        "vocab_size": 50, "max_position_embeddings": 32, "activation_function": "gelu",
        "scale_embedding": True, "is_encoder_decoder": True,
    },
}  # fmt: skip


def shapes(c: Config) -> Shapes:
    w = c["d_model"]
    found: Shapes = {"model.shared.weight": (c["vocab_size"], w)}
    found["final_logits_bias"] = (1, c["vocab_size"])
    for stack in ("encoder", "decoder"):
        p, m = f"model.{stack}", c[f"{stack}_ffn_dim"]
        found[f"{p}.embed_positions.weight"] = (c["max_position_embeddings"] + 2, w)
        found |= norm_of(f"{p}.layernorm_embedding", w)
        for i in range(c[f"{stack}_layers"]):
            for part in ("self_attn", "encoder_attn")[: 1 + (stack == "decoder")]:
                for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    found |= dense(f"{p}.layers.{i}.{part}.{name}", w, w)
                found |= norm_of(f"{p}.layers.{i}.{part}_layer_norm", w)
            found |= dense(f"{p}.layers.{i}.fc1", m, w) | dense(f"{p}.layers.{i}.fc2", w, m)
            found |= norm_of(f"{p}.layers.{i}.final_layer_norm", w)
    return found


def forward(c: Config, t: Tensors, ids: Array, mask: Array, begun: Array) -> dict[str, Array]:
    def norm(x: Array, name: str) -> Array:
        return layer_norm(x, t[f"{name}.weight"], t[f"{name}.bias"], 1e-5)

    def attention(x: Array, to: Array, heads: int, seen: Array, p: str) -> Array:
        q = split(affine(x, t, f"{p}.q_proj"), heads)
        k, v = (split(affine(to, t, f"{p}.{n}_proj"), heads) for n in "kv")
        y = merge(attend(q, k, v, seen, (c["d_model"] // heads) ** -0.5))
        return norm(x + affine(y, t, f"{p}.out_proj"), f"{p}_layer_norm")

    table, out = t["model.shared.weight"], {}
    memory = seen_memory = None
    for stack, tokens in (("encoder", ids), ("decoder", begun)):
        p, heads = f"model.{stack}", c[f"{stack}_attention_heads"]
        rows = t[f"{p}.embed_positions.weight"][2 : 2 + tokens.shape[1]]
        x = norm(table[tokens] * np.sqrt(c["d_model"]) + rows, f"{p}.layernorm_embedding")
        out[f"{stack}.hidden.0"] = x
        seen = mask[:, None, None, :] == 1 if stack == "encoder" else causal(np.ones_like(begun))
        for i in range(c[f"{stack}_layers"]):
            q = f"{p}.layers.{i}"
            x = attention(x, x, heads, seen, f"{q}.self_attn")
            if memory is not None and seen_memory is not None:
                x = attention(x, memory, heads, seen_memory, f"{q}.encoder_attn")
            y = affine(gelu(affine(x, t, f"{q}.fc1")), t, f"{q}.fc2")
            x = norm(x + y, f"{q}.final_layer_norm")
            out[f"{stack}.hidden.{i + 1}"] = x
        memory, seen_memory = x, seen
    return out | {"logits": x @ table.T + t["final_logits_bias"][0]}
