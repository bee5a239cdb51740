"""From logits to the next token: in float64, one formula a function. May import: numpy, errors."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from collections.abc import Iterable

    Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn. `temperature` 0 takes the likeliest; `top_k` 0, `top_p` 1,
    `min_p` 0 and `repetition_penalty` 1 change nothing."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        for f in fields(self):
            got, whole = getattr(self, f.name), f.name == "top_k"
            if not isinstance(got, int | np.integer if whole else int | float | np.number):
                expected = "an integer" if whole else "a number"
                raise TfgraphError(f"{f.name} is {got!r:.40}, expected {expected}")
        wrong = [
            ("temperature", self.temperature, "a number of at least 0", self.temperature >= 0),
            ("top_k", self.top_k, "an integer of at least 0", self.top_k >= 0),
            ("top_p", self.top_p, "above 0, at most 1", 0 < self.top_p <= 1),
            ("min_p", self.min_p, "from 0 to 1", 0 <= self.min_p <= 1),
            (
                "repetition_penalty",
                self.repetition_penalty,
                "a number above 0",
                0 < self.repetition_penalty < np.inf,
            ),
        ]
        for name, got, expected, right in wrong:
            if not right:
                raise TfgraphError(f"{name} is {got}, expected {expected}")


GREEDY = Sampling(temperature=0.0)


def probabilities(logits: Array, seen: Iterable[int], how: Sampling) -> Array:
    """The distribution float64[vocabulary] from which the token behind `seen` is drawn: the
    penalty, the temperature, then top k, top p and min p, each of what the former left."""
    require_finite(logits)
    scores = penalized(logits.astype(np.float64), seen, how.repetition_penalty)
    if how.temperature == 0:
        return _only(np.ones_like(scores), np.argmax(scores, keepdims=True))
    p = softmax(scores / how.temperature)
    if how.top_k:
        p = top_k(p, how.top_k)
    if how.top_p < 1:
        p = top_p(p, how.top_p)
    return min_p(p, how.min_p) if how.min_p else p


def require_finite(logits: Array) -> None:
    """Raise TfgraphError for logits, of one row or several, by which no token can be chosen: with
    NaN or infinity among those of a row, or without any that is finite."""
    most = logits.max(axis=-1)  # NaN where one is; tokens may be ruled out by -inf
    if not np.isfinite(most).all():
        wrong = "NaN" if np.isnan(most).any() else "inf" if most.max() > 0 else "-inf alone"
        raise TfgraphError(
            f"no token can be chosen: the model's logits hold {wrong}",
            hint="weights that are not finite, or too large, make such logits",
        )


def softmax(scores: Array) -> Array:
    """exp(s_i) / sum_j exp(s_j)."""
    weights: Array = np.exp(scores - scores.max())
    total: float = weights.sum()
    return weights / total


def penalized(scores: Array, seen: Iterable[int], penalty: float) -> Array:
    """Scores of tokens that were seen, divided by the penalty where positive, else multiplied.

    Keskar et al. 2019 (CTRL), with the sign as its implementations treat it.
    """
    ids = np.array(sorted(set(seen)), np.int64)
    scores = scores.copy()
    scores[ids] = np.where(scores[ids] > 0, scores[ids] / penalty, scores[ids] * penalty)
    return scores


def top_k(p: Array, k: int) -> Array:
    """The k likeliest tokens; of equal ones the first. Fan et al. 2018."""
    return _only(p, _likeliest(p)[:k])


def top_p(p: Array, mass: float) -> Array:
    """The fewest likeliest tokens whose probabilities sum to at least `mass`.

    Holtzman et al. 2020 (nucleus sampling).
    """
    order = _likeliest(p)
    before = np.cumsum(p[order]) - p[order]
    return _only(p, order[before < mass])


def min_p(p: Array, share: float) -> Array:
    """Tokens at least `share` times as likely as the likeliest. Nguyen et al. 2024."""
    return _only(p, np.flatnonzero(p >= share * p.max()))


def draw(p: Array, random: np.random.Generator) -> int:
    """A token, by inversion of the cumulative distribution."""
    total: Array = np.cumsum(p)
    found = int((total <= random.random() * total[-1]).sum())
    return min(found, int(p.nonzero()[0][-1]))


def _likeliest(p: Array) -> Array:
    return np.argsort(-p, kind="stable")


def _only(p: Array, kept: Array) -> Array:
    """The distribution over some tokens alone."""
    found: Array = np.where(np.isin(np.arange(p.size), kept), p, 0.0)
    total: float = found.sum()
    return found / total
