"""What attention kernels are tried on: masks, biases, head sizes; and the formula in float64.

The reference goes query by query over the list of keys that the masks allow, so that what stands in
a masked slot cannot take part in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from tfgraph.backends.tvm.attention_mask import (
    Alibi,
    ByDistance,
    Causal,
    Dense,
    DenseBias,
    Padding,
    Prefix,
    Segments,
    Window,
)
from tfgraph.backends.tvm.attention_plan import MaskPlan
from tfgraph.backends.tvm.cuda.attention_mask import KeyMask
from tfgraph.backends.tvm.kernels import AttentionShape

PAST = 9
SCALE = 0.3


@dataclass(frozen=True)
class Case:
    """A kernel and the sizes it is tried at: (batch, queries, keys)."""

    plan: MaskPlan = MaskPlan()
    sizes: tuple[tuple[int, int, int], ...] = ((2, 70, 90),)
    heads: int = 2
    kv_heads: int = 1
    width: int = 8
    value_width: int = 8
    softcap: float | None = None

    @property
    def shape(self) -> AttentionShape:
        return AttentionShape(
            self.heads,
            self.kv_heads,
            self.width,
            self.value_width,
            self.heads * self.width,
            self.kv_heads * self.width,
            self.kv_heads * self.value_width,
        )


def masked(*masks: Any, **options: Any) -> Case:
    return Case(MaskPlan(masks), **options)


LENGTHS = ((1, 1, 1), (2, 3, 32), (1, 64, 33), (2, 65, 31), (1, 130, 100))
PREFIXES = (30, 31, 32, 33)  # around the end of the first tile of 32 keys
CASES = {
    "plain": Case(sizes=LENGTHS),
    "heads_6_over_2": Case(heads=6, kv_heads=2, sizes=((2, 5, 40),)),
    "width_64": Case(width=64, value_width=64, sizes=((1, 65, 70),)),
    "width_20_values_33": Case(width=20, value_width=33),
    "width_33_values_20": Case(width=33, value_width=20),
    "width_128": Case(width=128, value_width=128, sizes=((1, 35, 50),)),
    "width_256": Case(width=256, value_width=256, sizes=((1, 18, 33),)),
    "softcap": Case(softcap=2.0),
    "causal": masked(Causal(), sizes=((2, 90, 90), (1, 40, 70))),
    "causal_past": masked(Causal("past"), sizes=((1, 1, PAST + 1), (2, 70, 70 + PAST))),
    "causal_before": masked(Causal(-5)),  # the first five queries see nothing
    "window": masked(Window(20, 7), sizes=((2, 150, 150),)),
    "window_left": masked(Window(3, None, PAST)),
    "window_right": masked(Window(None, 0, 40)),
    "window_past_the_end": masked(Window(2, 2, 85)),
    "causal_and_window": masked(Causal("past"), Window(11, None, "past"), sizes=((2, 140, 149),)),
    "prefix": masked(Prefix(), sizes=((2, 90, 90), (len(PREFIXES), 40, 40))),
    "lengths": masked(Padding("int32")),
    "key_mask": masked(KeyMask()),
    "key_mask_bool": masked(KeyMask("bool"), Causal(20)),
    "segments": masked(Segments()),
    "segments_of_two_types": masked(Segments("int64", "int32")),
    "dense": masked(Dense()),
    "dense_of_keys": masked(Dense(per_head=False, per_query=False, dtype="int32"), KeyMask()),
    "bias": Case(MaskPlan((), (DenseBias(per_batch=False),))),
    "by_distance": Case(MaskPlan((Causal(20),), (ByDistance(),)), sizes=((1, 1, 1), (2, 70, 90))),
    "alibi": Case(MaskPlan((Causal(PAST),), (Alibi(PAST), DenseBias(per_head=False)))),
}


KINDS = {
    "causal": Causal("past"),
    "window": Window(7, 3, "past"),
    "left": Window(5, None, "past"),
    "prefix": Prefix("past"),
    "lengths": Padding("int64"),
    "keys": KeyMask(),
    "segments": Segments(),
    "dense": Dense(),
}
BEHIND_PAST = tuple((1 + (n < 8), n, n + PAST) for n in (1, 2, 3, 7, 63, 64, 65, 129))
PAIRS = {
    f"{a}_{b}": masked(KINDS[a], KINDS[b], sizes=BEHIND_PAST) for a, b in combinations(KINDS, 2)
}


def arrays_of(case: Case, sizes: dict[str, int], rng: np.random.Generator) -> list[np.ndarray]:
    """The arrays of the plan: what is not all or nothing."""
    arrays = []
    for parameter in case.plan.parameters:
        shape = [sizes[s] if isinstance(s, str) else s for s in parameter.shape]
        if parameter.name == "prefix" and shape == [len(PREFIXES)]:
            values = np.array(PREFIXES)
        elif parameter.name in ("lengths", "prefix"):
            values = rng.integers(0, sizes["keys"], shape)
        elif parameter.name.endswith("segments"):
            values = rng.integers(0, 3, shape)
        elif parameter.dtype == "float32":
            values = rng.standard_normal(shape)
        else:
            values = rng.random(shape) < 0.6
            if parameter.name == "keep" and sizes["batch"] > 1:
                values[-1] = False  # nobody in this batch entry sees anything
        arrays.append(values.astype(parameter.dtype))
    return arrays


def allowed_and_bias(
    case: Case, arrays: list[np.ndarray], b: int, h: int, i: int, keys: int
) -> tuple[np.ndarray, np.ndarray]:
    """For one query: the positions of the keys it may attend to, and the bias of every key."""
    j = np.arange(keys)
    allowed, bias = np.ones(keys, bool), np.zeros(keys)
    arrays = list(arrays)
    for term in case.plan.terms:
        own = [arrays.pop(0) for _ in term.parameters]
        offset = getattr(term, "offset", 0)
        position = i + (PAST if offset == "past" else offset)
        if isinstance(term, Causal):
            allowed &= j <= position
        elif isinstance(term, Window):
            allowed &= j >= position - (10**9 if term.left is None else term.left)
            allowed &= j <= position + (10**9 if term.right is None else term.right)
        elif isinstance(term, Prefix):
            allowed &= (j < own[0][b]) | (j <= position)
        elif isinstance(term, Padding):
            allowed &= j < own[0][b]
        elif isinstance(term, KeyMask):
            allowed &= own[0][b] != 0
        elif isinstance(term, Segments):
            allowed &= own[0][b, i] == own[1][b]
        elif isinstance(term, ByDistance):
            bias += own[0][h, j - i + own[0].shape[1] - keys]
        elif isinstance(term, Alibi):
            bias += own[0][h] * (j - position)
        else:
            at = [0 if size == 1 else n for size, n in zip(own[0].shape, (b, h, i), strict=False)]
            if isinstance(term, Dense):
                allowed &= own[0][tuple(at)] != 0
            else:
                bias += own[0][tuple(at)]
    return np.flatnonzero(allowed), bias


@dataclass(frozen=True)
class Row:
    """What one query of one head may attend to, in float64: the scores of those keys, the sums of
    |scale * q k| in their products, and their values."""

    at: tuple[int, int, int]
    scores: np.ndarray
    sizes: np.ndarray
    values: np.ndarray

    @property
    def weights(self) -> np.ndarray:
        weights = np.exp(self.scores - self.scores.max())
        return weights / weights.sum()


def rows(
    case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray, arrays: list[np.ndarray]
) -> Iterator[Row]:
    """All rows that may attend to anything."""
    (batch, queries, _), keys = q.shape, k.shape[1]
    q = q.reshape(batch, queries, case.heads, case.width).astype(np.float64)
    k = k.reshape(batch, keys, case.kv_heads, case.width).astype(np.float64)
    v = v.reshape(batch, keys, case.kv_heads, case.value_width).astype(np.float64)
    for b, i, h in np.ndindex(batch, queries, case.heads):
        group = h // (case.heads // case.kv_heads)
        seen, bias = allowed_and_bias(case, arrays, b, h, i, keys)
        if seen.size == 0:
            continue
        scores = SCALE * (k[b, seen, group] @ q[b, i, h])
        sizes = SCALE * (np.abs(k[b, seen, group]) @ np.abs(q[b, i, h]))
        if case.softcap is not None:
            scores = case.softcap * np.tanh(scores / case.softcap)
        yield Row((b, i, h), scores + bias[seen], sizes, v[b, seen, group])


def reference(
    case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray, arrays: list[np.ndarray]
) -> np.ndarray:
    batch, queries, _ = q.shape
    out = np.zeros((batch, queries, case.heads, case.value_width))
    for row in rows(case, q, k, v, arrays):
        out[row.at] = row.weights @ row.values
    return out.reshape(batch, queries, -1)


def inputs_of(
    case: Case, sizes: tuple[int, int, int], rng: np.random.Generator
) -> tuple[list[np.ndarray], list[np.ndarray], list[int]]:
    """q, k, v in float32; the plan's arrays; its scalars."""
    batch, queries, keys = sizes
    named = {"batch": batch, "heads": case.heads, "queries": queries, "keys": keys}
    named["distances"] = queries + keys - 1
    lengths = {"q_pitch": queries, "k_pitch": keys, "v_pitch": keys}
    tensors = [
        rng.standard_normal((batch, n, getattr(case.shape, pitch))).astype(np.float32)
        for pitch, n in lengths.items()
    ]
    return tensors, arrays_of(case, named, rng), [PAST] * len(case.plan.scalars)
