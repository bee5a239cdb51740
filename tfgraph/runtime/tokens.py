"""Texts as the inputs of a model, by the names that Hugging Face gives them.

May import: numpy, errors; runnable for types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.errors import TfgraphError
from tfgraph.runtime.inputs import known_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgraph.runtime.runnable import Runnable

    Array = np.ndarray[Any, np.dtype[Any]]

IDS, TARGET = "input_ids", "decoder_input_ids"


def text_inputs(
    model: Runnable, texts: Sequence[str], prefix: str | None = None, limit: int | None = None
) -> dict[str, Array]:
    """See `Runnable.tokenize`."""
    ports = {port.name: port for port in model.inputs}
    if IDS not in ports:
        hint = known_names(IDS, list(ports))
        raise TfgraphError(f"{model.name} takes no text: it has no input '{IDS}'", hint=hint)
    if prefix is not None and TARGET not in ports:
        raise TfgraphError(f"{model.name} is no encoder-decoder: it has no target, and no prefix")
    tokenizer = model.tokenizer
    encoded = [tokenizer.encoding(text, limit=limit) for text in texts]
    lengths = [len(e.ids) for e in encoded]
    shortest, longest = min(lengths, default=0), max(lengths, default=0)
    if not shortest:
        raise TfgraphError("a text has no tokens" if texts else "expected at least one text")
    if shortest < longest and "attention_mask" not in ports:
        raise TfgraphError(
            f"texts of {shortest} and {longest} tokens, and {model.name} has no mask for the "
            "padding of the shorter",
            hint="run each alone, or compile it with mask: padding",
        )

    def rows(values: Sequence[Sequence[int]], padding: int) -> list[list[int]]:
        return [[*row, *[padding] * (longest - len(row))] for row in values]

    made = {
        IDS: rows([e.ids for e in encoded], tokenizer.padding_id),
        "attention_mask": rows([e.attention_mask for e in encoded], 0),
        "token_type_ids": rows([e.type_ids for e in encoded], 0),
        TARGET: [target_ids(model, prefix)] * len(texts) if TARGET in ports else [],
    }
    return {name: np.array(made[name]).astype(ports[name].dtype) for name in made if name in ports}


def target_ids(model: Runnable, prefix: str | None) -> list[int]:
    """The target so far of an encoder-decoder: its start tokens, and those of a text."""
    begun = [] if prefix is None else model.tokenizer.encode(prefix, special=False)
    return [*model.generation.target, *begun]
