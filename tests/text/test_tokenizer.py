"""Text to ids and back: whole, and as tokens come. The oracle is the text itself, or what the
package makes of all tokens at once."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING

import pytest
from helpers.small_tokenizers import LINES, byte_level, sentence_piece, word_level
from tokenizers import Tokenizer as Package

from tfgraph.errors import MissingTool, TfgraphError
from tfgraph.runtime.text import Stream, Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

UNKNOWN = "\N{REPLACEMENT CHARACTER}"
LOSSLESS = (byte_level, sentence_piece)


def opened(package: Package) -> Tokenizer:
    return Tokenizer(package.to_str().encode(), "small.json")


def pieces(stream: Stream, ids: Sequence[int]) -> list[str]:
    return [*(stream.add(token) for token in ids), stream.end()]


@pytest.mark.parametrize("make", LOSSLESS)
@pytest.mark.parametrize("text", [*LINES, "  two  spaces ", "🙂", "é", "\n\ttabs\n"])
def test_the_pieces_are_the_text_wherever_it_begins(make: Callable[[], Package], text: str) -> None:
    """Behind every part of it, a part that ends within a character included."""
    tokenizer = opened(make())
    ids = tokenizer.encode(text, special=False)
    assert tokenizer.decode(ids) == text
    for k in range(len(ids) + 1):
        known = tokenizer.decode(ids[:k]).rstrip(UNKNOWN)
        if not text.startswith(known):  # the bytes of whole characters, read with one that is not
            continue
        found = pieces(tokenizer.stream(ids[:k]), ids[k:])
        assert known + "".join(found) == text
        assert not any(UNKNOWN in piece for piece in found)


@pytest.mark.parametrize("make", LOSSLESS)
def test_a_character_comes_with_its_last_byte(make: Callable[[], Package]) -> None:
    tokenizer = opened(make())
    behind, ids = tokenizer.encode("cat"), tokenizer.encode("cat 🐙x", special=False)
    new = ids[len(tokenizer.encode("cat", special=False)) :]
    found = pieces(tokenizer.stream(behind), new)
    assert [piece for piece in found if piece] == [" ", "🐙", "x"]
    assert found.index("🐙") == len(new) - 2  # before x; its other bytes gave nothing


def test_the_space_between_words_is_kept_behind_a_prompt() -> None:
    tokenizer = opened(sentence_piece())
    cat, sat = tokenizer.encode("cat"), tokenizer.encode("sat", special=False)
    assert tokenizer.decode(sat) == "sat"
    assert pieces(tokenizer.stream(cat), sat) == [" sat", ""]
    assert pieces(tokenizer.stream(cat[:1]), sat) == ["sat", ""]  # behind <s> it begins a text


def test_random_tokens_are_what_they_all_decode_to() -> None:
    """Bytes that are no character included: these come when it is known that none is made."""
    package = byte_level()
    tokenizer, chance = opened(package), random.Random(5)
    for _ in range(60):
        ids = [chance.randrange(package.get_vocab_size()) for _ in range(chance.randrange(40))]
        assert "".join(pieces(tokenizer.stream(), ids)) == package.decode(ids)
    stream = tokenizer.stream()
    byte = tokenizer.encode("🙂", special=False)[0]
    assert (stream.add(byte), stream.end()) == ("", UNKNOWN)


def test_special_tokens_are_no_text() -> None:
    tokenizer = opened(sentence_piece())
    the, cat = tokenizer.encode("the", special=False), tokenizer.encode("cat", special=False)
    found = pieces(tokenizer.stream(), [1, *the, 2, 2, *cat, 2])
    assert "".join(found) == "the cat"


def test_what_the_file_asks_for_does_not_cut_or_pad() -> None:
    tokenizer = opened(word_level())
    ids = tokenizer.encode("the cat sat on the mat .")
    assert ids == [2, 4, 5, 6, 7, 4, 8, 11, 3]
    assert tokenizer.encode("the cat sat", special=False) == [4, 5, 6]
    assert tokenizer.encode("the cat sat on the mat .", limit=4) == [2, 4, 5, 3]
    assert tokenizer.encode("the cat sat on the mat .") == ids
    assert tokenizer.padding_id == 0
    assert [tokenizer.name(i) for i in (2, 5, 99)] == ["[CLS]", "cat", "99"]


def test_the_padding_by_name_where_none_is_asked_for() -> None:
    package = Package.from_str(byte_level().to_str())
    assert opened(package).padding_id == 0
    package.add_special_tokens(["<pad>"])
    assert opened(package).padding_id == package.get_vocab_size() - 1


def test_what_is_no_tokenizer_or_no_text() -> None:
    with pytest.raises(TfgraphError, match="json: tokenizers cannot read it: Model missing"):
        Tokenizer(b"{}", "small.json")
    with pytest.raises(TfgraphError, match="expected a text of Unicode, got"):
        opened(byte_level()).encode("\udcff")


def test_a_letter_that_it_has_no_token_for() -> None:
    made = Tokenizer(b'{"model": {"vocab": [["a", 0.0]]}}', "t.json")  # a unigram without [UNK]
    assert made.encode("a") == [0]
    with pytest.raises(TfgraphError, match=r"t\.json: tokenizers cannot encode 'ab': .*unknown"):
        made.encode("ab")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    data = byte_level().to_str().encode()
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingTool, match="tokenizers is not installed") as caught:
        Tokenizer(data, "small.json")
    assert caught.value.hint == "pip install tokenizers, or 'tfgraph[text]'; ids work without it"
