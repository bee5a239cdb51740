"""What is wrong with a checkpoint is said with file and key."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.checkpoints import CASES, NAMES, copy_case, import_model

from tfgraph.errors import TfgraphError, render
from tfgraph.hf import import_checkpoint


def error_of(folder: Path) -> str:
    """The error, as it is printed, without the folder's name; the folder is left as it was."""
    before = sorted(folder.rglob("*"))
    with pytest.raises(TfgraphError) as caught:
        import_checkpoint(folder, folder / "model.yaml")
    assert sorted(folder.rglob("*")) == before
    return render(caught.value).replace(f"{folder}/", "")


def test_no_config(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    assert error_of(folder) == (
        f"error: {folder} has no config.json\n"
        "hint: expected a folder that transformers saved: config.json and model.safetensors"
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{\n  "model_type": bert\n}', "config.json:2:17: error: not JSON: Expecting value"),
        ("[]", "config.json: error: config.json is not an object"),
        ("[" * 100_000, "config.json: error: not JSON: maximum recursion depth exceeded"),
        ("{}", "config.json: error: model_type is missing"),
        (b'{"model_type": "\xff"}', "config.json: error: not JSON: 'utf-8' codec can't decode"),
        (
            b" " * 5_000_000,
            "config.json: error: cannot read config.json: it has 5000000 bytes; at most",
        ),
    ],
    ids=["not JSON", "a list", "too deep", "empty", "not UTF-8", "too large"],
)
def test_config_is_no_config(tmp_path: Path, content: str | bytes, expected: str) -> None:
    data = content.encode() if isinstance(content, str) else content
    (tmp_path / "config.json").write_bytes(data)
    assert error_of(tmp_path).startswith(expected)


def test_an_unknown_architecture(tmp_path: Path) -> None:
    folder = copy_case("bert", tmp_path / "c", config={"model_type": "mamba"})
    line = lines(folder, "model_type")
    found = error_of(folder)
    assert found.startswith(
        f"config.json:{line}:17: error: model_type: 'mamba' is not supported"
        '\n      "model_type": "mamba",\n'
        "                    ^\n"
        "hint: supported: albert, bart, bert, bloom, "
    )
    assert found.endswith(", t5, vit, whisper; a plugin can add others")


@pytest.mark.parametrize(
    ("case", "config", "column", "message"),
    [
        ("bert", {"position_embedding_type": "relative_key"}, 30,
         '"relative_key" is not supported, expected "absolute"'),
        ("bert", {"is_decoder": True}, 17, "true is not supported, expected false"),
        ("albert", {"num_hidden_groups": 2}, 24, "2 is not supported, expected 1"),
        ("bert", {"quantization_config": {"bits": 4}}, 26,
         '{"bits": 4} is not supported, expected null'),
        ("bert", {"hidden_act": "mish"}, 17, 'unknown activation "mish"'),
        ("bert", {"hidden_size": "32"}, 18, 'expected an integer from 1 on, got "32"'),
        ("bert", {"hidden_size": True}, 18, "expected an integer from 1 on, got true"),
        ("bert", {"num_hidden_layers": 0}, 24, "expected an integer from 1 on, got 0"),
        ("roberta", {"pad_token_id": -1}, 19, "expected an integer from 0 on, got -1"),
        ("roberta", {"max_position_embeddings": 2}, 30, "leaves no row for a position"),
        ("bert", {"layer_norm_eps": "tiny"}, 21, 'expected a number, got "tiny"'),
        ("bert", {"architectures": ["BertForMultipleChoice"]}, 20,
         "'BertForMultipleChoice' is not supported"),
        ("gpt2", {"add_cross_attention": True}, 26, "true is not supported, expected false"),
        ("marian", {"decoder_vocab_size": 7}, 25, "expected that of the encoder, vocab_size"),
        ("modernbert", {"layer_types": ["full_attention", "chunked"]}, 18,
         "expected a list of full_attention and sliding_attention"),
        ("deberta_v2", {"pos_att_type": ["p2p"]}, 19, "expected c2p, p2c, or both"),
        ("vit", {"patch_size": 5}, 17, "expected squares of which an image has whole ones"),
        ("t5", {"feed_forward_proj": "gated-mish"}, 24, 'unknown activation "mish"'),
        ("llama", {"rope_scaling": "linear"}, 19, "expected an object"),
        ("llama", {"rope_parameters": [1]}, 22, "expected an object"),
        ("qwen2", {"num_key_value_heads": "2"}, 26, 'expected an integer from 1 on, got "2"'),
    ],
)  # fmt: skip
def test_unsupported_values(
    tmp_path: Path, case: str, config: dict[str, Any], column: int, message: str
) -> None:
    folder = copy_case(case, tmp_path / "c", config=config)
    (key,) = config
    expected = f"config.json:{lines(folder, key)}:{column}: error: {key}: {message}\n"
    assert error_of(folder).startswith(expected)


def lines(folder: Path, key: str) -> int:
    """The line of a key in config.json, from 1 on."""
    text = (folder / "config.json").read_text().splitlines()
    return next(i for i, line in enumerate(text, 1) if f'"{key}"' in line)


def test_positions_that_are_not_supported(tmp_path: Path) -> None:
    config = {"rope_parameters": {"rope_type": "axial", "rope_theta": 10000}}
    folder = copy_case("llama", tmp_path / "c", config=config)
    assert error_of(folder).startswith(
        f"config.json:{lines(folder, 'rope_type')}:18: error: rope_type: 'axial' is not supported, "
        "expected default, linear, llama3, yarn, longrope or dynamic"
    )


def test_what_else_is_missing_or_left_over(tmp_path: Path) -> None:
    """In a stack of another depth, and among experts."""

    def rename(name: str) -> str | None:
        return None if name.startswith("model.encoder.layers.1.fc1") else name

    folder = copy_case("whisper", tmp_path / "w", rename=rename)
    assert error_of(folder).count("has no tensor 'model.encoder.layers.1.fc1.") == 2
    folder = copy_case("whisper", tmp_path / "d", config={"decoder_layers": 1})
    assert "model.safetensors: 'model.decoder.layers.1." in read_error(folder)
    folder = copy_case("mixtral", tmp_path / "m", config={"num_local_experts": 5})
    assert error_of(folder).count("block_sparse_moe.experts.4.") == 6


def test_a_missing_key(tmp_path: Path) -> None:
    folder = copy_case("bert", tmp_path / "c", config={"hidden_size": None})
    assert error_of(folder) == "config.json: error: hidden_size is missing"


def test_pickles_are_refused(tmp_path: Path) -> None:
    folder = copy_case("bert", tmp_path / "c")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert error_of(folder) == (
        "pytorch_model.bin: error: pytorch_model.bin is a pickle, which can run code when it is "
        "read: refused\n"
        "hint: convert it once with safetensors.torch.save_file(torch.load(..., "
        "weights_only=True), 'model.safetensors')"
    )


def test_no_weights(tmp_path: Path) -> None:
    folder = copy_case("bert", tmp_path / "c")
    (folder / "model.safetensors").unlink()
    assert error_of(folder) == (
        f"error: {folder} has no model.safetensors\n"
        "hint: weights are read from model.safetensors, or from shards with "
        "model.safetensors.index.json"
    )


def test_truncated_weights(tmp_path: Path) -> None:
    folder = copy_case("bert", tmp_path / "c")
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert error_of(folder).startswith("model.safetensors: error: model.safetensors is truncated: ")
    file.write_bytes(whole[:100])
    assert error_of(folder) == (
        "model.safetensors: error: model.safetensors is not a safetensors file, or is truncated: "
        "it has 100 bytes"
    )


def test_missing_tensors_are_all_named(tmp_path: Path) -> None:
    def rename(name: str) -> str | None:
        if name == "encoder.layer.1.output.dense.bias":
            return None
        return name.replace("token_type_embeddings", "tokentype_embeddings")

    assert error_of(copy_case("bert", tmp_path / "c", rename=rename)) == (
        "model.safetensors: error: model.safetensors has no tensor "
        "'embeddings.token_type_embeddings.weight'\n"
        "hint: did you mean 'embeddings.tokentype_embeddings.weight'?\n"
        "model.safetensors: error: model.safetensors has no tensor "
        "'encoder.layer.1.output.dense.bias'"
    )


def test_a_layer_too_few(tmp_path: Path) -> None:
    folder = copy_case("bert", tmp_path / "c", config={"num_hidden_layers": 3})
    found = error_of(folder)
    assert found.count("has no tensor 'encoder.layer.2.") == 16


def test_an_absurd_number_of_layers_takes_no_memory(tmp_path: Path) -> None:
    folder = copy_case("bert", tmp_path / "c", config={"num_hidden_layers": 10**12})
    tracemalloc.start()
    found = error_of(folder)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "has no tensor 'encoder.layer.2.attention.self.query.weight'" in found
    assert peak < 50e6


def test_another_model_altogether(tmp_path: Path) -> None:
    folder = copy_case("distilbert", tmp_path / "c", rename=lambda name: f"model.{name}")
    assert error_of(folder).startswith(
        "model.safetensors: error: model.safetensors has no tensor "
        "'embeddings.word_embeddings.weight', with or without 'distilbert.' before it\n"
    )


def read_error(folder: Path) -> str:
    """The error when the imported model file is read."""
    file = folder.parent / "model.yaml"
    with pytest.raises(TfgraphError) as caught:
        import_model(folder, file)
    return render(caught.value).replace(f"{folder.parent}/", "")


def test_a_tensor_of_another_shape(tmp_path: Path) -> None:
    name = "encoder.layer.1.intermediate.dense.weight"
    folder = copy_case("bert", tmp_path / "c", add={name: np.ones((63, 32), np.float32)})
    found = read_error(folder)
    where, message = found.split("\n")[0].split(": error: ")
    line = next(
        i
        for i, text in enumerate((tmp_path / "model.yaml").read_text().splitlines(), 1)
        if text.startswith("    layers.{i}.ffn.up.weight: ")
    )
    assert where == f"model.yaml:{line}:31"
    assert message == (
        f"model.safetensors: '{name}' is [32, 63] after its rule, expected [32, 64], "
        "which the parameter 'layers.1.ffn.up.weight' comes from"
    )


def test_tensors_that_nothing_uses(tmp_path: Path) -> None:
    folder = copy_case("bert", tmp_path / "c", config={"num_hidden_layers": 1})
    assert "model.safetensors: 'encoder.layer.1.attention.output.LayerNorm.bias', " in read_error(
        folder
    )


def test_the_cases_have_no_errors(tmp_path: Path) -> None:
    for case in NAMES:
        import_model(CASES / case, tmp_path / "model.yaml")


def test_the_command_line_writes_nothing_on_an_error(tmp_path: Path) -> None:
    folder = copy_case("bert", tmp_path / "c", config={"model_type": "mamba"})
    output = tmp_path / "out" / "model.yaml"
    output.parent.mkdir()
    command = [sys.executable, "-m", "tfgraph", "import", "hf", str(folder), "-o", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"{folder}/config.json:")
    assert "Traceback" not in done.stderr
    assert list(output.parent.iterdir()) == []
