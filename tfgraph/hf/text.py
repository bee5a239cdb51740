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
    them. Raises TfgraphError for what is no id.
    """
    lines: list[str] = []
    folder = config.path.parent
    if (folder / TOKENIZER).is_file():
        lines.append(f"tokenizer: {scalar(path(folder / TOKENIZER))}")
    kind, vocabulary = values.get("kind", "encoder"), values.get("vocabulary", 0)
    if kind != "encoder" and values.get("head.kind") == "lm":
        saved = read_config(folder, GENERATION) if (folder / GENERATION).is_file() else config
        start, stop = (
            [token for token in _ids(saved, config, key) if token < vocabulary]
            for key in ("decoder_start_token_id", "eos_token_id")
        )
        parts = [f"start: {start[0]}"] if start and kind == "encoder-decoder" else []
        parts += [f"stop: {stop}"] if stop else []
        lines += [f"generation: {{{', '.join(parts)}}}"] if parts else []
    return "\n" + "\n".join(lines) + "\n" if lines else ""


def _ids(saved: Config, config: Config, key: str) -> list[int]:
    """The tokens of a key, one or several, in the first of the two files that has it."""
    source = saved if saved.data.get(key) is not None else config
    value: Any = source.data.get(key)
    given = cast("list[Any]", value if isinstance(value, list) else [value])
    tokens = [] if value is None else given
    for token in tokens:
        if not isinstance(token, int) or isinstance(token, bool) or token < 0:
            shown = json.dumps(value)[:60]
            raise source.error(key, f"expected an id or a list of ids, got {shown}")
    return tokens
