"""What a checkpoint folder says about text, as the end of a model file: its tokenizer, and where
generation starts and stops. May import: config, render, errors.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from tfgraph.hf.config import Config, read_config
from tfgraph.hf.render import scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

TOKENIZER = "tokenizer.json"
GENERATION = "generation_config.json"


def text_keys(config: Config, values: Mapping[str, Any], path: Callable[[Path], str]) -> str:
    """The lines with the keys `tokenizer` and `generation`, "" where the folder has neither.

    `values` are the model's keys, as `render` takes them; `path` gives a file's as seen from the
    model file. Ids beyond the vocabulary, which some configs name, are left out: no model gives
    them. So are words of several tokens that are not to be generated. Raises TfgraphError for what
    is no id.
    """
    lines: list[str] = []
    folder = config.path.parent
    if (folder / TOKENIZER).is_file():
        lines.append(f"tokenizer: {scalar(path(folder / TOKENIZER))}")
    kind, vocabulary = values.get("kind", "encoder"), values.get("vocabulary", 0)
    if kind != "encoder" and values.get("head.kind") == "lm":
        saved = read_config(folder, GENERATION) if (folder / GENERATION).is_file() else config
        rules = {
            "start": _start(saved, config) if kind == "encoder-decoder" else [],
            "stop": _ids(saved, config, "eos_token_id"),
            "suppress": [
                *_ids(saved, config, "suppress_tokens"),
                *(word[0] for word in _words(saved, config) if len(word) == 1),
            ],
            "suppress_first": _ids(saved, config, "begin_suppress_tokens"),
        }
        known = {
            key: [token for token in dict.fromkeys(ids) if token < vocabulary]
            for key, ids in rules.items()
        }
        parts = [f"{key}: {_one_or_several(key, ids)}" for key, ids in known.items() if ids]
        lines += [f"generation: {{{', '.join(parts)}}}"] if parts else []
    return "\n" + "\n".join(lines) + "\n" if lines else ""


def _one_or_several(key: str, ids: list[int]) -> str:
    return str(ids[0] if key == "start" and len(ids) == 1 else ids)


def _start(saved: Config, config: Config) -> list[int]:
    """What every target begins with: the start token, and those that are forced behind it, at
    places 1, 2, ...; of older files by their places."""
    start = _ids(saved, config, "decoder_start_token_id")[:1]
    forced = _ids(saved, config, "forced_bos_token_id")[:1]
    pairs = _source(saved, config, "forced_decoder_ids").data.get("forced_decoder_ids")
    if isinstance(pairs, list) and not forced:
        for place, pair in enumerate(cast("list[Any]", pairs), 1):
            if not isinstance(pair, list) or len(cast("list[Any]", pair)) != 2:
                break
            at, token = cast("list[Any]", pair)
            if at != place or not isinstance(token, int) or token < 0:
                break  # what the user chooses, such as the language
            forced.append(token)
    return [*start, *forced] if start else []


def _words(saved: Config, config: Config) -> list[list[int]]:
    """Sequences of tokens that are never generated."""
    key = "bad_words_ids"
    source = _source(saved, config, key)
    words: Any = source.data.get(key) or []
    if not isinstance(words, list) or not all(
        isinstance(word, list) and all(isinstance(t, int) for t in cast("list[Any]", word))
        for word in cast("list[Any]", words)
    ):
        raise source.error(key, f"expected lists of ids, got {json.dumps(words)[:60]}")
    return cast("list[list[int]]", words)


def _source(saved: Config, config: Config, key: str) -> Config:
    """The first of the two files that has a key."""
    return saved if saved.data.get(key) is not None else config


def _ids(saved: Config, config: Config, key: str) -> list[int]:
    """The tokens of a key, one or several, in the first of the two files that has it."""
    source = _source(saved, config, key)
    value: Any = source.data.get(key)
    given = cast("list[Any]", value if isinstance(value, list) else [value])
    tokens = [] if value is None else given
    for token in tokens:
        if not isinstance(token, int) or isinstance(token, bool) or token < 0:
            shown = json.dumps(value)[:60]
            raise source.error(key, f"expected an id or a list of ids, got {shown}")
    return tokens
