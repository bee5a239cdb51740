"""Small models with tokenizers: their model files, in a folder with tokenizer.json."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from helpers.small_tokenizers import byte_level, word_level

from tfgraph.runtime import format as layout

if TYPE_CHECKING:
    from pathlib import Path

    from tokenizers import Tokenizer

_BASE = "layers: 1\nwidth: 16\nheads: 2\nhead: lm\ntokenizer: tokenizer.json\n"
# Seeds with which the first tokens differ from each other.
_DECODER = _BASE + "kind: decoder\npositions: {kind: learned, max: 40}\nseed: 3\n"
_BOTH = (
    _BASE + "kind: encoder-decoder\nmask: padding\n"
    "symbols: {seq: {max: 40}, target: {max: 40}}\nseed: 3\n"
)


def write_decoder(folder: Path, more: str = "") -> Path:
    """A decoder of bytes; its model file."""
    return _write(folder, byte_level(), _DECODER + more)


def write_encoder_decoder(folder: Path, more: str = "") -> Path:
    """An encoder-decoder of words; its model file."""
    return _write(folder, word_level(), _BOTH + more)


def write_encoder(folder: Path) -> Path:
    """An encoder of words, with token types."""
    text = _BASE.replace("head: lm\n", "") + "mask: padding\nembedding: {token_types: 2}\n"
    return _write(folder, word_level(), text)


def as_before(artifact: Path, copy: Path) -> Path:
    """A copy as artifacts were before they held tokenizers and stop tokens."""
    shutil.copytree(artifact, copy)
    (copy / layout.TOKENIZER).unlink()
    manifest = layout.read_manifest(copy)
    del manifest["generation"], manifest["files"][layout.TOKENIZER]
    (copy / layout.MANIFEST).write_text(layout.seal(manifest))
    return copy


def _write(folder: Path, tokenizer: Tokenizer, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(tokenizer.to_str())
    file = folder / "speaker.yaml"
    file.write_text(f"{text}vocabulary: {tokenizer.get_vocab_size()}\n")
    return file
