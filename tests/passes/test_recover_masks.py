"""Which masks conditions are that an exporter computes; and that values stay."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.mask_graphs import Make, Scores, groups, keys, lengths, line, recover

from tfgraph import ops

SQUARE, STEP, FIXED, ONE = ("b", "n", "n"), ("b", "m", "n"), (2, 3, 5), ("b", 1, "n")
lt, no, both, either = ops.less, ops.logical_not, ops.logical_and, ops.logical_or


def beyond(s: Scores) -> Any:
    """Positions behind all keys."""
    last = ops.slice_(ops.iota(length=s.n * 2), axis=0, start=s.n, stop=s.n * 2)
    return ops.reshape(last, shape=(1, 1, s.n, 1))


SEEN: list[tuple[tuple[Any, ...], Make, str]] = [
    (SQUARE, lambda s: lt(s.k, s.q + 1), "causal()"),
    (SQUARE, lambda s: no(lt(s.q, s.k)), "causal()"),
    (SQUARE, lambda s: no(ops.broadcast_to(lt(s.q, s.k), shape=(s.b, 1, s.n, s.n))), "causal()"),
    (SQUARE, lambda s: no(lt(s.q, s.k + 1)), "causal(offset=-1)"),
    (SQUARE, lambda s: no(lt(s.q + 2, s.k)), "causal(offset=2)"),
    (SQUARE, lambda s: lt(s.k, s.q + 2), "window(right=1)"),
    (SQUARE, lambda s: lt(s.k, s.q), "causal(offset=-1)"),
    (SQUARE, lambda s: lt(s.q, s.k + 3), "window(left=2)"),
    (SQUARE, lambda s: lt(s.q, s.k), "dense(%)"),
    (SQUARE, lambda s: no(lt(s.k, s.q)), "window(left=0)"),
    (SQUARE, lambda s: no(lt(s.k + 2, s.q)), "window(left=2)"),
    (SQUARE, lambda s: no(lt(s.k, s.q + 1)), "dense(%)"),
    (SQUARE, lambda s: no(lt(1, ops.abs_(s.q - s.k))), "window(left=1, right=1)"),
    (SQUARE, lambda s: no(lt(1, ops.abs_(s.k - s.q + 1))), "window(left=2, right=0)"),
    (SQUARE, lambda s: no(lt(ops.abs_(s.q - s.k), 1)), "dense(%)"),
    (SQUARE, lambda s: lt(ops.abs_(s.q - s.k), 2), "dense(%)"),
    (SQUARE, lambda s: no(lt(s.ids("i64", "n"), ops.abs_(s.q - s.k))), "dense(%)"),
    (SQUARE, lambda s: no(lt(1, ops.abs_(s.q * 2 - s.k))), "dense(%)"),
    (SQUARE, lambda s: both(lt(s.k, s.q + 1), lt(s.q, s.k + 3)), "window(left=2, right=0)"),
    (SQUARE, lambda s: both(lt(s.q, s.k + 3), lt(s.k, s.q + 2)), "window(left=2, right=1)"),
    (SQUARE, lambda s: both(lt(s.k, s.q + 1), no(lt(s.q, 0))), "causal()"),
    (SQUARE, lambda s: both(lt(s.k, s.q + 1), no(lt(s.k + s.q, 0))), "causal()"),
    (SQUARE, lambda s: both(lt(s.k, s.q + 1), no(lt(s.k + s.q, 1))), "causal() & dense(%)"),
    (SQUARE, lambda s: both(lt(s.k, s.q + 1), lt(s.q * 0, 1)), "causal()"),
    (SQUARE, lambda s: both(lt(s.k, s.q + 1), no(lt(s.q * 0, 1))), "causal() & dense(%)"),
    (
        SQUARE,
        lambda s: both(lt(s.k, s.q + 1), ops.full(shape=("n",), value=1, dtype="bool")),
        "causal()",
    ),
    (
        SQUARE,
        lambda s: both(lt(s.k, s.q + 1), ops.full(shape=("n",), value=0, dtype="bool")),
        "causal() & dense(%)",
    ),
    (SQUARE, lambda s: lt(s.k, s.q * 2 + 1), "dense(%)"),
    (SQUARE, lambda s: lt(s.k * 2, s.q + 1), "dense(%)"),
    (SQUARE, lambda s: lt(s.k, 4), "dense(%)"),
    (SQUARE, lambda s: lt(s.q, 4), "dense(%)"),
    (SQUARE, lambda s: lt(s.k, s.q + s.rows + 1), "dense(%)"),
    (SQUARE, lambda s: ops.equal(s.k, s.q), "dense(%)"),
    (STEP, lambda s: lt(s.k, s.at + 1), "causal(offset=n - m)"),
    (STEP, lambda s: no(lt(s.at, s.k)), "causal(offset=n - m)"),
    (STEP, lambda s: lt(s.at, s.k + 3), "window(left=2, offset=n - m)"),
    (
        STEP,
        lambda s: both(lt(s.k, s.at + 1), lt(s.at, s.k + 3)),
        "window(left=2, right=0, offset=n - m)",
    ),
    (
        STEP,
        lambda s: both(lt(s.at, s.k + 3), lt(s.k, s.at + 1)),
        "window(left=2, right=0, offset=n - m)",
    ),
    (
        STEP,
        lambda s: both(lt(s.k, s.q + 1), lt(s.at, s.k + 3)),
        "causal(offset=0) & window(left=2, offset=n - m)",
    ),
    (STEP, lambda s: lt(s.k, s.q + 1), "causal(offset=0)"),
    (SQUARE, lambda s: lt(s.q + 2, s.k + 3), "window(left=0)"),
    (SQUARE, lambda s: lt(beyond(s), s.k + 3), "dense(%)"),
    (SQUARE, lambda s: lt(s.k, beyond(s) + 1), "causal(offset=n)"),
    (STEP, lambda s: lt(line(s.m * s.n, 1, 1, s.m, s.n), 4), "dense(%)"),
    (
        STEP,
        lambda s: both(lt(s.k, s.at + 1), no(lt(s.at + s.k, 1))),
        "causal(offset=n - m) & dense(%)",
    ),
    (
        STEP,
        lambda s: both(lt(s.k, s.at + 1), lt(s.q, s.k + 3)),
        "causal(offset=n - m) & window(left=2, offset=0)",
    ),
    (FIXED, lambda s: lt(s.k, s.q + 3), "causal(offset=2)"),
    ((2, 1, 5), lambda s: both(lt(s.k, s.at + 1), lt(s.at, 5)), "causal(offset=4)"),
    ((2, 1, 5), lambda s: both(lt(s.k, s.at + 1), lt(s.at, 4)), "causal(offset=4) & dense(%)"),
    (FIXED, lambda s: no(lt(s.q + 2, s.k)), "causal(offset=2)"),
    (FIXED, lambda s: no(lt(s.q, s.k)), "causal(offset=0)"),
    (FIXED, lambda s: lt(s.q + 2, s.k + 3), "window(left=2, offset=2)"),
    (FIXED, lambda s: lt(s.q, s.k + 1), "window(left=0, offset=0)"),
    (
        FIXED,
        lambda s: both(lt(s.k, s.q + 3), lt(s.q + 2, s.k + 3)),
        "window(left=2, right=0, offset=2)",
    ),
    (
        FIXED,
        lambda s: both(lt(s.q + 2, s.k + 3), lt(s.k, s.q + 3)),
        "window(left=2, right=0, offset=2)",
    ),
    (
        FIXED,
        lambda s: both(lt(s.q + 2, s.k + 3), lt(s.k, s.q + 1)),
        "window(left=2, offset=2) & causal(offset=0)",
    ),
    (
        FIXED,
        lambda s: both(lt(s.q + 2, s.k + 3), lt(s.k, s.q + 5)),
        "window(left=2, right=2, offset=2)",
    ),
    (ONE, lambda s: lt(s.k, s.at), "causal(offset=n - 2)"),
    (ONE, lambda s: no(lt(s.at, s.k)), "causal(offset=n - 1)"),
    (ONE, lambda s: lt(s.at, s.k + 3), "window(left=3, offset=n)"),
    (
        ONE,
        lambda s: both(lt(s.k, s.at + 1), lt(s.at, s.k + 3)),
        "causal(offset=n - 1) & window(left=3, offset=n)",
    ),
    ((2, 1, 5), lambda s: lt(s.k, s.q + 5), "causal(offset=4)"),
    (
        (2, 1, 5),
        lambda s: both(lt(s.k, s.q + 5), lt(s.q + 4, s.k + 3)),
        "window(left=2, right=0, offset=4)",
    ),
    (SQUARE, keys, "padding(%ids)"),
    (SQUARE, lambda s: ops.cast(keys(s, "i64"), dtype="bool"), "padding(%ids)"),
    (SQUARE, lambda s: no(ops.equal(keys(s, "i64"), 0)), "padding(%ids)"),
    (SQUARE, lambda s: no(ops.equal(keys(s, "i64"), 1)), "dense(%)"),
    (SQUARE, lambda s: no(ops.equal(keys(s, "f32"), 0)), "dense(%)"),
    (SQUARE, lambda s: ops.equal(keys(s, "i64"), 0), "dense(%)"),
    (SQUARE, lambda s: ops.cast(keys(s, "f32"), dtype="bool"), "dense(%)"),
    (SQUARE, lambda s: ops.broadcast_to(keys(s), shape=(s.b, 1, s.n, s.n)), "padding(%ids)"),
    (SQUARE, lambda s: both(keys(s), lt(s.k, s.q + 1)), "padding(%ids) & causal()"),
    (SQUARE, lambda s: ops.reshape(s.ids("bool", s.n, s.n), shape=(1, 1, s.n, s.n)), "dense(%)"),
    (
        SQUARE,
        lambda s: ops.reshape(s.ids("bool", s.b, 1, 1, s.n), shape=(s.b, 1, 1, s.n)),
        "dense(%)",
    ),
    (SQUARE, lambda s: s.ids("bool", s.b, 1, 1, s.n), "dense(%ids)"),
    (SQUARE, lambda s: s.ids("bool", s.b, 2, s.n, s.n), "dense(%ids)"),
    (
        SQUARE,
        lambda s: ops.broadcast_to(s.ids("bool", s.n, s.n), shape=(2, s.n, s.n)),
        "dense(%ids)",
    ),
    ((3, 3, 3), lambda s: ops.reshape(s.ids("bool", 3, 3), shape=(1, 1, 3, 3)), "dense(%)"),
    ((3, 3, 3), lambda s: ops.reshape(s.ids("bool", 3, 3), shape=(3, 1, 3, 1)), "dense(%)"),
    (
        (3, 3, 3),
        lambda s: ops.broadcast_to(
            ops.reshape(s.ids("bool", 3, 3), shape=(3, 1, 3, 1)), shape=(3, 1, 3, 3)
        ),
        "dense(%)",
    ),
    (
        (3, 3, 3),
        lambda s: ops.broadcast_to(
            ops.reshape(s.ids("bool", 3, 3), shape=(1, 1, 3, 3)), shape=(3, 1, 3, 3)
        ),
        "dense(%)",
    ),
    (SQUARE, lambda s: ops.take_at(s.ids("bool"), s.rows, s.k), "padding(%ids)"),
    (SQUARE, lambda s: ops.take_at(s.ids("bool"), s.rows, s.q), "dense(%)"),
    ((3, 3, 3), lambda s: ops.take_at(s.ids("bool"), s.k, s.rows), "dense(%)"),
    ((3, 3, 3), lambda s: ops.take_at(s.ids("bool"), 2 - s.rows, s.k), "dense(%)"),
    ((3, 3, 3), lambda s: ops.take_at(s.ids("bool", 3, 6), s.rows, s.k), "dense(%)"),
    (
        FIXED,
        lambda s: ops.take(ops.reshape(s.ids("bool"), shape=(10,)), s.rows * 5 + s.k),
        "padding(%ids)",
    ),
    (
        FIXED,
        lambda s: ops.take(ops.reshape(s.ids("bool"), shape=(10,)), s.rows * 4 + s.k),
        "dense(%)",
    ),
    (
        FIXED,
        lambda s: ops.take(
            ops.reshape(ops.reshape(s.ids("bool"), shape=(5, 2)), shape=(10,)), s.rows * 5 + s.k
        ),
        "padding(%ids)",
    ),
    (FIXED, lambda s: ops.take(s.ids("bool", 10), s.rows * 5 + s.k), "dense(%)"),
    (
        FIXED,
        lambda s: ops.take(
            ops.cast(ops.reshape(s.ids(), shape=(10,)), dtype="bool"), s.rows * 5 + s.k
        ),
        "dense(%)",
    ),
    (SQUARE, lambda s: lt(s.k, lengths(s)), "padding(%lengths)"),
    (SQUARE, lambda s: lt(s.k, ops.cast(lengths(s, "i32"), dtype="i64")), "padding(%lengths)"),
    (SQUARE, lambda s: lt(ops.cast(s.k, dtype="f32"), lengths(s, "f32")), "dense(%)"),
    (SQUARE, lambda s: lt(s.q, lengths(s)), "dense(%)"),
    (SQUARE, lambda s: lt(s.k + 1, lengths(s)), "dense(%)"),
    (SQUARE, lambda s: lt(s.k, lengths(s) + 1), "dense(%)"),
    (SQUARE, lambda s: ops.equal(s.k, lengths(s)), "dense(%)"),
    (SQUARE, lambda s: lt(s.k, s.ids("i64", s.n, name="lengths")), "dense(%)"),
    (SQUARE, lambda s: either(lt(s.k, s.q + 1), lt(s.k, lengths(s))), "prefix(%lengths)"),
    (SQUARE, lambda s: either(lt(s.k, lengths(s)), lt(s.k, s.q + 1)), "prefix(%lengths)"),
    (SQUARE, lambda s: either(lt(s.k, lengths(s)), lt(s.k, s.q + 2)), "dense(%)"),
    (SQUARE, lambda s: either(lt(s.k, lengths(s)), no(lt(s.q, s.k))), "prefix(%lengths)"),
    (SQUARE, lambda s: either(lt(s.k, s.q + 1), keys(s)), "dense(%)"),
    (
        STEP,
        lambda s: either(lt(s.k, lengths(s)), lt(s.k, s.at + 1)),
        "prefix(%lengths, offset=n - m)",
    ),
    (SQUARE, lambda s: both(lt(s.k, s.q + 1), lt(s.k, lengths(s))), "causal() & padding(%lengths)"),
    (SQUARE, lambda s: ops.equal(*groups(s)), "segments(%of_q, %of_k)"),
    (SQUARE, lambda s: ops.equal(*groups(s)[::-1]), "segments(%of_q, %of_k)"),
    (STEP, lambda s: ops.equal(*groups(s)), "segments(%of_q, %of_k)"),
    (
        STEP,
        lambda s: both(ops.equal(*groups(s)), lt(s.k, s.at + 1)),
        "segments(%of_q, %of_k) & causal(offset=n - m)",
    ),
    (SQUARE, lambda s: lt(*groups(s)), "dense(%)"),
    (SQUARE, lambda s: ops.equal(groups(s)[0], 1), "dense(%)"),
    (SQUARE, lambda s: ops.equal(s.q, groups(s)[1]), "dense(%)"),
    (SQUARE, lambda s: ops.equal(groups(s)[0], s.k), "dense(%)"),
    (SQUARE, lambda s: ops.equal(*[ops.cast(x, dtype="f32") for x in groups(s)]), "dense(%)"),
    (SQUARE, lambda s: ops.equal(s.ids("i64", s.b, 1, s.n, 1), groups(s)[1]), "dense(%)"),
    (SQUARE, lambda s: ops.equal(of_floats(s), groups(s)[1]), "dense(%)"),
    (SQUARE, lambda s: ops.equal(column(s, s.ids("i64") * 2), groups(s)[1]),
     "segments(%, %of_k)"),
    (SQUARE, lambda s: ops.equal(column(s, as_i64(s.ids("i32"))), groups(s)[1]),
     "segments(%ids, %of_k)"),
    (SQUARE, lambda s: ops.equal(column(s, as_i64(s.ids("f32"))), groups(s)[1]),
     "segments(%, %of_k)"),
    (SQUARE, lambda s: either(s.ids("bool", s.b, 1, 1, s.n), lt(s.k, s.q + 1)), "dense(%)"),
    # A mask of heads, of which there are as many as in the batch.
    (FIXED, lambda s: ops.reshape(s.ids("bool"), shape=(2, 1, 5)), "dense(%)"),
    (FIXED, lambda s: ops.reshape(s.ids("bool"), shape=(1, 2, 1, 5)), "dense(%)"),
    (SQUARE, lambda s: ops.take_at(s.ids("bool"), s.rows, s.ids("i64", 1, 1, 1, s.n, name="i")),
     "dense(%)"),
    (SQUARE, lambda s: ops.take_at(s.ids("bool"), line(1, 1, 1, 1, 1), s.k), "dense(%)"),
    ((1, "n", "n"), lambda s: ops.take_at(s.ids("bool"), s.rows, s.k), "padding(%ids)"),
    (SQUARE, lambda s: row(s, ops.take_at(s.ids("bool"), line(1, 1, 1, 1, 1), repeated(s))),
     "dense(%)"),
    (FIXED, lambda s: lt(keys(s, "i64"), s.rows * 5 + s.k), "dense(%)"),
    (SQUARE, lambda s: row(s, lt(s.ids(), 1)), "padding(%)"),
    (SQUARE, lambda s: row(s, ops.cast(s.ids("f32"), dtype="bool")), "padding(%)"),
    (SQUARE, lambda s: row(s, ops.cast(s.ids("i32"), dtype="bool")), "padding(%ids)"),
    (SQUARE, lambda s: row(s, no(ops.equal(s.ids(), 0))), "padding(%ids)"),
    (SQUARE, lambda s: row(s, ops.equal(s.ids(), 0)), "padding(%)"),
    (SQUARE, lambda s: row(s, no(lt(0, s.ids()))), "padding(%)"),
    (SQUARE, lambda s: ops.reshape(s.ids("bool", 1), shape=(1, 1, 1, 1)), "dense(%)"),
    (SQUARE, lambda s: both(lt(s.k, s.q + 1), no(lt(s.k * last(s), 0))), "causal() & dense(%)"),
    (SQUARE, lambda s: no(lt(by_row(s, s.q), by_row(s, s.k))), "causal()"),
    (SQUARE, lambda s: no(lt(by_row(s, s.q, 1), by_row(s, s.k))), "causal(offset=1)"),
    (SQUARE, lambda s: both(lt(s.k, s.q + 1), packed(s, -1)), "causal()"),
    (SQUARE, lambda s: both(lt(s.k, s.q + 1), packed(s, -2)), "causal() & dense(%)"),
    (SQUARE, lambda s: both(lt(s.k, s.q + 1), no(packed(s, -1))), "causal() & dense(%)"),
]  # fmt: skip


def positions(s: Scores) -> Any:
    """The positions of each in the batch, as exporters repeat them."""
    return ops.broadcast_to(line(s.n, 1, s.n), shape=(s.b, s.n))


def by_row(s: Scores, place: Any, more: int = 0) -> Any:
    return ops.take_at(positions(s) + more, s.rows, place)


def packed(s: Scores, first: int) -> Any:
    """Whether a query and a key are of one sequence: another begins where positions do not go on,
    from the `first`, which stands before them."""
    at = positions(s)
    whole = ops.concat(ops.full(shape=(s.b, 1), value=first, dtype="i64"), at, axis=1)
    before = ops.slice_(whole, axis=1, start=0, stop=s.n)
    groups = ops.cumsum(as_i64(no(ops.equal(at - before, 1))), axis=-1)
    return ops.equal(*(ops.take_at(groups, s.rows, place) for place in (s.q, s.k)))


def last(s: Scores) -> Any:
    """The last position alone."""
    return ops.reshape(
        ops.slice_(ops.iota(length=s.n), axis=0, start=s.n - 1, stop=s.n), shape=(1,) * 4
    )


def repeated(s: Scores) -> Any:
    """The keys, for each in the batch, along another axis than that of the batch."""
    return ops.broadcast_to(s.k, shape=(1, s.b, 1, s.n))


def row(s: Scores, keep: Any) -> Any:
    return ops.reshape(keep, shape=(s.b, 1, 1, s.n))


def column(s: Scores, ids: Any) -> Any:
    return ops.reshape(ids, shape=(s.b, 1, s.n, 1))


def as_i64(ids: Any) -> Any:
    return ops.cast(ids, dtype="i64")


def of_floats(s: Scores) -> Any:
    return as_i64(column(s, s.ids("f32")))


@pytest.mark.parametrize("at", range(len(SEEN)))
def test_conditions(at: int) -> None:
    sizes, seen, mask = SEEN[at]
    assert recover(sizes, lambda s: s.scores + s.added(seen(s))) == mask
