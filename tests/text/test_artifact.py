"""A model file's tokenizer and stop tokens travel into the artifact, and are what it generates
with."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from helpers.artifacts import contents, edit_manifest
from helpers.small_tokenizers import byte_level, sentence_piece, word_level
from helpers.text_models import as_before, write_decoder, write_encoder, write_encoder_decoder
from helpers.tolerance import assert_close
from tokenizers import Tokenizer, models

import tfgraph
from tfgraph.errors import TfgraphError
from tfgraph.runtime import format as layout
from tfgraph.runtime.text import TokenRules, largest_id

if TYPE_CHECKING:
    from collections.abc import Callable

PROMPT = "the cat"
STOP = "generation: {stop: [299, 7]}\n"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_decoder(tmp_path_factory.mktemp("text"), STOP)


@pytest.fixture(scope="module")
def artifact(file: Path) -> Path:
    made = tfgraph.build(file, output=file.parent / "speaker.tfgraph", check=False).artifact
    assert made is not None
    return made


def test_the_artifact_holds_the_tokenizer_byte_for_byte(file: Path, artifact: Path) -> None:
    held = (artifact / "tokenizer.json").read_bytes()
    assert held == (file.parent / "tokenizer.json").read_bytes()
    manifest = layout.read_manifest(artifact)
    assert "tokenizer.json" in manifest["files"]
    rules = {"start": [], "stop": [299, 7], "suppress": [], "suppress_first": []}
    assert manifest["generation"] == rules
    assert manifest["format"] == 1


def test_the_same_bytes_from_another_folder(artifact: Path, file: Path, tmp_path: Path) -> None:
    """Of a tokenizer by another name and path, and when `compile` writes it."""
    moved = tmp_path / "other.json"
    shutil.copy(file.parent / "tokenizer.json", moved)
    again = tmp_path / file.name
    again.write_text(file.read_text().replace("tokenizer.json", str(moved)))
    with tfgraph.compile(again, output=tmp_path / "again.tfgraph") as model:
        assert model.functions.keys() == {"step"}
    found = contents(tmp_path / "again.tfgraph")
    expected = contents(artifact)
    assert layout.read_manifest(tmp_path / "again.tfgraph")["verification"]["ok"]
    assert found.pop(layout.MANIFEST) != expected.pop(layout.MANIFEST)  # that it was verified
    assert found == expected


def test_a_damaged_tokenizer_is_refused_by_name(artifact: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(artifact, tmp_path / "copy.tfgraph")
    path = copy / "tokenizer.json"
    path.write_bytes(path.read_bytes()[:-1] + b" ")
    with pytest.raises(TfgraphError, match=r"tokenizer.json: damaged: its hash does not match"):
        tfgraph.load(copy)
    path.unlink()
    with pytest.raises(TfgraphError, match=r"tokenizer.json: No such file"):
        tfgraph.load(copy)


def test_text_in_and_out_of_what_is_loaded_and_compiled(file: Path, artifact: Path) -> None:
    ids = byte_level().encode(PROMPT).ids
    inputs = {"input_ids": np.array([ids])}
    with tfgraph.load(artifact) as loaded:
        for model in (loaded, tfgraph.compile(file, "numpy")):
            assert model.generation == TokenRules((), (299, 7))
            assert model.tokenizer.encode(PROMPT) == ids
            assert model.tokenizer is model.tokenizer
            made = model.tokenize(PROMPT)
            np.testing.assert_equal(made, inputs)
            assert made["input_ids"].dtype == np.int64


def test_an_open_model_keeps_its_tokenizer(artifact: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(artifact, tmp_path / "copy.tfgraph")
    with tfgraph.load(copy) as model:
        (copy / "tokenizer.json").write_bytes(word_level().to_str().encode())
        assert model.tokenizer.encode(PROMPT) == byte_level().encode(PROMPT).ids


def test_stop_tokens_of_the_artifact_unless_others_are_given(
    artifact: Path, tmp_path: Path
) -> None:
    with tfgraph.load(artifact) as model:
        free = list(model.generate([5, 6], max_tokens=9, stop=()))
    assert len(free) == 9
    third = free.index(free[2]) + 1
    stops = edit_manifest(
        artifact, tmp_path / "stops.tfgraph", generation={"start": None, "stop": [free[2]]}
    )
    with tfgraph.load(stops) as model:
        assert list(model.generate([5, 6], max_tokens=9)) == free[:third]
        assert list(model.generate([5, 6], max_tokens=9, stop=[free[0]])) == free[:1]
        assert list(model.generate([5, 6], max_tokens=9, stop=())) == free
        with pytest.raises(TfgraphError, match="speaker is no encoder-decoder: it has no prefix"):
            model.generate([5, 6], prefix=[1])


def test_an_artifact_from_before_there_were_tokenizers(artifact: Path, tmp_path: Path) -> None:
    with tfgraph.load(as_before(artifact, tmp_path / "old.tfgraph")) as model:
        assert model.generation == TokenRules()
        assert len(list(model.generate([5, 6], max_tokens=4))) == 4
        with pytest.raises(TfgraphError, match="speaker has no tokenizer") as caught:
            model.tokenizer.encode("a")
    assert caught.value.hint is not None
    assert "tokenizer: tokenizer.json" in caught.value.hint


@pytest.mark.parametrize("write", [write_decoder, write_encoder_decoder, write_encoder])
def test_a_tokenizer_with_more_tokens_than_the_model(
    write: Callable[[Path], Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An added token counts as well."""
    file, tokenizer = write(tmp_path), byte_level() if write is write_decoder else word_level()
    size = tokenizer.get_vocab_size()
    tfgraph.compile(file, "numpy")
    assert not caplog.messages
    more = Tokenizer.from_str(tokenizer.to_str())
    more.add_tokens(["<more>"])
    (tmp_path / "tokenizer.json").write_text(more.to_str())
    tfgraph.compile(file, "numpy")
    assert caplog.messages == [
        f"speaker: its tokenizer gives ids up to {size}, and the model takes 0 to {size - 1}: "
        "texts with others are refused"
    ]


def test_the_largest_id_of_a_tokenizer() -> None:
    unigram = Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0), ("b", -2.0)], unk_id=0))
    for made in (byte_level(), sentence_piece(), word_level(), unigram):
        assert largest_id(made.to_str().encode()) == made.get_vocab_size() - 1
    for unknown in (b"", b"[]", b"{}", b'{"model": {"vocab": 3}}', b"\xff"):
        assert largest_id(unknown) is None


def test_texts_of_an_encoder_decoder(tmp_path: Path) -> None:
    """Several are padded behind; the target begins with the start token."""
    file = write_encoder_decoder(tmp_path, "generation: {start: 3, stop: 2}\n")
    model = tfgraph.compile(file, "numpy")
    assert model.generation == TokenRules((3,), (2,))
    made = model.tokenize(["the cat sat", "the"], prefix="on mat")
    assert {name: array.tolist() for name, array in made.items()} == {
        "input_ids": [[2, 4, 5, 6, 3], [2, 4, 3, 0, 0]],
        "attention_mask": [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]],
        "decoder_input_ids": [[3, 7, 8], [3, 7, 8]],
    }
    assert model.tokenize("the")["decoder_input_ids"].tolist() == [[3]]
    assert model.tokenize("the cat sat", limit=4)["input_ids"].tolist() == [[2, 4, 5, 3]]
    free = list(model.generate([2, 4, 3], max_tokens=6, stop=()))
    assert free == list(model.generate([2, 4, 3], max_tokens=6, stop=(), prefix=[3]))
    assert free != list(model.generate([2, 4, 3], max_tokens=6, stop=(), prefix=[0]))


def test_a_target_begins_with_several_tokens(tmp_path: Path) -> None:
    file = write_encoder_decoder(tmp_path, "generation: {start: [3, 5], suppress: 6}\n")
    model = tfgraph.compile(file, "numpy")
    assert model.tokenize("the", prefix="on")["decoder_input_ids"].tolist() == [[3, 5, 7]]
    free = list(model.generate([2, 4, 3], max_tokens=6, stop=()))
    assert free == list(model.generate([2, 4, 3], max_tokens=6, stop=(), prefix=[3, 5]))


def test_texts_of_an_encoder(tmp_path: Path) -> None:
    model = tfgraph.compile(write_encoder(tmp_path), "numpy")
    made = model.tokenize(["the", "the cat"])
    assert made.keys() == {port.name for port in model.inputs}
    assert made["token_type_ids"].tolist() == [[0, 0, 0, 0], [0, 0, 0, 0]]
    together = model(**made)["last_hidden_state"]
    alone = model(**model.tokenize("the"))["last_hidden_state"]
    assert_close(together[:1, :3], alone, length=64)  # padding has no part in it


def test_texts_that_are_no_inputs(file: Path) -> None:
    model = tfgraph.compile(file, "numpy")

    def refused(message: str, *texts: str, prefix: str | None = None) -> str | None:
        with pytest.raises(TfgraphError, match=message) as caught:
            model.tokenize(texts, prefix=prefix)
        return caught.value.hint

    hint = refused("texts of 1 and 3 tokens, and speaker has no mask", "the", "the cat")
    assert hint == "run each alone, or compile it with mask: padding"
    refused("no encoder-decoder: it has no target, and no prefix", "the", prefix="a")
    refused("a text has no tokens", "")
    refused("expected at least one text")
    with tfgraph.graph("plain") as g:
        g.output("y", g.input("x", "f32", 2))
    with pytest.raises(TfgraphError, match="plain takes no text: it has no input 'input_ids'"):
        tfgraph.compile(g.build(), "numpy").tokenize("the")
