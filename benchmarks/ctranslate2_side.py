"""CTranslate2: its own specifications of BERT and of GPT-2, filled with our weights.

Its layouts are those of its converters of Transformers' checkpoints. May import: sides;
CTranslate2.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2.specs import common_spec, transformer_spec
from sides import CONFIG, WEIGHTS, Forward, Job, NDArray, Renamed

Weights = Mapping[str, NDArray]


def side(job: Job) -> Forward:
    """An encoder, or a generator, which also picks the next token."""
    sizes = json.loads((job.folder / CONFIG).read_text())
    with np.load(job.folder / WEIGHTS) as found, tempfile.TemporaryDirectory() as folder:
        made = encoder if job.task == "forward" else decoder
        spec: Any = made(sizes, Renamed(found))
        spec.register_vocabulary(map(str, range(sizes["vocabulary"])))
        spec.config.unk_token = spec.config.bos_token = spec.config.eos_token = "0"
        spec.validate()
        spec.optimize(quantization="float32")
        spec.save(folder)
        kind = ctranslate2.Encoder if job.task == "forward" else ctranslate2.Generator
        model: Any = kind(folder, intra_threads=job.threads, compute_type="float32")
    return (encode if job.task == "forward" else step)(model, job)


def encode(model: Any, job: Job) -> Forward:
    """The last hidden state, and the pooler's output where there is one."""
    given = job.arrays()
    ids = ctranslate2.StorageView.from_array(given["input_ids"].astype(np.int32))
    mask = given["attention_mask"].sum(axis=1, dtype=np.int32)
    lengths, types = ctranslate2.StorageView.from_array(mask), given["token_type_ids"].tolist()

    def forward() -> NDArray:
        return np.asarray(model.forward_batch(ids, lengths, types).last_hidden_state)

    return forward


def step(model: Any, job: Job) -> Forward:
    """The next token's logits: behind a prompt, or behind one that was computed before and is kept
    as a "static prompt"."""
    ids, prompt = (
        [list(map(str, row)) for row in a] for a in (job.arrays()["input_ids"], job.prompt())
    )
    settings = {
        "max_length": 1,
        "include_prompt_in_result": False,
        "return_logits_vocab": True,
        "static_prompt": prompt[0] or None,
    }

    def forward() -> NDArray:
        found = model.generate_batch(ids, **settings)
        return np.stack([np.asarray(each.logits[0][0]) for each in found])

    return forward


def encoder(sizes: Mapping[str, int], weights: Weights) -> Any:
    """BERT, Devlin et al. 2018."""
    spec = transformer_spec.TransformerEncoderSpec(
        sizes["layers"],
        sizes["heads"],
        pre_norm=False,
        activation=common_spec.Activation.GELU,
        layernorm_embedding=True,
        num_source_embeddings=2,
        embeddings_merge=common_spec.EmbeddingsMerge.ADD,
    )
    spec.embeddings[0].weight = weights["tokens"]
    spec.embeddings[1].weight = weights["token_types"]
    norm(spec.layernorm_embedding, weights, "norm")
    fill(spec, weights)
    whole: Any = transformer_spec.TransformerEncoderModelSpec(
        spec, pooling_layer="pooler.dense.weight" in weights
    )
    if "pooler.dense.weight" in weights:
        linear(whole.pooler_dense, weights, "pooler.dense")
    whole.config.layer_norm_epsilon = 1e-12
    return whole


def decoder(sizes: Mapping[str, int], weights: Weights) -> Any:
    """GPT-2, Radford et al. 2019."""
    whole: Any = transformer_spec.TransformerDecoderModelSpec.from_config(
        sizes["layers"], sizes["heads"], activation=common_spec.Activation.GELUTanh
    )
    spec = whole.decoder
    spec.embeddings.weight = spec.projection.weight = weights["tokens"]
    norm(spec.layer_norm, weights, "final_norm")
    fill(spec, weights)
    return whole


def fill(spec: Any, weights: Weights) -> None:
    """What both have."""
    spec.scale_embeddings = False
    spec.position_encodings.encodings = weights["positions"]
    for i, layer in enumerate(spec.layer):
        linear(layer.self_attention.linear[0], weights, f"{i}.q", f"{i}.k", f"{i}.v")
        linear(layer.self_attention.linear[1], weights, f"{i}.out")
        norm(layer.self_attention.layer_norm, weights, f"{i}.attention_norm")
        linear(layer.ffn.linear_0, weights, f"{i}.up")
        linear(layer.ffn.linear_1, weights, f"{i}.down")
        norm(layer.ffn.layer_norm, weights, f"{i}.ffn_norm")


def linear(spec: Any, weights: Weights, *names: str) -> None:
    """One or several products side by side; weights are [out, in] there."""
    spec.weight = np.concatenate([weights[f"{name}.weight"].T for name in names])
    spec.bias = np.concatenate([weights[f"{name}.bias"] for name in names])


def norm(spec: Any, weights: Weights, name: str) -> None:
    """A layer norm."""
    spec.gamma, spec.beta = weights[f"{name}.scale"], weights[f"{name}.bias"]
