"""Which mask is read from what an exporter adds to scores, or fills in; and that values stay."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from helpers.reference import run_graph

from tfgraph import ops
from tfgraph.ir import Dim, as_dim
from tfgraph.ops import Builder
from tfgraph.passes import parse_pipeline, run_pipeline

HIDDEN = -3.4e38
SIZES = {"b": 2, "n": 4, "m": 3}
"""What the symbols are when values are compared."""


def line(size: Any, *shape: Any) -> Any:
    return ops.reshape(ops.iota(length=size), shape=shape)


def number(value: float, dtype: str = "f32") -> Any:
    return ops.full(shape=(), value=value, dtype=dtype)


@dataclass(frozen=True)
class Scores:
    """Scores [batch, 2, queries, keys], and positions that broadcast with them."""

    g: Builder
    b: Dim
    m: Dim
    n: Dim

    @property
    def q(self) -> Any:
        return line(self.m, 1, 1, self.m, 1)

    @property
    def k(self) -> Any:
        return line(self.n, 1, 1, 1, self.n)

    @property
    def at(self) -> Any:
        """Where the queries stand among the keys: at the end."""
        whole = ops.iota(length=self.n)
        last = ops.slice_(whole, axis=0, start=self.n - self.m, stop=self.n)
        return ops.reshape(last, shape=(1, 1, self.m, 1))

    @property
    def rows(self) -> Any:
        return line(self.b, self.b, 1, 1, 1)

    @property
    def scores(self) -> Any:
        q = self.g.input("q", "f32", self.b, 2, self.m, 3)
        k = self.g.input("k", "f32", self.b, 2, self.n, 3)
        return q @ ops.transpose(k, perm=(0, 1, 3, 2))

    def ids(self, dtype: str = "i64", *shape: Any, name: str = "ids") -> Any:
        return self.g.input(name, dtype, *(shape or (self.b, self.n)))

    def added(self, seen: Any) -> Any:
        return ops.where(seen, number(0), number(HIDDEN))


Make = Callable[[Scores], Any]
SQUARE, STEP, FIXED, ONE, LATER = (
    ("b", "n", "n"), ("b", "m", "n"), (2, 3, 5), ("b", 1, "n"), (2, 3, 3)
)  # fmt: skip
lt, no, both, either = ops.less, ops.logical_not, ops.logical_and, ops.logical_or

SEEN: list[tuple[tuple[Any, ...], Make, str]] = [
    (SQUARE, lambda s: lt(s.k, s.q + 1), "causal()"),
    (SQUARE, lambda s: no(lt(s.q, s.k)), "causal()"),
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
    (FIXED, lambda s: lt(s.k, s.q + 3), "causal(offset=2)"),
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
]


def keys(s: Scores, dtype: str = "bool") -> Any:
    return ops.reshape(s.ids(dtype), shape=(s.b, 1, 1, s.n))


def lengths(s: Scores, dtype: str = "i64") -> Any:
    return ops.reshape(s.ids(dtype, s.b, name="lengths"), shape=(s.b, 1, 1, 1))


def groups(s: Scores) -> tuple[Any, Any]:
    q, k = s.ids("i64", s.b, s.m, name="of_q"), s.ids("i64", name="of_k")
    return ops.reshape(q, shape=(s.b, 1, s.m, 1)), ops.reshape(k, shape=(s.b, 1, 1, s.n))


def as_floats(seen: Any, dtype: str = "f32") -> Any:
    return ops.cast(seen, dtype=dtype)


SEEN += [
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
]


MADE: list[tuple[tuple[Any, ...], Make, str]] = [
    (SQUARE, lambda s: s.added(keys(s)) + s.scores, "padding(%ids)"),
    (SQUARE, lambda s: s.scores / 2 + s.added(keys(s)), "padding(%ids)"),
    (SQUARE, lambda s: ops.tanh(s.scores * 2) * 3 + s.added(keys(s)), "padding(%ids)"),
    (SQUARE, lambda s: ops.exp(s.scores) + s.added(keys(s)), ""),
    (SQUARE, lambda s: s.scores + ops.where(keys(s), number(HIDDEN), number(0)), "dense(%)"),
    (SQUARE, lambda s: s.scores + ops.where(keys(s), number(0), number(-1e4)), "padding(%ids)"),
    (SQUARE, lambda s: s.scores + ops.where(keys(s), number(0), number(-9999)), "bias(%)"),
    (SQUARE, lambda s: s.scores + ops.where(keys(s), number(1), number(HIDDEN)), "bias(%)"),
    (SQUARE, lambda s: s.scores + ops.where(keys(s), number(HIDDEN), number(1)), "bias(%)"),
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
]


def recover(sizes: tuple[Any, ...], make: Make, passes: str = "recover-masks") -> str:
    """The mask of softmax(what is made), after the values were compared."""
    with ops.graph("g") as g:
        s = Scores(g, *map(as_dim, sizes))
        g.output("y", ops.softmax(make(s)))
    before = g.build()
    graph, _ = run_pipeline(before, parse_pipeline(passes))
    rng = np.random.default_rng(0)
    sizes_of = {n: as_dim(v) for n, v in SIZES.items()}
    given = {}
    for i in before.inputs:
        shape = tuple(int(d.substitute(sizes_of)) for d in i.value.type.shape)
        if i.value.type.dtype.is_float:
            given[i.value.name] = rng.standard_normal(shape).astype(np.float32)
        else:
            array = rng.integers(0, 2, shape)
            array[..., :1] = 1  # a mask allows a key
            given[i.value.name] = array.astype(i.value.type.dtype.value)
    want, got = (run_graph(item, given)["y"] for item in (before, graph))
    kept = (got != 0).any(-1)  # rows with an allowed key
    np.testing.assert_allclose(got[kept], want[kept], 1e-5, 1e-6)
    masks = [node for node in graph.nodes if node.op == "mask"]
    return " ".join(re.sub(r"%[\d~]+", "%", str(node.operands[1])) for node in masks)


@pytest.mark.parametrize("at", range(len(SEEN)))
def test_conditions(at: int) -> None:
    sizes, seen, mask = SEEN[at]
    assert recover(sizes, lambda s: s.scores + s.added(seen(s))) == mask


@pytest.mark.parametrize("at", range(len(MADE)))
def test_what_is_added_or_filled_in(at: int) -> None:
    sizes, made, mask = MADE[at]
    assert recover(sizes, made) == mask
