"""Which masks tensors are that are added to scores, or filled in; and that values stay."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.mask_graphs import HIDDEN, Make, Scores, as_floats, keys, number, recover

from tfgraph import ops
from tfgraph.ir.mask import alibi, bias, causal, dense, padding, relative, window

SQUARE, FIXED, HEADS = ("b", "n", "n"), (3, 4, 6), (2, 4, 6)
lt = ops.less

MADE: list[tuple[tuple[Any, ...], Make, str]] = [
    (SQUARE, lambda s: s.added(keys(s)) + s.scores, "padding(%ids)"),
    (SQUARE, lambda s: s.scores / 2 + s.added(keys(s)), "padding(%ids)"),
    (SQUARE, lambda s: ops.tanh(s.scores * 2) * 3 + s.added(keys(s)), "padding(%ids)"),
    (SQUARE, lambda s: ops.exp(s.scores) + s.added(keys(s)), ""),
    (SQUARE, lambda s: s.scores + ops.where(keys(s), number(HIDDEN), number(0)), "dense(%)"),
    (SQUARE, lambda s: s.scores + ops.where(keys(s), number(0), number(-1e4)), "padding(%ids)"),
    (SQUARE, lambda s: s.scores + ops.where(keys(s), number(0), number(-9999)), "bias(%)"),
    (
        SQUARE,
        lambda s: s.scores + ops.where(keys(s), number(1), number(HIDDEN)),
        "padding(%ids) & bias(%)",
    ),
    (
        SQUARE,
        lambda s: s.scores + ops.where(keys(s), number(HIDDEN), number(1)),
        "dense(%) & bias(%)",
    ),
    (
        SQUARE,
        lambda s: (
            s.scores
            + ops.broadcast_to(
                ops.where(keys(s), s.ids("f32", s.n, s.n, name="t"), number(HIDDEN)),
                shape=(s.b, 2, s.n, s.n),
            )
        ),
        "padding(%ids) & bias(%t)",
    ),
    (SQUARE, lambda s: s.scores + ops.where(keys(s), number(HIDDEN), number(HIDDEN)), "bias(%)"),
    (SQUARE, lambda s: s.scores + ops.full(shape=(s.n, s.n), value=0), ""),
    (SQUARE, lambda s: s.scores + (1 - as_floats(keys(s, "i64"))) * -10000, "padding(%ids)"),
    (SQUARE, lambda s: s.scores + -10000 * (1 - as_floats(keys(s, "i64"))), "padding(%ids)"),
    (
        SQUARE,
        lambda s: s.scores + number(-10000) * (1 - as_floats(keys(s, "i64"))),
        "padding(%ids)",
    ),
    (SQUARE, lambda s: s.scores + (1 - as_floats(keys(s))) * -10000, "padding(%ids)"),
    (SQUARE, lambda s: s.scores + (1 - as_floats(lt(s.k, s.q + 1))) * -10000, "causal()"),
    (SQUARE, lambda s: s.scores + as_floats(lt(s.q, s.k)) * -10000, "causal()"),
    (SQUARE, lambda s: s.scores + as_floats(lt(s.q, s.k)) * -9999, "bias(%)"),
    (SQUARE, lambda s: s.scores + as_floats(s.k) * -10000, "bias(%)"),
    (SQUARE, lambda s: s.scores + (1 - keys(s, "f32")) * -10000, "bias(%)"),
    (SQUARE, lambda s: s.scores + (2 - as_floats(keys(s, "i64"))) * -10000, "bias(%)"),
    (SQUARE, lambda s: s.scores + (1 + as_floats(keys(s, "i64"))) * -10000, "bias(%)"),
    (SQUARE, lambda s: s.scores + (1 - as_floats(keys(s, "i64"))) / -10000, "bias(%)"),
    (
        SQUARE,
        lambda s: s.scores + (1 - as_floats(as_floats(keys(s, "f32"), "f64"))) * -10000,
        "bias(%)",
    ),
    (
        SQUARE,
        lambda s: s.scores + (1 - ops.reshape(as_floats(s.ids()), shape=(s.b, 1, 1, s.n))) * -10000,
        "padding(%ids)",
    ),
    (
        SQUARE,
        lambda s: (
            s.scores + (1 - ops.reshape(as_floats(s.ids("f64")), shape=(s.b, 1, 1, s.n))) * -10000
        ),
        "bias(%)",
    ),
    (SQUARE, lambda s: s.scores + (1 - ops.full(shape=(s.n,), value=1)) * -10000, ""),
    (SQUARE, lambda s: s.scores + s.ids("f32", s.n, s.n), "bias(%ids)"),
    (
        SQUARE,
        lambda s: s.scores + ops.broadcast_to(s.ids("f32", s.n, s.n), shape=(2, s.n, s.n)),
        "bias(%ids)",
    ),
    (
        SQUARE,
        lambda s: s.scores + (s.ids("f32", s.n, s.n, name="t") + s.added(keys(s))),
        "padding(%ids) & bias(%t)",
    ),
    (
        SQUARE,
        lambda s: (s.scores + s.ids("f32", s.n, s.n)) + s.added(lt(s.k, s.q + 1)),
        "causal() & bias(%ids)",
    ),
    (
        SQUARE,
        lambda s: (s.ids("f32", s.n, s.n) + s.scores) + s.added(lt(s.k, s.q + 1)),
        "causal() & bias(%ids)",
    ),
    (SQUARE, lambda s: (s.scores + 3) + s.added(lt(s.k, s.q + 1)), ""),
    (SQUARE, lambda s: s.scores + s.ids("f32", 3, s.b, 2, s.n, s.n), ""),
    (SQUARE, lambda s: ops.where(keys(s), s.scores, number(HIDDEN)), "padding(%ids)"),
    (SQUARE, lambda s: ops.where(keys(s), number(HIDDEN), s.scores), "dense(%)"),
    (SQUARE, lambda s: ops.where(lt(s.q, s.k), number(HIDDEN), s.scores), "causal()"),
    (SQUARE, lambda s: ops.where(keys(s), s.scores, number(-9999)), ""),
    (SQUARE, lambda s: ops.where(keys(s), ops.exp(s.scores), number(HIDDEN)), ""),
    (SQUARE, lambda s: ops.where(keys(s), number(HIDDEN), ops.exp(s.scores)), ""),
    (SQUARE, lambda s: ops.where(keys(s), number(-9999), s.scores), ""),
    (SQUARE, lambda s: ops.where(lt(s.k, s.q), s.scores, number(HIDDEN)), "causal(offset=-1)"),
    (
        SQUARE,
        lambda s: ops.where(keys(s), s.scores + s.ids("f32", s.n, s.n, name="t"), number(HIDDEN)),
        "padding(%ids) & bias(%t)",
    ),
    (
        SQUARE,
        lambda s: ops.where(keys(s), s.ids("f32", s.n, s.n, name="t") + s.scores, number(HIDDEN)),
        "padding(%ids) & bias(%t)",
    ),
    (
        SQUARE,
        lambda s: ops.where(keys(s), number(HIDDEN), s.scores + s.ids("f32", s.n, s.n, name="t")),
        "dense(%) & bias(%t)",
    ),
    *[
        # Beside a mask that is read: what is not one stays a bias, and hinders nothing.
        (
            SQUARE,
            lambda s, make=make: s.scores + s.added(lt(s.k, s.q + 1)) + make(s),
            "causal() & bias(%)",
        )
        for make in (
            lambda s: as_floats(keys(s, "i64")) * -10000,
            lambda s: ops.where(keys(s), number(1), number(2)) * -10000,
            lambda s: (1 - ops.reshape(as_floats(s.ids("f64")), shape=(s.b, 1, 1, s.n))) * -10000,
            lambda s: (1 - as_floats(as_floats(keys(s, "f32"), "f64"))) * -10000,
            lambda s: (1 - as_floats(s.ids("i64", s.b, 2, s.n, s.n))) * -10000,
            lambda s: (1 - as_floats(keys(s, "f64"))) * -10000,
        )
    ],
    (
        SQUARE,
        lambda s: (
            s.scores
            + ops.where(
                keys(s),
                ops.broadcast_to(ops.reshape(number(0), shape=(1, 1)), shape=(s.n, s.n)),
                number(HIDDEN),
            )
        ),
        "padding(%ids)",
    ),
    (
        SQUARE,
        lambda s: s.scores + ops.broadcast_to(s.added(keys(s)), shape=(s.b, 1, s.n, s.n)),
        "padding(%ids)",
    ),
    (
        SQUARE,
        lambda s: (
            s.scores
            + (1 - as_floats(ops.reshape(ops.cast(s.ids(), dtype="i32"), shape=(s.b, 1, 1, s.n))))
            * -10000
        ),
        "padding(%)",
    ),
    *[
        (SQUARE, lambda s, make=make: s.scores + padded(s, make), mask)
        for make, mask in (
            (lambda s, t, keep: ops.equal(t + keep, 0), "causal() & padding(%ids)"),
            (lambda s, t, keep: ops.equal(keep + t, 0), "causal() & padding(%ids)"),
            (lambda s, t, keep: ops.equal(t + keep, 1), "dense(%) & causal()"),
            (
                lambda s, t, keep: ops.equal(t + s.ids("f32", s.b, 1, 1, s.n, name="f"), 0),
                "dense(%) & causal()",
            ),
            (lambda s, t, keep: lt(t + keep, 0), "dense(%) & causal()"),
            (lambda s, t, keep: ops.equal(t * keep, 0), "dense(%) & causal()"),
            (lambda s, t, keep: ops.equal(keep + s.added(lt(s.q, s.k)), 0), "dense(%) & causal()"),
            (
                lambda s, t, keep: ops.equal(s.ids("f32", s.b, 1, 1, s.n, name="f"), 0),
                "dense(%) & causal()",
            ),
            (lambda s, t, keep: s.ids("bool", s.b, 1, 1, s.n, name="c"), "dense(%) & causal()"),
        )
    ],
    (
        SQUARE,
        lambda s: (
            s.scores
            + padded(s, lambda s, t, keep: ops.equal(t + keep, 0), s.ids("f32", s.n, s.n, name="t"))
        ),
        "dense(%) & bias(%t)",
    ),
]


def padded(s: Scores, where: Any, added: Any = None) -> Any:
    """What is added, and a least number where a condition says so."""
    added = s.added(lt(s.k, s.q + 1)) if added is None else added
    return ops.where(where(s, added, as_floats(keys(s, "i64"))), number(HIDDEN), added)


def attended(s: Scores, mask: Any) -> Any:
    """Attention of two heads, whose sizes differ from those of batch, queries and keys."""
    q, k, v = (s.g.input(n, "f32", s.b, w, 14) for n, w in (("q", s.m), ("k", s.n), ("v", s.n)))
    return ops.attention(q, k, v, mask, heads=2, kv_heads=2, scale=0.5)


def square(s: Scores, name: str = "t") -> Any:
    return s.ids("f32", s.m, s.n, name=name)


MASKED: list[tuple[tuple[Any, ...], Make, str]] = [
    (FIXED, lambda s: attended(s, dense(lt(s.k, s.q + 3))), "causal(offset=2)"),
    (FIXED, lambda s: attended(s, bias(square(s)) & dense(keys(s))), "padding(%ids) & bias(%t)"),
    (FIXED, lambda s: attended(s, causal(2)), "causal(offset=2)"),
    (SQUARE, lambda s: ops.mask(s.scores, dense(lt(s.k, s.q + 1))), "causal()"),
    (SQUARE, lambda s: ops.mask(s.scores, window(None, 0)), "causal()"),
    (SQUARE, lambda s: ops.mask(s.scores, window(None, None)), ""),
    (FIXED, lambda s: ops.mask(s.scores, window(None, 1, 2)), "causal(offset=3)"),
    (SQUARE, lambda s: ops.mask(s.scores, window(None, 1, 2)), "window(right=1, offset=2)"),
    (("b", 3, "n"), lambda s: ops.mask(s.scores, window(None, 1, s.n - 3)),
     "window(right=1, offset=n - 3)"),
    (SQUARE, lambda s: ops.mask(s.scores, padding(ops.cast(s.ids(), dtype="bool"))),
     "padding(%ids)"),
    (SQUARE, lambda s: ops.mask(s.scores, bias(square(s) + s.added(keys(s)))),
     "padding(%ids) & bias(%t)"),
    (SQUARE, lambda s: ops.mask(s.scores, bias(square(s) + square(s, "u"))),
     "bias(%t) & bias(%u)"),
    (SQUARE, lambda s: ops.mask(s.scores + square(s), causal()), "causal() & bias(%t)"),
    (SQUARE, lambda s: ops.mask(ops.exp(s.scores) + square(s), causal()), "causal() & bias(%t)"),
    (SQUARE, lambda s: ops.mask(ops.mask(s.scores, causal()), padding(s.ids())),
     "causal() & padding(%ids)"),
    (SQUARE, lambda s: ops.mask(s.scores, bias(ops.mask(square(s), causal()))),
     "causal() & bias(%t)"),
    (SQUARE, lambda s: ops.mask(ops.exp(s.scores), bias(square(s))), ""),
    (SQUARE, lambda s: attended(s, dense(lt(s.k, s.q + 1))), "causal()"),
    (SQUARE, lambda s: ops.mask(s.scores, bias(s.added(keys(s)) + square(s))),
     "padding(%ids) & bias(%t)"),
    (SQUARE, lambda s: ops.mask(square(s) + s.scores, causal()), "causal() & bias(%t)"),
    (SQUARE, lambda s: ops.mask(square(s) + ops.exp(s.scores), causal()), "causal() & bias(%t)"),
    (SQUARE, lambda s: ops.mask(ops.exp(s.scores) - square(s), causal()), "causal()"),
    (SQUARE, lambda s: ops.exp(s.scores) + 3, ""),
    (SQUARE, lambda s: ops.mask(ops.exp(s.scores) + 3, causal()), "causal()"),
    (SQUARE, lambda s: ops.mask(each(s, s.b, 2) + s.scores, causal()), "causal() & bias(%t)"),
    (SQUARE, lambda s: inside(s, each(s, s.b, 1), causal()), "causal() & bias(%t)"),
    (SQUARE, lambda s: (s.scores + square(s)) + square(s, "u") + square(s, "v"),
     "bias(%t) & bias(%u) & bias(%v)"),
    (SQUARE, lambda s: s.scores * square(s) + s.added(keys(s)), ""),
    (SQUARE, lambda s: square(s) @ square(s, "u") + square(s, "v"), ""),
    (SQUARE,
     lambda s: ops.mean(ops.exp(s.scores), axis=1) @ s.ids("f32", s.b, s.n, s.n) + square(s),
     "bias(%t)"),
    (SQUARE, lambda s: ops.mask(s.scores, padding(s.ids()) & bias(ops.mask(square(s), causal()))),
     "padding(%ids) & causal() & bias(%t)"),
    (SQUARE, lambda s: inside(s, ops.broadcast_to(number(0), shape=(s.n, s.n)), causal()),
     "causal()"),
    (SQUARE, lambda s: inside(s, square(s), window(1, 1)), "window(left=1, right=1) & bias(%t)"),
    (SQUARE, lambda s: inside(s, square(s), dense(lt(0, s.ids("i64", s.n, s.n)))),
     "dense(%) & bias(%t)"),
    (SQUARE, lambda s: inside(s, square(s), bias(square(s, "u"))), "bias(%t) & bias(%u)"),
    (SQUARE, lambda s: inside(s, s.ids("f32", 1, s.n, name="t"), causal(1)),
     "causal(offset=1) bias(%)"),
    (SQUARE, lambda s: inside(s, each(s, s.b, 1), padding(s.ids())), "padding(%ids) & bias(%t)"),
    (SQUARE, lambda s: inside(s, s.ids("f32", s.b, 1, 1, s.n, name="t"), padding(s.ids())),
     "padding(%ids) bias(%)"),
    (SQUARE, lambda s: inside(s, each(s, 1, 1), padding(s.ids("i64", 1, s.n))),
     "padding(%ids) bias(%)"),
    (HEADS, lambda s: inside(s, each(s, 2), padding(s.ids())), "padding(%ids) bias(%)"),
    (SQUARE, lambda s: inside(s, each(s, 2), alibi(s.ids("f32", 2, name="slopes"))),
     "bias(%t) & alibi(%slopes)"),
    (SQUARE, lambda s: inside(s, each(s, 2), relative(s.ids("f32", 8, 2, name="rows"))),
     "bias(%t) & relative(%rows)"),
    (SQUARE, lambda s: inside(s, each(s, 1, 1), alibi(s.ids("f32", 1, name="slopes"))),
     "alibi(%slopes) bias(%)"),
]  # fmt: skip


def inside(s: Scores, t: Any, mask: Any) -> Any:
    """A tensor that is masked, and added to scores."""
    return ops.mask(s.scores, bias(ops.mask(t, mask)))


def each(s: Scores, *outer: Any) -> Any:
    return s.ids("f32", *outer, s.m, s.n, name="t")


@pytest.mark.parametrize("at", range(len(MASKED)))
def test_what_is_a_mask_already(at: int) -> None:
    sizes, made, mask = MASKED[at]
    assert recover(sizes, made) == mask


@pytest.mark.parametrize("at", range(len(MADE)))
def test_what_is_added_or_filled_in(at: int) -> None:
    sizes, made, mask = MADE[at]
    assert recover(sizes, made) == mask


def test_zeros_that_are_masked_are_no_bias_where_masks_are_strict() -> None:
    def made(s: Scores) -> Any:
        zeros = ops.broadcast_to(number(0), shape=(s.n, s.n))
        return inside(s, zeros, causal())

    assert recover(SQUARE, made, "recover-masks{strict=true}") == "causal()"
