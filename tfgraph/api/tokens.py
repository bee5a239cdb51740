"""The tokens that models expect next, by their logits or probabilities.

May import: numpy, runtime, errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.errors import MissingTool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgraph.runtime.runnable import Runnable
    from tfgraph.runtime.text import Tokenizer

    NDArray = np.ndarray[Any, Any]

RANKED = ("logits", "probabilities")
"""Outputs over a vocabulary or classes; of several the first is taken."""


@dataclass(frozen=True)
class Token:
    """A token, or class, that a model expects, and how much; `text` where a tokenizer names it."""

    id: int
    probability: float
    text: str | None = None

    def __str__(self) -> str:
        name = str(self.id) if self.text is None else f"{self.id} {self.text!r}"
        return f"{name} {100 * self.probability:.2f}%"


@dataclass(frozen=True)
class TopTokens:
    """The likeliest behind one row, by each model; `position` is where the row ends, None for
    classes of whole rows."""

    row: int
    position: int | None
    a: tuple[Token, ...]
    b: tuple[Token, ...]

    def to_json(self) -> dict[str, Any]:
        """The object in `compare --json`."""
        a, b = ([vars(token) for token in side] for side in (self.a, self.b))
        return {"row": self.row, "position": self.position, "a": a, "b": b}


def top_tokens(
    name: str,
    results: tuple[NDArray, NDArray],
    models: tuple[Runnable, Runnable],
    feeds: Mapping[str, NDArray],
    count: int,
) -> tuple[TopTokens, ...]:
    """The `count` likeliest of each row of an output in RANKED, [batch, seq, vocabulary] or
    [batch, classes]; none of another shape. Tokens are written as the model's tokenizer has
    them, where it came with one."""
    x, y = results
    if x.ndim not in (2, 3) or x.shape[:-1] != y.shape[:-1]:
        return ()
    written = [_tokenizer(model) if x.ndim == 3 else None for model in models]
    ends = [None] * len(x) if x.ndim == 2 else _ends(x, feeds)
    found: list[TopTokens] = []
    for row, end in enumerate(ends):
        a, b = (
            _likeliest(name, z[row] if end is None else z[row, end], count, writes)
            for z, writes in zip(results, written, strict=True)
        )
        found.append(TopTokens(row, end, a, b))
    return tuple(found)


def _ends(x: NDArray, feeds: Mapping[str, NDArray]) -> list[int]:
    """The last position of each row; the last real one where a mask of the same tokens says it."""
    batch, length = x.shape[:2]
    mask = feeds.get("attention_mask")
    if mask is None or mask.shape != (batch, length) or "decoder_input_ids" in feeds:
        return [length - 1] * batch
    real = mask != 0
    return [int(end) for end in length - 1 - np.argmax(real[:, ::-1], axis=1)]


def _tokenizer(model: Runnable) -> Tokenizer | None:
    """The one that came with the model; None without one, or the package that reads it."""
    try:
        return None if model.tokenizer_json is None else model.tokenizer
    except MissingTool:
        return None


def _likeliest(
    name: str, row: NDArray, count: int, tokenizer: Tokenizer | None
) -> tuple[Token, ...]:
    """Of one row, the likeliest first, at equal ones those of lower number."""
    p = row.astype(np.float64)
    if name == "logits":
        with np.errstate(all="ignore"):
            p = np.exp(p - p.max())
            p /= p.sum()
    best = [int(i) for i in np.argsort(-p, kind="stable")[:count]]
    return tuple(
        Token(i, float(p[i]), None if tokenizer is None else tokenizer.name(i)) for i in best
    )
