"""Each way to draw a token against its formula, written plainly, and what is drawn."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from helpers.tolerance import assert_close
from hypothesis import given
from hypothesis import strategies as st

from tfgraph.errors import TfgraphError
from tfgraph.runtime.sampling import GREEDY, Sampling, draw, probabilities

LOGITS = np.array([1.0, 3.0, -2.0, 3.0, 0.5, -1.0], np.float32)


def plain(logits: list[float], seen: list[int], how: Sampling) -> list[float]:
    """The definition, token by token."""
    scores = list(logits)
    for token in set(seen):
        p = how.repetition_penalty
        scores[token] = scores[token] / p if scores[token] > 0 else scores[token] * p
    if how.temperature == 0:
        best = scores.index(max(scores))
        return [float(i == best) for i in range(len(scores))]
    weights = [math.exp((s - max(scores)) / how.temperature) for s in scores]
    p = [w / math.fsum(weights) for w in weights]
    if how.top_k:
        p = keep(p, sorted(range(len(p)), key=lambda i: (-p[i], i))[: how.top_k])
    if how.top_p < 1:
        mass, kept = 0.0, list[int]()
        for i in sorted(range(len(p)), key=lambda i: (-p[i], i)):
            if mass < how.top_p:
                kept.append(i)
            mass += p[i]
        p = keep(p, kept)
    return keep(p, [i for i in range(len(p)) if p[i] >= how.min_p * max(p)])


def keep(p: list[float], kept: list[int]) -> list[float]:
    total = math.fsum(p[i] for i in kept)
    return [p[i] / total if i in kept else 0.0 for i in range(len(p))]


@given(
    st.lists(st.integers(-40, 40), min_size=1, max_size=9),
    st.lists(st.integers(0, 8), max_size=4),
    st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    st.integers(0, 9),
    st.sampled_from([0.1, 0.52, 0.9, 1.0]),
    st.sampled_from([0.0, 0.07, 0.6, 1.0]),
    st.sampled_from([1.0, 1.3, 0.7]),
)
def test_the_distribution_is_that_of_the_formulas(
    eighths: list[int], seen: list[int], t: float, k: int, p: float, m: float, r: float
) -> None:
    how = Sampling(t, k, p, m, r)
    logits = [n / 8 for n in eighths]
    seen = [token for token in seen if token < len(logits)]
    got = probabilities(np.array(logits, np.float32), seen, how)
    assert got.dtype == np.float64
    assert_close(got, plain(logits, seen, how), length=len(logits), dtype="float64")


def test_what_each_option_leaves() -> None:
    def left(**options: float) -> list[int]:
        p = probabilities(LOGITS, [], Sampling(**options))  # type: ignore[arg-type]
        return np.flatnonzero(p).tolist()

    assert left() == [0, 1, 2, 3, 4, 5]
    assert left(top_k=1) == [1]  # of equal ones the first
    assert left(top_k=3) == [0, 1, 3]
    assert left(top_p=0.8) == [1, 3]
    assert left(min_p=0.1) == [0, 1, 3]
    assert left(temperature=0) == [1]


def test_drawn_as_often_as_likely() -> None:
    p = probabilities(LOGITS, [], Sampling(top_k=4))
    random = np.random.default_rng(5)
    count = 20_000
    drawn = np.bincount([draw(p, random) for _ in range(count)], minlength=p.size)
    assert (drawn[p == 0] == 0).all()
    deviation = np.sqrt(p * (1 - p) / count)
    assert (abs(drawn / count - p) <= 5 * deviation).all()


def test_greedy_takes_the_first_of_equal_ones_whatever_the_penalty_spares() -> None:
    assert probabilities(LOGITS, [], GREEDY).tolist() == [0, 1, 0, 0, 0, 0]
    how = Sampling(temperature=0, repetition_penalty=4)
    assert probabilities(LOGITS, [1, 3], how).tolist() == [1, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("temperature", -1),
        ("temperature", math.nan),
        ("top_k", -1),
        ("top_p", 0),
        ("top_p", 1.5),
        ("min_p", -0.1),
        ("min_p", math.nan),
        ("repetition_penalty", 0),
        ("repetition_penalty", math.inf),
    ],
)
def test_options_that_make_no_sense(option: str, value: float) -> None:
    with pytest.raises(TfgraphError, match=f"{option} is {value}, expected "):
        Sampling(**{option: value})  # type: ignore[arg-type]


def test_thirds_sum_to_one() -> None:
    p = probabilities(np.zeros(3, np.float32), [], Sampling())
    assert abs(sum(map(Fraction, p.tolist())) - 1) < Fraction(1, 10**15)


@pytest.mark.parametrize("how", [GREEDY, Sampling(), Sampling(top_p=0.5, repetition_penalty=2.0)])
def test_logits_by_which_no_token_can_be_chosen(how: Sampling) -> None:
    for logits, wrong in (
        ([1.0, math.nan, 2.0], "NaN"),
        ([-math.inf, math.nan, math.inf], "NaN"),
        ([1.0, math.inf, 2.0], "inf"),
        ([-math.inf] * 3, "-inf alone"),
    ):
        with pytest.raises(TfgraphError) as error:
            probabilities(np.array(logits, np.float32), [0], how)
        assert error.value.message.endswith(f"the model's logits hold {wrong}")
    p = probabilities(np.array([-math.inf, 1.0, -math.inf]), [0], how)
    assert p.tolist() == [0, 1, 0]
