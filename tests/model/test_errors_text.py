"""Tokenizers and tokens that a model file names and that do not fit, with line and column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from helpers.mistakes import FREE, SMALL, errors_of

from tfgraph.errors import TfgraphError
from tfgraph.model import read_model
from tfgraph.runtime.text import TokenRules

if TYPE_CHECKING:
    from pathlib import Path

DECODER = SMALL + "kind: decoder\nvocabulary: 9\n"
BOTH = SMALL + "kind: encoder-decoder\nvocabulary: 9\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (DECODER + "generation: {stop: [8, 9]}\n",
         "5:24: generation.stop[1]: 9 is no token, expected at most 8"),
        (DECODER + "generation: {stop: 9}\n",
         "5:20: generation.stop: 9 is no token, expected at most 8"),
        (DECODER + "generation: {stop: [-1]}\n",
         "5:21: generation.stop[0]: expected at least 0, got -1"),
        (DECODER + "generation: {stop: [end]}\n",
         "5:21: generation.stop[0]: expected an integer, got 'end'"),
        (DECODER + "generation: {stop: true}\n",
         "5:20: generation.stop: expected a list, got true"),
        (DECODER + "generation: {start: 16777216}\n",
         "5:21: generation.start: expected at most 16777215, got 16777216"),
        (DECODER + "generation: {start: 1}\n",
         "5:21: generation.start: a decoder starts with its prompt"),
        (BOTH + "generation: {start: 9}\n",
         "5:21: generation.start: 9 is no token, expected at most 8"),
        (BOTH + "generation: {begin: 1}\n", "5:14: generation.begin: unknown key"),
        (SMALL + "vocabulary: 9\ngeneration: {stop: 1}\n",
         "4:13: generation: an encoder does not generate"),
        (SMALL + "kind: decoder\ngeneration: {stop: 1}\n",
         "4:13: generation: needs vocabulary"),
        (FREE + "nodes: {}\noutputs: {y: x}\ngeneration: {stop: 1}\n",
         "5:1: generation: unknown key"),
        (SMALL + "tokenizer: 3\n", "3:12: tokenizer: expected a text, got 3"),
        (SMALL + "tokenizer: token.json\n",
         "3:12: tokenizer: token.json: No such file or directory"),
        (SMALL + "tokenizer: .\n", "3:12: tokenizer: .: Is a directory"),
        (SMALL + "tokenizer: bad.json\n", "3:12: tokenizer: bad.json is not JSON: Expecting value"),
        (SMALL + "tokenizer: empty.json\n", "3:12: tokenizer: empty.json has no 'model'"),
        (FREE + "nodes: {}\noutputs: {y: x}\ntokenizer: empty.json\n",
         "5:12: tokenizer: empty.json has no 'model'"),
    ],
)  # fmt: skip
def test_mistakes(tmp_path: Path, content: str, expected: str) -> None:
    (tmp_path / "bad.json").write_text("a")
    (tmp_path / "empty.json").write_text("[]")
    (found,) = errors_of(tmp_path, content)
    assert found.startswith(expected)


def test_a_file_that_is_not_there_is_found_by_its_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"model": {}}')
    file = tmp_path / "model.yaml"

    def hint(name: str) -> str | None:
        file.write_text(SMALL + f"tokenizer: {name}\n")
        with pytest.raises(TfgraphError) as caught:
            read_model(file)
        return caught.value.hint

    assert hint("tokeniser.json") == "did you mean 'tokenizer.json'?"
    assert str(hint("vocabulary/t.json")).endswith(f"{tmp_path / 'vocabulary' / 't.json'}")


def test_what_is_right(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"model": {}}')
    file = tmp_path / "model.yaml"
    for keys, generation in (
        ("generation: {start: 8, stop: 3}\n", TokenRules((8,), (3,))),
        ("generation: {stop: [3, 4]}\n", TokenRules((), (3, 4))),
        ("generation: {}\n", TokenRules()),
        (
            "generation: {start: [8, 1], suppress: 0, suppress_first: [1, 2]}\n",
            TokenRules((8, 1), (), (0,), (1, 2)),
        ),
        ("generation: null\n", None),
    ):
        file.write_text(BOTH + keys + "tokenizer: tokenizer.json\n")
        model = read_model(file)
        assert model.generation == generation
        assert model.tokenizer == (tmp_path / "tokenizer.json").resolve()
    file.write_text(FREE + "nodes: {}\noutputs: {y: x}\ntokenizer: tokenizer.json\n")
    assert read_model(file).tokenizer == model.tokenizer
