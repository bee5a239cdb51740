"""Graphs that look like what a pass is for and are not: no rule of it applies, and none reports
that it nearly did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from helpers.rule_graphs import tensor, weight

from tfgraph import ops
from tfgraph.ops import Builder
from tfgraph.passes import PASSES, run_pipeline

Make = Callable[[Builder], Any]
GRAPHS: dict[str, Make] = {}


def leaves(pass_: str) -> Callable[[Make], Make]:
    """A graph of one result, or of some, that a pass leaves alone."""

    def keep(make: Make) -> Make:
        GRAPHS[f"{pass_}: {make.__name__}"] = make
        return make

    return keep


@leaves("recover-linear")
def products_of_activations(g: Builder) -> Any:
    """Of matrices: of another input, of constants alone, and of a fixed size but not of weights."""
    x, w = g.input("x", "f32", "n", 2), weight("w", 2, 2)
    turned = ops.transpose(g.input("y", "f32", "m", 2), perm=(1, 0))
    return x @ turned, x @ ops.full(shape=(2, 2), value=3), x @ (w * ops.mean(ops.exp(x), axis=0))


@leaves("recover-linear")
def sums_that_are_no_bias(g: Builder) -> Any:
    x, w, b = g.input("x", "f32", "n", 2), weight("w", 2, 2), weight("b", 2)
    y = ops.linear(tensor("z", 2, 2), w)
    return (
        ops.linear(x, w) + ops.mean(ops.exp(x), axis=0),
        ops.linear(x, w, b) + b,
        ops.linear(x, w) + 3,
        ops.linear(x, weight("v", 2, 1)) + b,
        y + weight("t", 2, 2),
    )


@leaves("recover-norms")
def norms_and_what_is_no_scale_or_bias(g: Builder) -> Any:
    x, s = tensor("x", 3, 3), weight("s", 3)
    norm, rms, matrix = ops.layer_norm(x), ops.rms_norm(x), weight("t", 3, 3)
    two = ops.full(shape=(3,), value=2, dtype="f32")
    return (
        norm * matrix, rms * matrix, norm * 2, norm + matrix, norm + 2, rms + s,
        ops.layer_norm(x, s) + matrix, ops.layer_norm(x, two), ops.rms_norm(x, two),
    )  # fmt: skip


def folded(name: str, *before: int, shape: tuple[int, ...] = (6, 4, 5)) -> Any:
    return ops.reshape(tensor(name, *before), shape=shape)


@leaves("recover-heads")
def other_folds(g: Builder) -> Any:
    """Reshapes to [6, 4, 5] that fold nothing, beside those that do."""
    a, b, c = folded("a", 2, 3, 4, 5), folded("b", 24, 5), folded("c", 4, 6, 4, 5, shape=(6, 4, 20))
    d = folded("d", 6, 20)
    turned = [ops.transpose(t, perm=(0, 2, 1)) for t in (a, b, d)]
    return (
        a @ turned[1], b @ turned[0], a @ ops.reshape(tensor("e", 6, 20), shape=(6, 5, 4)),
        ops.weighted_sum(folded("f", 6, 20), folded("h", 2, 3, 5, 2, shape=(6, 5, 2))),
        b * 2, d / 3, c * 3, b + d, ops.reshape(turned[1], shape=(2, 3, 4, 5)),
    )  # fmt: skip


@leaves("recover-heads")
def heads_of_five_axes(g: Builder) -> Any:
    return folded("x", 1, 2, 3, 4, 5, shape=(2, 3, 4, 5)) * 2


@leaves("recover-heads")
def sums_of_folded_heads(g: Builder) -> Any:
    a, one = folded("a", 2, 3, 4, 5), folded("b", 1, 1, 4, 5, shape=(1, 4, 5))
    return a + 3, a + tensor("t", 4, 5), one + tensor("u", 6, 4, 5), a + tensor("v", 2, 6, 4, 5)


@leaves("recover-heads")
def keys_turned_into_another_shape(g: Builder) -> Any:
    turned = ops.transpose(folded("a", 2, 3, 4, 5), perm=(0, 2, 1))
    return ops.reshape(turned, shape=(3, 2, 4, 5)), ops.reshape(turned, shape=(6, 20))


@leaves("recover-norms")
def layer_norm_of_what_is_centered(g: Builder) -> Any:
    x = tensor("x", 3, 3)
    return ops.layer_norm(x - ops.mean(x, axis=-1, keepdims=True), eps=0.01)


@leaves("recover-heads")
def scaled_matrices(g: Builder) -> Any:
    x, q, k = (tensor(n, 2, 3, 3) for n in "xqk")
    m, n = (tensor(name, 3, 3) for name in "mn")
    return (
        (m * 2) @ n, m @ (n * 2), (q * 2) @ m, m @ (k * 2), (q * m) @ k,
        ops.transpose(x * 2, perm=(1, 0, 2)), ops.transpose(m * 2, perm=(1, 0)),
    )  # fmt: skip


@leaves("recover-heads")
def operands_scaled_by_other_roots(g: Builder) -> Any:
    """By two different ones, by one of a negative number, and by one of more axes."""
    q, k = tensor("q", 2, 3, 3), tensor("k", 2, 3, 3)
    two, three, less = (ops.sqrt(ops.full(shape=(1,), value=v)) for v in (2, 3, -2))
    wide = ops.sqrt(ops.full(shape=(4, 1, 1, 1), value=2))
    return (q * two) @ (k * three), (q * less) @ (k * less), (q * wide) @ (k * wide), q @ (k * two)


@leaves("recover-heads")
def products_of_no_weights(g: Builder) -> Any:
    x, v = tensor("x", 2, 3, 3), tensor("v", 2, 3, 3)
    chosen = g.input("chosen", "bool", 2, 3, 3)
    one, other = ops.full(shape=(2, 3, 3), value=1), tensor("other", 2, 3, 3)
    m = tensor("m", 3, 3)
    return (
        x @ v, ops.exp(x) @ v, ops.softmax(m) @ tensor("n", 3, 3), ops.softmax(x) @ m,
        ops.where(chosen, x, one) @ v, ops.where(chosen, x, other) @ v,
        ops.where(chosen, x, ops.exp(other)) @ v,
    )  # fmt: skip


@leaves("recover-bools")
def other_bools(g: Builder) -> Any:
    a, b, c = (g.input(n, "bool", 3) for n in "abc")
    i = g.input("i", "i64", 3)
    number = [ops.cast(t, dtype="i64") for t in (a, b)]
    return (
        ops.logical_or(ops.logical_and(a, b), c),
        ops.logical_or(ops.logical_and(a, b), ops.logical_and(a, c)),
        ops.less(number[0], i), ops.less(i, number[1]),
        ops.less(ops.cast(i, dtype="f32"), ops.cast(i * 2, dtype="f32")),
        ops.less(ops.cast(i, dtype="f32"), ops.cast(b, dtype="f32")),
        ops.less(ops.cast(a, dtype="f32"), ops.cast(i, dtype="f32")),
    )  # fmt: skip


@leaves("recover-indices")
def rows_of_no_table(g: Builder) -> Any:
    ids, numbers = g.input("ids", "i64", 2), g.input("numbers", "i64", 3, 2)
    return (
        ops.take(weight("t", 3, 2, 2), ids), ops.take(weight("w", 3, 2), ids, axis=1),
        ops.take(weight("v", 3), ids), ops.take(numbers * 2, ids),
    )  # fmt: skip


@leaves("recover-indices")
def indices_that_are_what_they_were(g: Builder) -> Any:
    """Plain ones, one that says how many are read, one of two that was narrower, computed ones."""
    x, y = tensor("x", 2, 2), tensor("y", 3)
    i, j = g.input("i", "i32", 2), g.input("j", "i64", 2)
    wide, one = ops.cast(i, dtype="i64"), g.input("one", "i64", 1)
    numbers = ops.cast(tensor("f", 2), dtype="i64")
    return (
        ops.take_at(x, j, j), ops.take_at(y, ops.broadcast_to(one, shape=(2,))),
        ops.take_at(x, wide, j), ops.take_at(y, numbers), ops.take_at(y, j + 1),
        ops.take_at(y, -i), ops.take_at(y, ops.iota(length=2)),
        ops.take_at(tensor("z", 2, 2, 2, 2, 2), wide, wide, wide, wide, wide),
    )  # fmt: skip


def weight_of(g: Builder) -> Any:
    return g.param("rows", "i64", 6, 1)


def narrow(g: Builder) -> Any:
    """A column [1, 2] of indices [2, 1]."""
    column = ops.reshape(g.input("q", "i64", 2, 1), shape=(1, 2, 1))
    both = ops.concat(column, g.input("r", "i64", 1, 2, 1), axis=2)
    return ops.reshape(ops.slice_(both, axis=2, start=0, stop=1), shape=(1, 2))


@leaves("recover-indices")
def columns_of_something_else(g: Builder) -> Any:
    """Parts put beside each other along another axis, of another shape or width, or none."""
    y = tensor("y", 6)
    a, b, c = (g.input(n, "i64", 2, 3, k) for n, k in (("a", 1), ("b", 1), ("c", 2)))
    i = ops.reshape(g.input("i", "i64", 3, 2), shape=(2, 3, 1))
    flat = ops.reshape(g.input("j", "i64", 2, 3), shape=(2, 3, 1))

    def column(both: Any, start: int, axis: int = 2) -> Any:
        part = ops.slice_(both, axis=axis, start=start, stop=start + 1)
        return ops.take_at(y, ops.reshape(part, shape=(2, 3) if axis == 2 else (3,)))

    return (
        column(ops.concat(a, b, axis=2), 1), column(ops.concat(i, a, axis=2), 0),
        column(ops.concat(c, flat, axis=2), 1), column(c, 1),
        column(ops.concat(flat, c, axis=2) * 2, 0), column(flat * c, 0),
        ops.take_at(y, ops.reshape(g.input("k", "i64", 6), shape=(2, 3))),
        ops.take_at(y, ops.reshape(flat * 2, shape=(6,))),
        ops.take_at(y, ops.reshape(-ops.concat(flat, a, axis=2), shape=(2, 6))),
        column(ops.concat(ops.embedding(g.input("l", "i64", 2, 3), weight_of(g)), a, axis=2), 0),
        column(ops.concat(*(ops.reshape(g.input(n, "i64", 2, 3), shape=(1, 3, 2)) for n in "mn"),
                          axis=0), 0),
        ops.take_at(tensor("z", 6, 6), narrow(g), g.input("o", "i64", 2, 2)),
    )  # fmt: skip


@leaves("recover-empty-rows")
def other_choices(g: Builder) -> Any:
    x, y = tensor("x", 2, 3, 3), tensor("y", 2, 3, 3)
    zero = ops.full(shape=(), value=0, dtype="f32")
    column = ops.reshape(ops.max_(x, axis=1), shape=(2, 3, 1))
    return (
        ops.reshape(ops.empty(column), shape=(2, 3)), ops.reshape(ops.empty(x), shape=(6,)),
        ops.where(ops.empty(x), zero, ops.softmax(y)),
        ops.where(ops.empty(x, axis=1), zero, ops.softmax(x)),
        ops.where(ops.logical_not(ops.empty(x)), zero, ops.softmax(x)),
    )  # fmt: skip


@leaves("recover-rotary-parts")
def three_parts_of_three(g: Builder) -> Any:
    x, c, s = tensor("x", 1, 2, 3, 2, 3), weight("c", 3, 2), weight("s", 3, 2)
    a, b, rest = (
        ops.reshape(ops.slice_(x, axis=4, start=i, stop=i + 1), shape=(1, 2, 3, 2))
        for i in range(3)
    )
    parts = (ops.reshape(t, shape=(1, 2, 3, 2, 1)) for t in (a * c - b * s, b * c + a * s, rest))
    return ops.reshape(ops.concat(*parts, axis=4), shape=(1, 2, 3, 6))


@pytest.mark.parametrize("name", ["recover-empty-rows: another number"])
def test_what_stands_in_empty_rows_is_0(name: str) -> None:
    def ones(_: Builder) -> Any:
        x = tensor("x", 2, 3)
        return ops.where(ops.empty(x), ops.full(shape=(), value=1, dtype="f32"), ops.softmax(x))

    _, reasons = run(ones, name.partition(":")[0])
    assert reasons == ["where a row is empty stands something else than 0"]


@pytest.mark.parametrize("name", GRAPHS)
def test_no_rule_applies_or_nearly(name: str) -> None:
    applied, reasons = run(GRAPHS[name], name.partition(":")[0])
    assert applied == {}
    assert reasons == []


def run(make: Make, pass_: str) -> tuple[dict[str, int], list[str]]:
    """What a pass does to a graph, but for tidying up, and what it nearly did."""
    with ops.graph("g") as g:
        made = make(g)
        for i, value in enumerate(made if isinstance(made, tuple) else (made,)):
            g.output(f"y{i}", value)
    _, (report,) = run_pipeline(g.build(), [PASSES[pass_]()])
    applied = {n: k for n, k in report.applied.items() if n not in report.cleanups}
    return applied, [d.reason for d in report.declined]
