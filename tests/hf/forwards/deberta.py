"""DeBERTa v2 (He et al. 2020) with what the recorded case has not: distances each for themselves,
their own projections, one term of the two, no norm of the distances, heads for a language model."""

from __future__ import annotations

import numpy as np
from hf.forwards.common import (
    Array,
    Config,
    Shapes,
    Tensors,
    affine,
    dense,
    gelu,
    layer_norm,
    merge,
    norm_of,
    softmax,
    split,
)

_BASE: Config = {
    "model_type": "deberta-v2", "hidden_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "intermediate_size": 40, "vocab_size": 50, "hidden_act": "gelu",
    "max_position_embeddings": 32, "type_vocab_size": 0, "layer_norm_eps": 1e-7,
    "relative_attention": True, "position_biased_input": False, "norm_rel_ebd": "none",
    "pooler_hidden_act": "gelu",
}  # fmt: skip
CASES: dict[str, Config] = {
    "deberta_own": _BASE | {
        "architectures": ["DebertaV2ForMaskedLM"], "pos_att_type": ["c2p", "p2c"],
        "share_att_key": False, "position_buckets": -1, "max_relative_positions": 4,
    },
    "deberta_c2p": _BASE | {
        "architectures": ["DebertaV2ForSequenceClassification"], "pos_att_type": "c2p",
        "share_att_key": True, "position_buckets": 8, "max_relative_positions": -1,
        "norm_rel_ebd": "layer_norm", "num_labels": 3, "embedding_size": 10,
    },
    "deberta_conv": _BASE | {
        "architectures": ["DebertaV2ForMaskedLM"], "pos_att_type": ["c2p"], "num_hidden_layers": 3,
        "share_att_key": True, "position_buckets": -1, "max_relative_positions": 4,
        "position_biased_input": True, "conv_kernel_size": 3, "conv_act": "tanh",
    },
}  # fmt: skip


def span_of(c: Config) -> int:
    return int(c["position_buckets"] if c["position_buckets"] > 0 else c["max_relative_positions"])


def shapes(c: Config) -> Shapes:
    w, m, v = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    found: Shapes = {
        "deberta.embeddings.word_embeddings.weight": (v, c.get("embedding_size", w)),
        "deberta.encoder.rel_embeddings.weight": (2 * span_of(c), w),
    }
    found |= norm_of("deberta.embeddings.LayerNorm", w)
    if "embedding_size" in c:
        found |= dense("deberta.embeddings.embed_proj", w, c["embedding_size"], False)
    if c["position_biased_input"]:
        found["deberta.embeddings.position_embeddings.weight"] = (c["max_position_embeddings"], w)
    if "conv_kernel_size" in c:
        found["deberta.encoder.conv.conv.weight"] = (w, w, c["conv_kernel_size"])
        found["deberta.encoder.conv.conv.bias"] = (w,)
        found |= norm_of("deberta.encoder.conv.LayerNorm", w)
    if c["norm_rel_ebd"] != "none":
        found |= norm_of("deberta.encoder.LayerNorm", w)
    for i in range(c["num_hidden_layers"]):
        p = f"deberta.encoder.layer.{i}"
        for name in ("query", "key", "value"):
            found |= dense(f"{p}.attention.self.{name}_proj", w, w)
        if not c["share_att_key"]:
            found |= dense(f"{p}.attention.self.pos_key_proj", w, w)
            found |= dense(f"{p}.attention.self.pos_query_proj", w, w)
        found |= dense(f"{p}.attention.output.dense", w, w)
        found |= norm_of(f"{p}.attention.output.LayerNorm", w) | norm_of(f"{p}.output.LayerNorm", w)
        found |= dense(f"{p}.intermediate.dense", m, w) | dense(f"{p}.output.dense", w, m)
    if c["architectures"] == ["DebertaV2ForMaskedLM"]:
        found |= dense("cls.predictions.transform.dense", w, w)
        found |= norm_of("cls.predictions.transform.LayerNorm", w)
        return found | {"cls.predictions.bias": (v,)}
    return found | dense("pooler.dense", w, w) | dense("classifier", c["num_labels"], w)


def bucket(distance: int, c: Config) -> int:
    """The bucket of a distance, counted from the middle."""
    size = c["position_buckets"]
    most = c["max_relative_positions"]
    most = most if most > 0 else c["max_position_embeddings"]
    middle = size // 2
    if size <= 0 or abs(distance) <= middle:
        return distance
    turns = np.log(abs(distance) / middle) / np.log((most - 1) / middle) * (middle - 1)
    return int(np.sign(distance) * (np.ceil(turns) + middle))


def forward(c: Config, t: Tensors, ids: Array, mask: Array) -> dict[str, Array]:
    heads, s, span = c["num_attention_heads"], ids.shape[1], span_of(c)
    d = c["hidden_size"] // heads

    def norm(x: Array, name: str) -> Array:
        return layer_norm(x, t[f"{name}.weight"], t[f"{name}.bias"], c["layer_norm_eps"])

    def of_distances(p: str, own: str, shared: str) -> Array:
        y = affine(rows, t, f"{p}.{shared if c['share_att_key'] else own}")
        return y.reshape(2 * span, heads, d)

    rows = t["deberta.encoder.rel_embeddings.weight"]
    rows = rows if c["norm_rel_ebd"] == "none" else norm(rows, "deberta.encoder.LayerNorm")
    table = t["deberta.embeddings.word_embeddings.weight"]
    x = table[ids]
    if "embedding_size" in c:
        x = affine(x, t, "deberta.embeddings.embed_proj")
    if c["position_biased_input"]:
        x = x + t["deberta.embeddings.position_embeddings.weight"][:s]
    x = norm(x, "deberta.embeddings.LayerNorm")
    first = x * mask[..., None]
    out = {"hidden.0": x}
    for n in range(c["num_hidden_layers"]):
        p = f"deberta.encoder.layer.{n}.attention.self"
        names = ("query", "key", "value")
        q, k, v = (split(affine(x, t, f"{p}.{name}_proj"), heads) for name in names)
        scores = q @ k.transpose(0, 1, 3, 2)
        keys = of_distances(p, "pos_key_proj", "key_proj")
        both = "p2c" in c["pos_att_type"]
        queries = of_distances(p, "pos_query_proj", "query_proj") if both else None
        for i in range(s):
            for j in range(s):
                row = min(max(bucket(i - j, c) + span, 0), 2 * span - 1)
                scores[:, :, i, j] += (q[:, :, i] * keys[row]).sum(-1)
                if queries is not None:
                    scores[:, :, i, j] += (k[:, :, j] * queries[row]).sum(-1)
        scores = scores / np.sqrt(d * (2 if queries is None else 3))
        y = softmax(np.where(mask[:, None, None, :] == 1, scores, -1e30)) @ v
        p = f"deberta.encoder.layer.{n}"
        y = affine(merge(y), t, f"{p}.attention.output.dense")
        x = norm(x + y, f"{p}.attention.output.LayerNorm")
        y = affine(gelu(affine(x, t, f"{p}.intermediate.dense")), t, f"{p}.output.dense")
        x = norm(x + y, f"{p}.output.LayerNorm")
        if n == 0 and "conv_kernel_size" in c:
            weight, bias = (t[f"deberta.encoder.conv.conv.{k}"] for k in ("weight", "bias"))
            wide = np.pad(first, ((0, 0), (1, 1), (0, 0)))
            near = sum(wide[:, k : k + s] @ weight[:, :, k].T for k in range(3)) + bias
            x = norm(x + np.tanh(near), "deberta.encoder.conv.LayerNorm")
        out[f"hidden.{n + 1}"] = x
    if c["architectures"] == ["DebertaV2ForMaskedLM"]:
        y = gelu(affine(x, t, "cls.predictions.transform.dense"))
        y = norm(y, "cls.predictions.transform.LayerNorm")
        return out | {"logits": y @ table.T + t["cls.predictions.bias"]}
    return out | {"logits": affine(gelu(affine(x[:, 0], t, "pooler.dense")), t, "classifier")}
