"""Checkpoints that vary from the recorded cases in what is seldom varied, and so that a recorded
reference, or a line of NumPy, still says what comes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.checkpoints import CASES, NDArray, copy_case, import_model, reference
from helpers.tolerance import TRANSFORMERS, assert_within
from safetensors.numpy import load_file

import tfgraph
from tfgraph.hf import import_checkpoint


def run(folder: Path, file: Path, inputs: dict[str, NDArray]) -> dict[str, NDArray]:
    """Outputs and hidden states on NumPy."""
    model = import_model(folder, file, hidden_states=True)
    return tfgraph.compile(model.graph, "numpy", weights=model.weights)(**inputs)


@pytest.mark.parametrize("tied", [True, False])
def test_three_tables_of_tokens(tmp_path: Path, tied: bool) -> None:
    """Each stack has a table of its own, with the rows of the shared one in another order, and the
    head is tied to the shared one, or has its own: other ids, the same logits."""
    shared = load_file(CASES / "marian" / "model.safetensors")["model.shared.weight"]
    rng = np.random.default_rng(1)
    orders = {name: rng.permutation(len(shared)) for name in ("encoder", "decoder")}
    tables = {f"model.{n}.embed_tokens.weight": shared[order] for n, order in orders.items()}
    inputs = reference("marian", "in")
    for name, key in (("encoder", "input_ids"), ("decoder", "decoder_input_ids")):
        inputs[key] = np.argsort(orders[name])[inputs[key]]
    tables |= {} if tied else {"lm_head.weight": shared}
    folder = copy_case(
        "marian",
        tmp_path / "own",
        config={"share_encoder_decoder_embeddings": tied, "tie_word_embeddings": tied},
        rename=lambda name: name if tied or name != "model.shared.weight" else None,
        add=tables,
    )
    got = run(folder, tmp_path / "m.yaml", inputs)["logits"]
    assert_within(got, reference("marian", "out")["logits"], TRANSFORMERS)


def test_copies_of_the_table_are_no_tables(tmp_path: Path) -> None:
    shared = load_file(CASES / "marian" / "model.safetensors")["model.shared.weight"]
    copies = (f"model.{name}.embed_tokens.weight" for name in ("encoder", "decoder"))
    folder = copy_case("marian", tmp_path / "own", add=dict.fromkeys(copies, shared))
    model = import_model(folder, tmp_path / "m.yaml")
    assert "embeddings.tokens" in {p.value.name for p in model.graph.params}


def test_scores_scaled_otherwise(tmp_path: Path) -> None:
    """GPT-2 that does not scale by the size of a head, but divides by the number of the layer; its
    queries are as much larger or smaller, so that scores are the recorded ones."""
    tensors = load_file(CASES / "gpt2" / "model.safetensors")
    own: dict[str, NDArray] = {}
    for layer in (0, 1):
        for part in ("weight", "bias"):
            name = f"transformer.h.{layer}.attn.c_attn.{part}"
            factor = np.ones(96, np.float32)
            factor[:32] = (layer + 1) / np.sqrt(8)
            own[name] = tensors[name] * factor
    config = {"scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True}
    folder = copy_case("gpt2", tmp_path / "s", config=config, add=own)
    inputs = reference("gpt2", "in")
    got, real = run(folder, tmp_path / "m.yaml", inputs)["logits"], inputs["attention_mask"] == 1
    assert_within(got[real], reference("gpt2", "out")["logits"][real], TRANSFORMERS)


def test_whisper_hears_through_gelu(tmp_path: Path) -> None:
    """Whatever the layers' activation is; and `scale_embedding` scales nothing."""
    config = {"activation_function": "relu", "scale_embedding": True}
    folder = copy_case("whisper", tmp_path / "relu", config=config)
    got = run(folder, tmp_path / "m.yaml", reference("whisper", "in"))
    want = reference("whisper", "hidden")
    for stack in ("encoder", "decoder"):
        first, later = f"{stack}.hidden.0", f"{stack}.hidden.1"
        assert_within(got[first], want[first], TRANSFORMERS)
        assert np.abs(got[later] - want[later]).max() > 100 * TRANSFORMERS


def test_mt5_never_scales_logits(tmp_path: Path) -> None:
    """T5 with a tied head does, by the root of the width."""
    config = {"model_type": "mt5", "architectures": ["MT5ForConditionalGeneration"]}
    folder = copy_case("t5", tmp_path / "mt5", config=config)
    got = run(folder, tmp_path / "m.yaml", reference("t5", "in"))["logits"]
    assert_within(got / np.sqrt(32), reference("t5", "out")["logits"], TRANSFORMERS)


@pytest.mark.parametrize(("family", "expected"), [("gemma", "relu"), ("gemma2", "silu")])
def test_which_activation_counts(tmp_path: Path, family: str, expected: str) -> None:
    """Where config.json names two, the first Gemma takes `hidden_act`."""
    config = {
        "model_type": family,
        "architectures": [f"{family.title()}Model"],
        "hidden_act": "relu",
        "hidden_activation": "silu",
    }
    extra = (
        ("pre_feedforward_layernorm", "post_feedforward_layernorm") if family == "gemma2" else ()
    )
    norms = {f"model.layers.{i}.{n}.weight": np.ones(32, np.float32) for i in (0, 1) for n in extra}
    folder = copy_case("gemma", tmp_path / "g", config=config, add=norms)
    assert f"\nactivation: {expected} " in import_checkpoint(folder)


def test_what_config_leaves_out_is_what_transformers_takes(tmp_path: Path) -> None:
    """A window where there are more positions; caps, unless they are null."""
    config: dict[str, Any] = {"sliding_window": None}
    assert "window" not in import_checkpoint(copy_case("mistral", tmp_path / "m", config=config))
    config["max_position_embeddings"] = 4097
    found = import_checkpoint(copy_case("mistral", tmp_path / "m", config=config))
    assert "{kind: window, left: 4095}" in found
    names = ("pre_feedforward_layernorm", "post_feedforward_layernorm")
    norms = {f"model.layers.{i}.{n}.weight": np.ones(32, np.float32) for i in (0, 1) for n in names}
    config = {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"]}
    folder = copy_case("gemma", tmp_path / "g", config=config, add=norms)
    found = import_checkpoint(folder)
    assert "softcap: 50" in found
    assert "softcap: 30" in found
    file = folder / "config.json"
    caps = {"attn_logit_softcapping": None, "final_logit_softcapping": None}
    file.write_text(json.dumps(json.loads(file.read_text()) | caps))
    assert "softcap" not in import_checkpoint(folder)


def test_albert_always_projects(tmp_path: Path) -> None:
    """Embeddings as wide as the stack too."""
    rng = np.random.default_rng(2)
    tensors = load_file(CASES / "albert" / "model.safetensors")
    narrow = [n for n, t in tensors.items() if ".embeddings." in n and t.shape[-1] == 16]
    wide = {n: rng.normal(size=(*tensors[n].shape[:-1], 32)).astype(np.float32) for n in narrow}
    name = "albert.encoder.embedding_hidden_mapping_in.weight"
    wide[name] = rng.normal(size=(32, 32)).astype(np.float32) / 6
    folder = copy_case(
        "albert",
        tmp_path / "wide",
        config={"embedding_size": 32, "architectures": ["AlbertModel"]},
        rename=lambda name: name if name.startswith("albert.") else None,
        add=wide,
    )
    inputs = reference("albert", "in")
    inputs["token_type_ids"] = np.zeros_like(inputs["input_ids"])
    t = {n.removeprefix("albert.embeddings."): x.astype(np.float64) for n, x in wide.items()}
    ids = inputs["input_ids"]
    x = t["word_embeddings.weight"][ids] + t["position_embeddings.weight"][: ids.shape[1]]
    x += t["token_type_embeddings.weight"][0]
    x -= x.mean(-1, keepdims=True)
    x *= t["LayerNorm.weight"] / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-12)
    want = (x + t["LayerNorm.bias"]) @ t[name].T + tensors[name.replace("weight", "bias")]
    got = run(folder, tmp_path / "m.yaml", inputs)["hidden.0"]
    assert_within(got, want, TRANSFORMERS)
