"""ELECTRA (Clark et al. 2020): BERT with vectors of tokens of another size than the width, and
three heads: a discriminator of replaced tokens, the generator's language model, none."""

from __future__ import annotations

from hf.forwards.common import (
    Array,
    Config,
    Shapes,
    Tensors,
    affine,
    attend,
    dense,
    gelu,
    layer_norm,
    merge,
    norm_of,
    split,
)

_BASE: Config = {
    "model_type": "electra", "embedding_size": 16, "hidden_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "intermediate_size": 40, "vocab_size": 50, "hidden_act": "gelu",
    "max_position_embeddings": 32, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
}  # fmt: skip
CASES: dict[str, Config] = {
    "electra": _BASE | {"architectures": ["ElectraModel"], "embedding_size": 24},
    "electra_discriminator": _BASE | {"architectures": ["ElectraForPreTraining"]},
    "electra_generator": _BASE | {"architectures": ["ElectraForMaskedLM"]},
}


def shapes(c: Config) -> Shapes:
    w, m, e, v = c["hidden_size"], c["intermediate_size"], c["embedding_size"], c["vocab_size"]
    bare = c["architectures"] == ["ElectraModel"]
    p = "" if bare else "electra."
    found: Shapes = {
        f"{p}embeddings.word_embeddings.weight": (v, e),
        f"{p}embeddings.position_embeddings.weight": (c["max_position_embeddings"], e),
        f"{p}embeddings.token_type_embeddings.weight": (2, e),
    }
    found |= norm_of(f"{p}embeddings.LayerNorm", e)
    found |= {} if e == w else dense(f"{p}embeddings_project", w, e)
    for i in range(c["num_hidden_layers"]):
        q = f"{p}encoder.layer.{i}"
        for name in ("query", "key", "value"):
            found |= dense(f"{q}.attention.self.{name}", w, w)
        found |= dense(f"{q}.attention.output.dense", w, w)
        found |= norm_of(f"{q}.attention.output.LayerNorm", w) | norm_of(f"{q}.output.LayerNorm", w)
        found |= dense(f"{q}.intermediate.dense", m, w) | dense(f"{q}.output.dense", w, m)
    if c["architectures"] == ["ElectraForPreTraining"]:
        found |= dense("discriminator_predictions.dense", w, w)
        found |= dense("discriminator_predictions.dense_prediction", 1, w)
    elif not bare:
        found |= dense("generator_predictions.dense", e, w)
        found |= norm_of("generator_predictions.LayerNorm", e) | {"generator_lm_head.bias": (v,)}
    return found


def forward(c: Config, t: Tensors, ids: Array, mask: Array) -> dict[str, Array]:
    heads, d = c["num_attention_heads"], c["hidden_size"] // c["num_attention_heads"]
    p = "" if c["architectures"] == ["ElectraModel"] else "electra."

    def norm(x: Array, name: str) -> Array:
        return layer_norm(x, t[f"{name}.weight"], t[f"{name}.bias"], c["layer_norm_eps"])

    table = t[f"{p}embeddings.word_embeddings.weight"]
    x = table[ids] + t[f"{p}embeddings.position_embeddings.weight"][: ids.shape[1]]
    x = norm(x + t[f"{p}embeddings.token_type_embeddings.weight"][0], f"{p}embeddings.LayerNorm")
    if f"{p}embeddings_project.weight" in t:
        x = affine(x, t, f"{p}embeddings_project")
    out = {"hidden.0": x}
    seen = mask[:, None, None, :] == 1
    for i in range(c["num_hidden_layers"]):
        b = f"{p}encoder.layer.{i}"
        names = ("query", "key", "value")
        q, k, v = (split(affine(x, t, f"{b}.attention.self.{n}"), heads) for n in names)
        y = affine(merge(attend(q, k, v, seen, d**-0.5)), t, f"{b}.attention.output.dense")
        x = norm(x + y, f"{b}.attention.output.LayerNorm")
        y = gelu(affine(x, t, f"{b}.intermediate.dense"))
        x = norm(x + affine(y, t, f"{b}.output.dense"), f"{b}.output.LayerNorm")
        out[f"hidden.{i + 1}"] = x
    if c["architectures"] == ["ElectraModel"]:
        return out | {"last_hidden_state": x}
    if c["architectures"] == ["ElectraForPreTraining"]:
        y = gelu(affine(x, t, "discriminator_predictions.dense"))
        y = affine(y, t, "discriminator_predictions.dense_prediction")
        return out | {"logits": y[..., 0]}
    y = norm(gelu(affine(x, t, "generator_predictions.dense")), "generator_predictions.LayerNorm")
    return out | {"logits": y @ table.T + t["generator_lm_head.bias"]}
