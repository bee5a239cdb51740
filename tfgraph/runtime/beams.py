"""Beam search: the most probable continuation, by keeping the best few of each length.

May import: numpy, sampling, source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.runtime.sampling import require_finite

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tfgraph.runtime.source import Source

    Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Beam:
    """Tokens behind the prompt, and the sum of their log probabilities."""

    tokens: tuple[int, ...]
    total: float = 0.0

    @property
    def score(self) -> float:
        """The mean log probability of a token, so that lengths compare. Wu et al. 2016, alpha 1."""
        return self.total / max(1, len(self.tokens))


def search(
    source: Source, prompt: Sequence[int], beams: int, max_tokens: int, stop: Collection[int]
) -> tuple[int, ...]:
    """The best continuation found, of at most `max_tokens` tokens, a stop token at its end if one
    came. Ends where as many have stopped as there are beams."""
    logits = source.feed([prompt])
    going, done = [Beam(())], list[Beam]()
    for length in range(1, max_tokens + 1):
        found = _best(going, logits, 2 * beams)  # half of them may stop
        done += [beam for _, beam in found if beam.tokens[-1] in stop]
        kept = [(row, beam) for row, beam in found if beam.tokens[-1] not in stop][:beams]
        going = [beam for _, beam in kept]
        if not going or len(done) >= beams or length == max_tokens:
            break
        source.reorder([row for row, _ in kept])
        logits = source.feed([[beam.tokens[-1]] for beam in going])
    return max([*done, *going], key=lambda beam: beam.score).tokens


def _best(going: Sequence[Beam], logits: Array, count: int) -> list[tuple[int, Beam]]:
    """The likeliest ways to go on by a token, with the row that each goes on from."""
    require_finite(logits)
    totals: Array = np.array([beam.total for beam in going])[:, None] + log_softmax(logits)
    order = np.argsort(-totals, axis=None, kind="stable")[:count]
    found: list[tuple[int, Beam]] = []
    for place in order:
        row, token = divmod(int(place), totals.shape[1])
        found.append((row, Beam((*going[row].tokens, token), float(totals[row, token]))))
    return found


def log_softmax(logits: Array) -> Array:
    """log softmax of each row, in float64."""
    scores = logits.astype(np.float64)
    scores = scores - scores.max(axis=-1, keepdims=True)
    found: Array = scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    return found
