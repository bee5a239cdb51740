"""What an import says about text: the tokenizer that lies in the folder, and the tokens at which
generation starts and stops."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from helpers.checkpoints import copy_case
from helpers.small_tokenizers import word_level

import tfgraph
from tfgraph.errors import TfgraphError
from tfgraph.hf import import_checkpoint
from tfgraph.hf.config import read_config
from tfgraph.hf.text import text_keys
from tfgraph.model import read_model

if TYPE_CHECKING:
    from pathlib import Path


def test_a_tokenizer_in_the_folder(tmp_path: Path) -> None:
    folder = copy_case("bert", tmp_path / "c")
    file = tmp_path / "model.yaml"
    before = import_checkpoint(folder, file)
    (folder / "tokenizer.json").write_text(word_level().to_str())
    text = import_checkpoint(folder, file)
    assert text == before + "\ntokenizer: c/tokenizer.json\n"
    file.write_text(text)
    assert read_model(file).tokenizer == (folder / "tokenizer.json").resolve()
    assert import_checkpoint(folder).endswith(f"\ntokenizer: {folder.resolve()}/tokenizer.json\n")


def test_what_was_read_outlives_the_folder_of_the_model_file(tmp_path: Path) -> None:
    """Weights and tokenizer, both named by paths from that folder."""
    folder = copy_case("bert", tmp_path / "c")
    (folder / "tokenizer.json").write_text(word_level().to_str())
    file = tmp_path / "gone" / "model.yaml"
    file.parent.mkdir()
    file.write_text(import_checkpoint(folder, file))
    assert "tokenizer: ../c/tokenizer.json\n" in file.read_text()
    source = tfgraph.load_source(str(file))
    shutil.rmtree(file.parent)
    model = tfgraph.compile(source, "numpy")
    assert model(**model.tokenize("the cat"))["pooler_output"].shape == (1, 32)


@pytest.mark.parametrize(
    ("kind", "config", "generation", "expected"),
    [
        ("decoder", {"eos_token_id": 2}, None, "{stop: [2]}"),
        ("decoder", {"eos_token_id": 2}, {"eos_token_id": [3, 4]}, "{stop: [3, 4]}"),
        ("decoder", {"eos_token_id": 2}, {"eos_token_id": None}, "{stop: [2]}"),
        ("decoder", {"eos_token_id": 2, "decoder_start_token_id": 1}, None, "{stop: [2]}"),
        # A decoder's start token is the tokenizer's; ids beyond the vocabulary never come.
        ("decoder", {"bos_token_id": 1, "eos_token_id": [9, 50256]}, None, "{stop: [9]}"),
        ("decoder", {"eos_token_id": 10}, None, ""),
        ("decoder", {}, None, ""),
        ("encoder-decoder", {"eos_token_id": 1}, {"decoder_start_token_id": 0},
         "{start: 0, stop: [1]}"),
        ("encoder-decoder", {"decoder_start_token_id": 2}, None, "{start: 2}"),
        ("encoder", {"eos_token_id": 2}, None, ""),
        # What stands in the target before anything is generated: a forced first token, or tokens
        # at places, up to one that the user chooses.
        ("encoder-decoder", {"decoder_start_token_id": 2, "forced_bos_token_id": 0}, None,
         "{start: [2, 0]}"),
        ("encoder-decoder", {"decoder_start_token_id": 2},
         {"forced_decoder_ids": [[1, 4], [2, 5], [4, 6]]}, "{start: [2, 4, 5]}"),
        ("encoder-decoder", {"decoder_start_token_id": 2},
         {"forced_decoder_ids": [[1, None], [2, 5]]}, "{start: 2}"),
        ("encoder-decoder", {"bad_words_ids": [[9], [1, 2], [11]]}, None, "{suppress: [9]}"),
        ("decoder", {"suppress_tokens": [1, 2, 1]}, {"begin_suppress_tokens": [3]},
         "{suppress: [1, 2], suppress_first: [3]}"),
    ],
)  # fmt: skip
def test_where_generation_starts_and_stops(
    tmp_path: Path,
    kind: str,
    config: dict[str, Any],
    generation: dict[str, Any] | None,
    expected: str,
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    values = {"kind": kind, "vocabulary": 10, "head.kind": "lm"}
    found = text_keys(read_config(tmp_path), values, str)
    assert found == (f"\ngeneration: {expected}\n" if expected else "")
    if expected:
        file = tmp_path / "model.yaml"
        file.write_text(f"layers: 1\nwidth: 8\nkind: {kind}\nvocabulary: 10\n{found}")
        read_model(file)


def test_what_is_no_id(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    file = tmp_path / "generation_config.json"
    values = {"kind": "decoder", "vocabulary": 10, "head.kind": "lm"}
    for content, column, message in (
        ('{"eos_token_id": "</s>"}', 18, 'expected an id or a list of ids, got "</s>"'),
        ('{"eos_token_id": [true]}', 18, "expected an id or a list of ids, got [true]"),
        ('{"eos_token_id": -1}', 18, "expected an id or a list of ids, got -1"),
    ):
        file.write_text(content)
        with pytest.raises(TfgraphError) as caught:
            text_keys(read_config(tmp_path), values, str)
        where = caught.value.location
        assert where is not None
        assert (where.file, where.line, where.column) == (str(file), 1, column)
        assert caught.value.message == f"eos_token_id: {message}"
    file.write_text('{"bad_words_ids": [3]}')
    with pytest.raises(TfgraphError, match=r"bad_words_ids: expected lists of ids, got \[3\]"):
        text_keys(read_config(tmp_path), values, str)
    file.write_text("[]")
    with pytest.raises(TfgraphError, match=r"generation_config\.json is not an object"):
        text_keys(read_config(tmp_path), values, str)
