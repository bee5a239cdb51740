"""Which tensors that are added to scores are ALiBi or T5's buckets; and that values stay."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from helpers.mask_graphs import Make, Scores, line, recover

from tfgraph import ops

SQUARE, STEP, ONE = ("b", "n", "n"), ("b", "m", "n"), ("b", 1, "n")
FIXED, TWO = (2, 4, 6), (3, 2, 2)


def far(s: Scores) -> Any:
    return s.k - s.q


def as_f32(x: Any) -> Any:
    return ops.cast(x, dtype="f32")


def slopes(s: Scores) -> Any:
    return ops.reshape(s.ids("f32", 2, name="slopes"), shape=(2, 1, 1))


def matrix(s: Scores, name: str = "t", dtype: str = "f32") -> Any:
    return s.ids(dtype, s.m, s.n, name=name)


ALIBI: list[tuple[tuple[Any, ...], Make, str]] = [
    (SQUARE, lambda s: slopes(s) * as_f32(far(s)), "alibi(%)"),
    (SQUARE, lambda s: as_f32(far(s)) * slopes(s), "alibi(%)"),
    (STEP, lambda s: slopes(s) * as_f32(s.k - s.at), "alibi(%, offset=n - m)"),
    (ONE, lambda s: slopes(s) * as_f32(s.k - s.at), "alibi(%, offset=n - 1)"),
    (SQUARE, lambda s: s.ids("f32", 2, 1, 1) * as_f32(far(s)), "alibi(%)"),
    (SQUARE, lambda s: ops.take(s.ids("f32", 2), 1 - line(2, 2, 1, 1)) * as_f32(far(s)),
     "alibi(%)"),
    (SQUARE, lambda s: slopes(s) * as_f32(far(s) - 2), "alibi(%, offset=2)"),
    (SQUARE, lambda s: slopes(s) * as_f32(far(s) + s.rows), ""),
    (SQUARE, lambda s: slopes(s) * as_f32(s.k + s.q), ""),
    (SQUARE, lambda s: slopes(s) * as_f32(matrix(s, dtype="i64")), ""),
    (SQUARE, lambda s: slopes(s) * matrix(s), ""),
    (SQUARE, lambda s: slopes(s) * ops.exp(matrix(s)), ""),
    (SQUARE, lambda s: slopes(s) * ops.full(shape=(s.n, s.n), value=2), ""),
    (SQUARE, lambda s: slopes(s) * 2, ""),
    (TWO, lambda s: s.ids("f32", 2, 1) * as_f32(far(s)), ""),
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(ALIBI)))
def test_slopes_times_distances(at: int) -> None:
    sizes, added, mask = ALIBI[at]
    assert recover(sizes, lambda s: ops.exp(s.scores) + added(s)) == mask


def buckets(
    s: Scores,
    most: float,
    *,
    both: bool = False,
    rows: int = 8,
    distance: Any = None,
    table: Any = None,
    perm: tuple[int, ...] = (2, 0, 1),
    bent: Callable[[Any], Any] = lambda index: index,
    look_up: Callable[[Any, Any], Any] = ops.embedding,
) -> Any:
    """What T5 adds: rows of a table by the bucket of the distance j - i. Raffel et al. 2020."""
    if distance is None:
        distance = flat(far(s))
    count = rows // 2 if both else rows
    size = ops.abs_(distance) if both else -ops.minimum(distance, 0)
    exact = count // 2
    if exact:
        steps = ops.log(as_f32(size) / exact) / math.log(most / exact) * (count - exact)
        bucket = ops.minimum(ops.cast(steps, dtype="i64") + exact, count - 1)
        bucket = ops.where(ops.less(size, exact), size, bucket)
    else:
        bucket = ops.minimum(size, count - 1)
    if both:
        bucket = bucket + ops.cast(ops.less(0, distance), dtype="i64") * count
    table = s.g.input("rows", "f32", rows, 2) if table is None else table
    return ops.transpose(look_up(bent(bucket), table), perm=perm)


def by_rows(index: Any) -> Any:
    """Another index in each row: its greatest is 7, as it is over all distances."""
    return index + 7 - ops.max_(index, axis=-1, keepdims=True)


def sevens(s: Scores) -> Any:
    return ops.full(shape=(s.m, s.n), value=7, dtype="i64")


ONE_WAY = "relative(%rows, max_distance=20, bidirectional=false)"
T5: list[tuple[tuple[Any, ...], Make, str]] = [
    (SQUARE, lambda s: buckets(s, 30, both=True, rows=16), "relative(%rows, max_distance=30)"),
    (SQUARE, lambda s: buckets(s, 20), ONE_WAY),
    (SQUARE, lambda s: buckets(s, 20, rows=7), ONE_WAY),
    (FIXED, lambda s: buckets(s, 30, both=True, rows=16),
     "relative(%rows, max_distance=30, offset=0)"),
    (SQUARE,
     lambda s: buckets(s, 20, distance=far(s), bent=flat),
     ONE_WAY),
    (SQUARE, lambda s: buckets(s, 20, bent=lambda i: ops.minimum(i, sevens(s))), ONE_WAY),
    (SQUARE, lambda s: buckets(s, 20, bent=lambda i: ops.minimum(i, ops.abs_(flat(far(s))))), ""),
    (SQUARE, lambda s: buckets(s, 20, both=True, rows=7), ""),
    (SQUARE, lambda s: buckets(s, 20, bent=lambda i: sevens(s)), ""),
    (SQUARE, lambda s: buckets(s, 20, bent=by_rows), ""),
    (SQUARE, lambda s: buckets(s, 20, bent=lambda i: ops.transpose(i, perm=(1, 0))), ""),
    (SQUARE, lambda s: buckets(s, 20, perm=(2, 1, 0)), ""),
    (SQUARE, lambda s: buckets(s, 20, bent=lambda i: ops.minimum(ops.abs_(i), 3)), ""),
    (SQUARE,
     lambda s: buckets(s, 20, bent=lambda i: ops.minimum(i + matrix(s, dtype="i64"), 7)), ""),
    (SQUARE, lambda s: buckets(s, 20, table=s.g.input("rows", "f32", s.n + 4, 2)), ""),
    (SQUARE, lambda s: ops.transpose(s.ids("f32", s.n, s.n, 2), perm=(2, 0, 1)), ""),
    (SQUARE, lambda s: ops.transpose(ops.exp(s.ids("f32", s.n, s.n, 2)), perm=(2, 0, 1)), ""),
    (TWO, lambda s: buckets(s, 20, rows=2, look_up=lambda i, t: ops.take(t, i, axis=1)), ""),
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(T5)))
def test_rows_of_a_table_by_distances(at: int) -> None:
    sizes, added, mask = T5[at]
    assert recover(sizes, lambda s: ops.exp(s.scores) + added(s)) == mask


OTHERS: list[tuple[tuple[Any, ...], Make, str]] = [
    (SQUARE, lambda s: s.scores + slopes(s) * as_f32(far(s)), "alibi(%)"),
    (SQUARE, lambda s: slopes(s) * as_f32(far(s)) + ops.exp(s.scores), "alibi(%)"),
    (SQUARE, lambda s: ops.exp(s.scores) - slopes(s) * as_f32(far(s)), ""),
    (SQUARE, lambda s: read_twice(ops.exp(s.scores) + slopes(s) * as_f32(far(s))), ""),
    (SQUARE, lambda s: one_head(s) + buckets(s, 20), ""),
    (SQUARE, lambda s: ops.mean(s.scores, axis=0) + slopes(s) * as_f32(far(s)), ""),
    (SQUARE,
     lambda s: ops.mean(s.scores, axis=0) + slopes(s) * as_f32(flat(far(s))),
     ""),  # three axes: a term of a bias
    (SQUARE,
     lambda s: ops.mean(s.scores, axis=0, keepdims=True) + for_all(s, slopes(s) * as_f32(far(s))),
     ""),  # which repeats the scores too
    (SQUARE, lambda s: matrix(s) @ matrix(s, "u") + matrix(s, "v") * matrix(s, "w"), ""),
]  # fmt: skip


def for_all(s: Scores, x: Any) -> Any:
    return ops.broadcast_to(x, shape=(s.b, *x.shape[1:]))


def flat(x: Any) -> Any:
    return ops.reshape(x, shape=x.shape[-2:])


def read_twice(x: Any) -> Any:
    return x + ops.exp(x)


def one_head(s: Scores) -> Any:
    return ops.mean(s.scores, axis=1, keepdims=True)


@pytest.mark.parametrize("at", range(len(OTHERS)))
def test_what_they_are_added_to(at: int) -> None:
    sizes, made, mask = OTHERS[at]
    assert recover(sizes, made) == mask
