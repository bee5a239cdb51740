"""The model files that checkpoints become, and checkpoints in other spellings."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from helpers.checkpoints import CASES, NDArray, copy_case, import_model, reference
from helpers.tolerance import TRANSFORMERS, assert_within
from safetensors.numpy import load_file, save_file

import tfgraph
from tfgraph.errors import TfgraphError
from tfgraph.hf import import_checkpoint, register_architecture
from tfgraph.hf.architectures import BERT
from tfgraph.model import Model, read_model


def same_weights(a: Model, b: Model) -> bool:
    first, second = a.load(), b.load()
    return first.keys() == second.keys() and all(
        np.array_equal(first[name], second[name]) for name in first
    )


@pytest.fixture
def bert(tmp_path: Path) -> Model:
    return import_model(CASES / "bert", tmp_path / "bert.yaml")


@pytest.mark.parametrize("case", ["bert", "roberta"])
def test_the_text(tmp_path: Path, golden: Callable[[str, str], None], case: str) -> None:
    folder = copy_case(case, tmp_path / case)
    golden(f"import_{case}.yaml", import_checkpoint(folder, tmp_path / "model.yaml"))


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("checkpoint/model.yaml", "model.safetensors"),
        ("model.yaml", "checkpoint/model.safetensors"),
        ("other/model.yaml", "../checkpoint/model.safetensors"),
        ("a/b/model.yaml", "{folder}/checkpoint/model.safetensors"),
        (None, "{folder}/checkpoint/model.safetensors"),
    ],
)
def test_the_path_of_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str | None, expected: str
) -> None:
    copy_case("bert", tmp_path / "checkpoint")
    monkeypatch.chdir(tmp_path)
    text = import_checkpoint(Path("checkpoint"), None if file is None else Path(file))
    assert f"  file: {expected.format(folder=tmp_path.resolve())}\n" in text
    written = tmp_path / (file or "anywhere.yaml")
    written.parent.mkdir(parents=True, exist_ok=True)
    written.write_text(text)
    monkeypatch.chdir("/")
    assert not read_model(written).seeded


def test_a_link_to_a_cache_keeps_its_name(tmp_path: Path) -> None:
    """As in the cache of huggingface_hub, whose files are links to blobs named by their hash."""
    blobs = copy_case("bert", tmp_path / "blobs")
    (blobs / "model.safetensors").rename(blobs / "0a1b2c")
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    (snapshot / "config.json").symlink_to(blobs / "config.json")
    (snapshot / "model.safetensors").symlink_to(blobs / "0a1b2c")
    text = import_checkpoint(snapshot, tmp_path / "model.yaml")
    assert "  file: snapshot/model.safetensors\n" in text


@pytest.mark.parametrize(
    "rename",
    [
        lambda name: f"bert.{name}",
        lambda name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ),
    ],
    ids=["prefix", "gamma and beta"],
)
def test_other_spellings(tmp_path: Path, bert: Model, rename: Callable[[str], str]) -> None:
    folder = copy_case("bert", tmp_path / "other", rename=rename)
    assert same_weights(bert, import_model(folder, tmp_path / "model.yaml"))


def test_shards(tmp_path: Path, bert: Model) -> None:
    folder = copy_case("bert", tmp_path / "sharded")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    files = {name: f"model-{i % 2}.safetensors" for i, name in enumerate(sorted(tensors))}
    for file in set(files.values()):
        save_file({n: t for n, t in tensors.items() if files[n] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    assert same_weights(bert, import_model(folder, tmp_path / "model.yaml"))


def test_a_checkpoint_in_bfloat16_widens_exactly(tmp_path: Path, bert: Model) -> None:
    folder = copy_case("bert", tmp_path / "half")
    tensors = load_file(folder / "model.safetensors")
    halves = {name: tensor.astype(ml_dtypes.bfloat16) for name, tensor in tensors.items()}
    save_file(halves, folder / "model.safetensors")
    found = import_model(folder, tmp_path / "model.yaml").load()
    for name, array in bert.load().items():
        assert found[name].dtype == np.float32
        assert np.array_equal(found[name], array.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_what_no_weight_is_or_another_class_uses_is_ignored(tmp_path: Path) -> None:
    """A file of BertForPreTraining, opened as the masked language model."""
    random = np.random.default_rng(0)
    case = load_file(CASES / "bert_mlm" / "model.safetensors")
    extra = {
        "bert.embeddings.position_ids": np.arange(40)[None],
        "bert.pooler.dense.weight": random.normal(size=(32, 32)).astype(np.float32),
        "bert.pooler.dense.bias": np.zeros(32, np.float32),
        "cls.seq_relationship.weight": np.zeros((2, 32), np.float32),
        "cls.seq_relationship.bias": np.zeros(2, np.float32),
        "cls.predictions.decoder.weight": case["bert.embeddings.word_embeddings.weight"],
        "cls.predictions.decoder.bias": case["cls.predictions.bias"],
    }
    folder = copy_case("bert_mlm", tmp_path / "whole", add=extra)
    model = import_model(folder, tmp_path / "model.yaml")
    assert same_weights(import_model(CASES / "bert_mlm", tmp_path / "case.yaml"), model)
    text = (tmp_path / "model.yaml").read_text()
    assert text.endswith(
        '  ignore: # tensors in the file that this model has no use for\n'
        '    - "*position_ids"\n'
        '    - cls.seq_relationship.*\n'
        "    - cls.predictions.bias\n"
        '    - bert.pooler.dense.*\n'
        "    - cls.predictions.decoder.weight\n"
    )  # fmt: skip


def test_a_stack_saved_without_its_pooler(tmp_path: Path) -> None:
    folder = copy_case(
        "bert", tmp_path / "bare", rename=lambda name: None if "pooler" in name else name
    )
    model = import_model(folder, tmp_path / "model.yaml")
    assert [o.name for o in model.graph.outputs] == ["last_hidden_state"]


def run(folder: Path, file: Path, case: str) -> NDArray:
    """The logits of a checkpoint for a case's inputs."""
    model = import_model(folder, file)
    executable = tfgraph.compile(model.graph, "numpy", weights=model.weights)
    inputs = reference(case, "in")
    if any(port.name == "token_type_ids" for port in executable.inputs):
        inputs["token_type_ids"] = np.zeros_like(inputs["input_ids"])
    return executable(**inputs)["logits"]


def normal(*shape: int) -> NDArray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


# The heads without a case of their own are computed here from a case's hidden states.


def test_bert_for_sequence_classification(tmp_path: Path) -> None:
    weight, bias = normal(5, 32), normal(5)
    folder = copy_case(
        "bert",
        tmp_path / "classifier",
        config={
            "architectures": ["BertForSequenceClassification"],
            "id2label": {str(i): f"L{i}" for i in range(5)},
        },
        rename=lambda name: f"bert.{name}",
        add={"classifier.weight": weight, "classifier.bias": bias},
    )
    want = reference("bert", "out")["pooler_output"] @ weight.T + bias
    assert_within(run(folder, tmp_path / "model.yaml", "bert"), want, TRANSFORMERS)


def test_roberta_for_sequence_classification(tmp_path: Path) -> None:
    dense, out = (normal(32, 32), normal(32)), (normal(4, 32), normal(4))
    folder = copy_case(
        "roberta",
        tmp_path / "classifier",
        config={"architectures": ["RobertaForSequenceClassification"], "num_labels": 4},
        rename=lambda name: None if name.startswith("lm_head") else name,
        add={
            "classifier.dense.weight": dense[0],
            "classifier.dense.bias": dense[1],
            "classifier.out_proj.weight": out[0],
            "classifier.out_proj.bias": out[1],
        },
    )
    first = reference("roberta", "hidden")["hidden.2"][:, 0]
    want = np.tanh(first @ dense[0].T + dense[1]) @ out[0].T + out[1]
    assert_within(run(folder, tmp_path / "model.yaml", "roberta"), want, TRANSFORMERS)


def test_albert_for_sequence_classification(tmp_path: Path) -> None:
    dense, out = (normal(32, 32), normal(32)), (normal(2, 32), normal(2))
    folder = copy_case(
        "albert",
        tmp_path / "classifier",
        config={"architectures": ["AlbertForSequenceClassification"]},
        rename=lambda name: None if name.startswith("predictions") else name,
        add={
            "albert.pooler.weight": dense[0],
            "albert.pooler.bias": dense[1],
            "classifier.weight": out[0],
            "classifier.bias": out[1],
        },
    )
    first = reference("albert", "hidden")["hidden.2"][:, 0]
    want = np.tanh(first @ dense[0].T + dense[1]) @ out[0].T + out[1]
    assert_within(run(folder, tmp_path / "model.yaml", "albert"), want, TRANSFORMERS)


@pytest.mark.parametrize("tied", [False, True])
def test_a_head_that_is_not_tied(tmp_path: Path, tied: bool) -> None:
    """Twice the table as the decoder's weight, and its own bias: twice the logits; whatever
    config.json says, as the file has both."""
    tensors = load_file(CASES / "bert_mlm" / "model.safetensors")
    decoder = 2 * tensors["bert.embeddings.word_embeddings.weight"]
    folder = copy_case(
        "bert_mlm",
        tmp_path / "untied",
        config={"tie_word_embeddings": tied},
        add={
            "cls.predictions.decoder.weight": decoder,
            "cls.predictions.decoder.bias": 2 * tensors["cls.predictions.bias"],
        },
    )
    want = 2 * reference("bert_mlm", "out")["logits"]
    real = reference("bert_mlm", "in")["attention_mask"].astype(bool)
    got = run(folder, tmp_path / "model.yaml", "bert_mlm")
    assert_within(got[real], want[real], 2 * TRANSFORMERS)


def test_distilbert_for_masked_lm(tmp_path: Path) -> None:
    dense, scale, shift = (normal(32, 32) / 6, normal(32)), normal(32), normal(32)
    bias = normal(96)
    folder = copy_case(
        "distilbert",
        tmp_path / "mlm",
        config={"architectures": ["DistilBertForMaskedLM"], "activation": "relu"},
        rename=lambda name: name if name.startswith("distilbert.") else None,
        add={
            "vocab_transform.weight": dense[0],
            "vocab_transform.bias": dense[1],
            "vocab_layer_norm.weight": scale,
            "vocab_layer_norm.bias": shift,
            "vocab_projector.bias": bias,
        },
    )
    model = import_model(folder, tmp_path / "model.yaml", hidden_states=True)
    inputs = reference("distilbert", "in")
    got = tfgraph.compile(model.graph, "numpy", weights=model.weights)(**inputs)
    hidden = np.maximum(got["hidden.2"].astype(np.float64) @ dense[0].T + dense[1], 0)
    centred = hidden - hidden.mean(-1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * scale + shift
    table = load_file(folder / "model.safetensors")["distilbert.embeddings.word_embeddings.weight"]
    assert_within(got["logits"], normed @ table.T + bias, TRANSFORMERS)


def test_a_plugin_adds_an_architecture(tmp_path: Path, bert: Model) -> None:
    """The one registered here is BERT by another name; registering it again changes nothing."""
    folder = copy_case("bert", tmp_path / "toy", config={"model_type": "toybert"})
    toy = replace(BERT, model_type="toybert", title="ToyBERT")
    assert register_architecture(toy) is register_architecture(toy)
    model = import_model(folder, tmp_path / "model.yaml")
    assert same_weights(bert, model)
    assert (tmp_path / "model.yaml").read_text().startswith("# ToyBERT (Devlin et al. 2018)")
    with pytest.raises(TfgraphError, match="the architecture 'bert' is registered already"):
        register_architecture(replace(BERT, title="Another"))


# What Hugging Face's configurations take where a key is left out.
DEFAULTS = {
    "roberta": ("pad_token_id", "padding_id: 1"),
    "bert": ("layer_norm_eps", "eps: 1e-12"),
    "distilbert": ("activation", "activation: gelu"),
}


@pytest.mark.parametrize(("case", "default"), DEFAULTS.items(), ids=DEFAULTS)
def test_a_key_left_out_takes_its_default(
    tmp_path: Path, case: str, default: tuple[str, str]
) -> None:
    key, written = default
    folder = copy_case(case, tmp_path / case)
    config = json.loads((folder / "config.json").read_text())
    config.pop(key, None)
    (folder / "config.json").write_text(json.dumps(config))
    assert written in import_checkpoint(folder, tmp_path / "model.yaml")


# Keys of config.json as earlier versions of transformers spelt them; None removes a key.
OLDER: dict[str, dict[str, object]] = {
    "llama": {
        "rope_parameters": None, "rope_theta": 10000.0, "dtype": None, "torch_dtype": "float32",
    },
    "gemma": {"use_bidirectional_attention": False},
    "phi": {"rope_parameters": None, "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    "gpt_neox": {"rope_parameters": None, "rotary_emb_base": 10000, "rotary_pct": 0.5},
    "qwen2": {"rope_parameters": None, "rope_theta": 10000, "layer_types": None},
    "mixtral": {"rope_parameters": None, "rope_theta": 1e6, "rope_scaling": None},
    "modernbert": {
        "rope_parameters": None, "layer_types": None, "global_rope_theta": 160000.0,
        "local_rope_theta": 10000.0,
    },
    "t5": {"scale_decoder_outputs": None, "dense_act_fn": None, "is_gated_act": None},
    "deberta_v2": {"pos_att_type": "p2c|c2p"},
}  # fmt: skip


@pytest.mark.parametrize("case", OLDER)
def test_older_spellings_of_a_config(tmp_path: Path, case: str) -> None:
    folder = copy_case(case, tmp_path / "new" / case)
    older = copy_case(case, tmp_path / "old" / case, config=OLDER[case])

    def text(path: Path) -> list[str]:
        lines = import_checkpoint(path, path / "model.yaml").splitlines()
        return [line.partition(" # ")[0] for line in lines]

    assert text(folder) == text(older)


def test_a_window_in_the_last_layers(tmp_path: Path) -> None:
    """Of Qwen2 and 3, if it is used at all."""
    config = {"sliding_window": 5, "max_window_layers": 1, "layer_types": None}
    folder = copy_case("qwen3", tmp_path / "c", config=config)
    assert "local" not in import_checkpoint(folder, tmp_path / "m.yaml")
    folder = copy_case("qwen3", tmp_path / "c", config=config | {"use_sliding_window": True})
    text = import_checkpoint(folder, tmp_path / "m.yaml")
    assert "local: {pattern: [full, local], left: 4}\n" in text
