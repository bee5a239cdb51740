"""What masks do to scores, against their meaning by batch, head, query and key."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.masks import BATCH, HEADS, kinds, masked
from helpers.tolerance import assert_close

from tfgraph.errors import TfgraphError
from tfgraph.ir import as_dim
from tfgraph.ir.mask import (
    KINDS,
    alibi,
    bias,
    causal,
    dense,
    padding,
    prefix,
    relative,
    segments,
    window,
)
from tfgraph.ops import FloatArray, evaluate, graph, mask, softmax

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.ir import Mask

    NDArray = np.ndarray[Any, Any]

SQUARE = [1, 2, 3, 7, 64, 65]
# Queries, keys, and the position of the first query; two see keys on both sides.
CACHED = [(1, 65, 64), (3, 7, 4), (7, 65, 58), (2, 64, 62), (65, 64, 0), (3, 10, 2)]
CACHED += [(9, 4, -5), (3, 2, -1), (4, 3, -9)]  # the first queries stand before all keys


NAMES = list(kinds(2, 2, 0))


def scores_of(queries: int, keys: int, heads: int = HEADS) -> NDArray:
    return np.random.default_rng(0).normal(size=(BATCH, heads, queries, keys))


def apply(scores: NDArray, m: Mask) -> NDArray:
    result = mask(FloatArray(scores), m)
    assert isinstance(result, FloatArray)
    return result.data


def test_every_kind_is_tried() -> None:
    assert {type(m) for m in kinds(2, 2, 0).values()} == set(KINDS.values())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("queries", "keys", "past"), [*((n, n, 0) for n in SQUARE), *CACHED], ids=str
)
def test_each_mask(name: str, queries: int, keys: int, past: int) -> None:
    m = kinds(queries, keys, past)[name]
    scores = scores_of(queries, keys)
    np.testing.assert_array_equal(apply(scores, m), masked(scores, m, past))


@pytest.mark.parametrize("first", NAMES)
@pytest.mark.parametrize(("queries", "keys", "past"), [(3, 3, 0), (2, 5, 3)], ids=str)
def test_each_pair(first: str, queries: int, keys: int, past: int) -> None:
    masks = kinds(queries, keys, past)
    scores = scores_of(queries, keys)
    for second in NAMES:
        m = masks[first] & masks[second]
        np.testing.assert_array_equal(apply(scores, m), masked(scores, m, past), second)


@pytest.mark.parametrize("first", NAMES)
def test_a_pair_is_applied_in_any_order_or_one_by_one(first: str) -> None:
    masks = kinds(7, 65, 58)
    scores = scores_of(7, 65)
    for second in NAMES:
        a, b = masks[first], masks[second]
        both = apply(scores, a & b)
        np.testing.assert_array_equal(np.isneginf(both), np.isneginf(apply(scores, b & a)))
        assert_close(both, apply(apply(scores, a), b), length=2)


@pytest.mark.parametrize(
    "name", [n for n in NAMES if not {"h", "alibi", "relative"} & set(re.findall(r"\w+", n))]
)
@pytest.mark.parametrize(("queries", "keys", "past"), [(7, 7, 0), (3, 65, 62)], ids=str)
def test_scores_of_rank_3_have_no_heads(name: str, queries: int, keys: int, past: int) -> None:
    m = kinds(queries, keys, past)[name]
    scores = scores_of(queries, keys, heads=1)
    if name == "dense [b, 1, 1, k]":
        m = m.map(lambda t: FloatArray(t.data[:, 0]))
        want = masked(scores, m.map(lambda t: FloatArray(t.data[:, None])), past)
    else:
        want = masked(scores, m, past)
    np.testing.assert_array_equal(apply(scores[:, 0], m), want[:, 0])


def test_alibi_of_rank_3_has_heads_and_no_batch() -> None:
    m = kinds(3, 7, 4)["alibi"]
    scores = scores_of(3, 7)
    np.testing.assert_array_equal(apply(scores[1], m), masked(scores, m, 4)[1])


@pytest.mark.parametrize("name", NAMES)
def test_masking_selects(name: str) -> None:
    """What stands where a key is hidden, NaN and inf included, is gone."""
    m = kinds(7, 65, 58)[name]
    clean = apply(scores_of(7, 65), m)
    for dirt in (np.nan, np.inf, -np.inf, 1e300):
        dirty = np.where(np.isneginf(clean), dirt, scores_of(7, 65))
        np.testing.assert_array_equal(apply(dirty, m), clean)


def test_nan_stays_where_a_key_is_allowed() -> None:
    scores = np.full((1, 1, 2, 2), np.nan)
    np.testing.assert_array_equal(apply(scores, causal())[0, 0], [[np.nan, -np.inf], [np.nan] * 2])


def test_a_row_that_may_attend_to_nothing_becomes_zeros() -> None:
    scores = FloatArray(scores_of(3, 5))
    m = padding(FloatArray(np.array([0, 2])))
    weights = softmax(mask(scores, m))
    assert isinstance(weights, FloatArray)
    assert not weights.data[0].any()
    assert_close(weights.data[1].sum(-1), np.ones((HEADS, 3)), length=5)
    assert not weights.data[1, :, :, 2:].any()


@pytest.mark.parametrize("sizes", [(1, 1), (3, 4), (65, 64)], ids=str)
def test_offsets_may_be_symbols(sizes: tuple[int, int]) -> None:
    past, length = sizes
    with graph("g") as g:
        queries, keys = g.symbol("seq"), g.symbol("past") + "seq"
        scores = g.input("scores", "f64", BATCH, HEADS, queries, keys)
        slopes = g.input("slopes", "f64", HEADS)
        m = causal("past") & window(5, offset="past") & alibi(slopes, as_dim("past"))
        g.output("y", mask(scores, m))
    data = scores_of(length, past + length)
    slope = FloatArray(np.array([0.5, 0.25, 0.125]))
    given = {"scores": FloatArray(data), "slopes": slope}
    run = evaluate(g.build(), given, {"seq": length, "past": past}, slope)
    ((_, (result,)),) = run
    want = masked(data, causal(past) & window(5, offset=past) & alibi(slope, past), past)
    np.testing.assert_array_equal(result.data, want)


OFFSET = "give the position of the first query, such as causal(offset=past)"


@pytest.mark.parametrize(
    ("text", "build"),
    [
        ("causal()", lambda g: causal()),
        ("window(left=3)", lambda g: window(3)),
        ("prefix(%p)", lambda g: prefix(g.input("p", "i64", "b"))),
        ("alibi(%s)", lambda g: alibi(g.input("s", "f32", 4))),
        ("causal()", lambda g: padding(g.input("p", "i64", "b")) & causal()),
    ],
    ids=["causal", "window", "prefix", "alibi", "padding and causal"],
)
def test_lengths_that_differ_need_an_offset(text: str, build: Callable[[Any], Mask]) -> None:
    with graph("g") as g:
        scores = g.input("x", "f32", "b", 4, "seq", as_dim("past") + "seq")
        with pytest.raises(TfgraphError) as caught:
            mask(scores, build(g))
    assert "seq queries stand before past + seq keys, and no offset says where" in str(caught.value)
    assert caught.value.message.startswith("mask: ")
    assert caught.value.hint == OFFSET
    assert caught.value.location is not None
    assert caught.value.location.file == __file__


@pytest.mark.parametrize(
    ("message", "build"),
    [
        ("window: -1 is not a distance of at least 0", lambda g: window(-1)),
        ("window: w is not a distance of at least 0", lambda g: window(right="w")),
        ("padding lengths: expected int of shape [b], got f32[b]",
         lambda g: padding(g.input("p", "f32", "b"))),
        ("padding lengths: expected int of shape [b], got i64[seq]",
         lambda g: padding(g.input("p", "i64", "seq"))),
        ("padding: expected int or bool of shape [b,seq], got i64[seq,b]",
         lambda g: padding(g.input("p", "i64", "seq", "b"))),
        ("padding: expected int or bool of shape [b,seq], got i64[b,1,seq]",
         lambda g: padding(g.input("p", "i64", "b", 1, "seq"))),
        ("prefix lengths: expected int of shape [b], got bool[b]",
         lambda g: prefix(g.input("p", "bool", "b"))),
        ("segments of queries: expected int of shape [b,seq], got i64[b,3]",
         lambda g: segments(g.input("p", "i64", "b", 3))),
        ("segments of keys: expected int of shape [b,seq], got i64[b]",
         lambda g: segments(g.input("p", "i64", "b", "seq"), g.input("k", "i64", "b"))),
        ("dense: expected bool, got f32[seq,seq]",
         lambda g: dense(g.input("p", "f32", "seq", "seq"))),
        ("bool[1,1,1,seq,seq] does not broadcast to the scores f32[b,4,seq,seq]",
         lambda g: dense(g.input("p", "bool", 1, 1, 1, "seq", "seq"))),
        ("bias: expected float, got i64[seq]", lambda g: bias(g.input("p", "i64", "seq"))),
        ("alibi slopes: expected float of shape [4], got f32[b]",
         lambda g: alibi(g.input("p", "f32", "b"))),
        ("relative table: expected float of shape [buckets,4], got f32[32]",
         lambda g: relative(g.input("p", "f32", 32))),
        ("relative table: expected float of shape [buckets,4], got i64[32,4]",
         lambda g: relative(g.input("p", "i64", 32, 4))),
        ("relative table: expected float of shape [buckets,4], got f32[32,3]",
         lambda g: relative(g.input("p", "f32", 32, 3))),
        ("relative: 33 buckets, expected an even number of at least 4",
         lambda g: relative(g.input("p", "f32", 33, 4))),
        ("relative: b buckets, expected a number of at least 2",
         lambda g: relative(g.input("p", "f32", "b", 4), bidirectional=False)),
        ("relative: 4098 buckets, expected at most 4096",
         lambda g: relative(g.input("p", "f32", 4098, 4))),
        ("relative: max_distance is 8, expected a number above 8",
         lambda g: relative(g.input("p", "f32", 32, 4), 8)),
        ("relative: max_distance is seq, expected a number above 16",
         lambda g: relative(g.input("p", "f32", 32, 4), "seq", bidirectional=False)),
    ],
)  # fmt: skip
def test_tensors_must_fit(message: str, build: Callable[[Any], Mask]) -> None:
    with graph("g") as g:
        scores = g.input("x", "f32", "b", 4, "seq", "seq")
        with pytest.raises(TfgraphError) as caught:
            mask(scores, build(g))
    assert caught.value.message == f"mask: {message}"


@pytest.mark.parametrize(
    ("message", "shape", "build"),
    [
        ("scores are [..., query, key], got f32[4]", (4,), lambda g: causal()),
        ("alibi: scores are [..., head, query, key], got f32[4,4]", (4, 4),
         lambda g: alibi(g.input("p", "f32", 4))),
        ("relative: scores are [..., head, query, key], got f32[4,4]", (4, 4),
         lambda g: relative(g.input("p", "f32", 32, 4))),
        ("padding: scores are [batch, ..., query, key], got f32[4,4]", (4, 4),
         lambda g: padding(g.input("p", "i64", 4))),
        ("prefix: scores are [batch, ..., query, key], got f32[4,4]", (4, 4),
         lambda g: prefix(g.input("p", "i64", 4))),
        ("segments: scores are [batch, ..., query, key], got f32[4,4]", (4, 4),
         lambda g: segments(g.input("p", "i64", 4, 4))),
    ],
)  # fmt: skip
def test_scores_have_a_least_rank(
    message: str, shape: tuple[int, ...], build: Callable[[Any], Mask]
) -> None:
    with graph("g") as g:
        scores = g.input("x", "f32", *shape)
        with pytest.raises(TfgraphError) as caught:
            mask(scores, build(g))
    assert caught.value.message == f"mask: {message}"


def test_offsets_have_a_limit_and_take_no_memory() -> None:
    far = 2**30
    with graph("g") as g:
        scores = g.input("x", "f64", BATCH, HEADS, "seq", "t")
        g.output("y", mask(scores, causal(far)))
        with pytest.raises(TfgraphError, match="an offset is at most 1073741824 either way"):
            mask(scores, causal(-far - 1))
    data = FloatArray(scores_of(3, 5))
    ((_, (result,)),) = evaluate(g.build(), {"x": data}, {"seq": 3, "t": 5}, data)
    np.testing.assert_array_equal(result.data, data.data)


def test_scores_are_floats() -> None:
    with graph("g") as g, pytest.raises(TfgraphError, match="expected a floating point tensor"):
        mask(g.input("x", "i64", 4, 4), causal())
