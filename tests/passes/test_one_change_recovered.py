"""The same as `test_one_change.py`, for what is recovered around products, norms and tables: heads
of four different sizes, so that no two axes can be taken for each other, and values that others
read too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from helpers.rule_graphs import Graphs, tensor, weight

from tfgraph import ops
from tfgraph.ir import rsqrt
from tfgraph.ir.mask import dense
from tfgraph.ops import Builder

GRAPHS = Graphs()
takes = GRAPHS.takes


def also(g: Builder, *read: Any) -> None:
    """Values that are results too, so that the rules leave them in place."""
    for value in read:
        g.output(g.unique("also"), value)


@takes("recover-norms", rms_norm=1, join_scale=1)
def norm_over_the_last_axis_by_number(g: Builder) -> Any:
    x = tensor("x", 3, 3)
    y = x / ops.sqrt(ops.mean(x * x, axis=1, keepdims=True) + 0.01)
    also(g, y)
    return y * weight("s", 3)


@takes("recover-norms", join_bias=1)
def norm_that_is_read_too(g: Builder) -> Any:
    y = ops.layer_norm(tensor("x", 3, 3), weight("s", 3), eps=0.01)
    also(g, y)
    return y + weight("b", 3)


@takes("recover-norms", drop_ones=2)
def norms_scaled_by_one(g: Builder) -> Any:
    x, ones = tensor("x", 3, 3), ops.full(shape=(3,), value=1, dtype="f32")
    return ops.layer_norm(x, ones, weight("b", 3), eps=0.01) - ops.rms_norm(x, ones, eps=0.01)


@takes("recover-activations", relu2=1)
def squared_relu(g: Builder) -> Any:
    y = ops.relu(tensor("x", 8))
    also(g, y)
    return y * y


@takes("recover-activations", gelu_0=1)
def gelu_of_a_half_that_is_read_too(g: Builder) -> Any:
    x = tensor("x", 8)
    half = x * 0.5
    also(g, half)
    return half * (ops.erf(x / 1.4142135) + 1)


def folded(name: str) -> Any:
    return ops.reshape(tensor(name, 2, 3, 4, 5), shape=(6, 4, 5))


@takes("recover-heads", unfold_scores=1, unfold_sum=1)
def scores_of_folded_heads(g: Builder) -> Any:
    q, k = folded("q"), folded("k")
    turned = ops.transpose(k, perm=(0, 2, 1))
    also(g, q, k, turned)
    return q @ turned + tensor("t", 6, 4, 4)


@takes("recover-heads", unfold_product=1)
def product_of_folded_heads(g: Builder) -> Any:
    a, b = folded("a"), ops.reshape(tensor("b", 2, 3, 5, 2), shape=(6, 5, 2))
    return a @ b


@takes("recover-heads", unfold_transposed=1)
def keys_of_folded_heads(g: Builder) -> Any:
    turned = ops.transpose(folded("k"), perm=(0, 2, 1))
    also(g, turned)
    return ops.reshape(turned, shape=(2, 3, 5, 4))


@takes("recover-heads", unfold_transposed=1)
def keys_of_repeated_groups(g: Builder) -> Any:
    repeated = ops.broadcast_to(tensor("k", 2, 3, 1, 4, 5), shape=(2, 3, 2, 4, 5))
    turned = ops.transpose(ops.reshape(repeated, shape=(12, 4, 5)), perm=(0, 2, 1))
    return ops.reshape(turned, shape=(2, 6, 5, 4))


@takes("recover-heads", scaled_queries=1, scaled_keys=1)
def scaled_operands_that_are_read_too(g: Builder) -> Any:
    q, k = tensor("q", 2, 3, 4) * 2, tensor("k", 2, 4, 5) / 3
    also(g, q, k)
    return q @ k


@takes("recover-heads", scaled_by_roots=2)
def operands_scaled_by_one_root(g: Builder) -> Any:
    """The same root for both, which is a result too; and the root of nothing."""
    root, none = (ops.sqrt(ops.full(shape=(1,), value=v)) for v in (2, 0))
    also(g, root)
    q, k = tensor("q", 2, 3, 4), tensor("k", 2, 4, 5)
    return (q * root) @ (k * root) + (q * none) @ (k * none)


@takes("recover-heads", scaled_by_roots=1)
def operands_scaled_by_roots(g: Builder) -> Any:
    """One of them is read too."""
    root = ops.sqrt(ops.full(shape=(1,), value=rsqrt(8)))
    q = tensor("q", 2, 3, 4) * root
    also(g, q)
    return q @ (tensor("k", 2, 4, 5) * ops.sqrt(ops.full(shape=(1,), value=rsqrt(8))))


@takes("recover-heads", scaled_before_transpose=2)
def scaled_keys_turned(g: Builder) -> Any:
    also(g, ops.transpose(tensor("a", 2, 3, 4) * 2, perm=(0, 2, 1)))
    return ops.transpose(tensor("b", 2, 3, 4, 5) / 3, perm=(0, 2, 3, 1))


CHANGED: dict[str, Callable[[Any], Any]] = {
    "": lambda w: w,
    "reshaped": lambda w: ops.reshape(w, shape=(2, 3, 3)),
    "turned": lambda w: ops.transpose(w, perm=(0, 2, 1)),
    "repeated": lambda w: ops.broadcast_to(w, shape=(2, 3, 3)),
    "cast": lambda w: ops.cast(w, dtype="f64"),
    "summed": lambda w: ops.sum_(ops.reshape(w, shape=(2, 3, 3, 1)), axis=-1),
    "scaled": lambda w: w * tensor("c", 3),
    "divided": lambda w: w / tensor("c", 3),
}


def weights_of_values(name: str, change: Callable[[Any], Any]) -> None:
    def built(g: Builder) -> Any:
        w = change(ops.softmax(tensor("x", 2, 3, 3)))
        return w @ g.input("v", w.dtype, 2, 3, 2)

    built.__name__ = f"weights of values {name}"
    takes("recover-heads", weights_of_values=1)(built)


for what, changed in CHANGED.items():
    weights_of_values(what, changed)


@takes("recover-heads", weights_of_values=1)
def chosen_values(g: Builder) -> Any:
    zero = ops.full(shape=(2, 3, 3), value=0, dtype="f32")
    chosen = ops.where(g.input("chosen", "bool", 2, 3, 3), tensor("x", 2, 3, 3), zero)
    return chosen @ tensor("v", 2, 3, 2)


@takes("recover-bools", choice=1)
def choice_between_bools(g: Builder) -> Any:
    c, yes, no = (g.input(n, "bool", 16) for n in ("c", "yes", "no"))
    other = ops.logical_not(c)
    also(g, other)
    return ops.logical_or(ops.logical_and(c, yes), ops.logical_and(other, no))


@takes("recover-bools", smaller=1)
def comparison_of_bools(g: Builder) -> Any:
    a, b = (g.input(n, "bool", 16) for n in "ab")
    return ops.less(ops.cast(a, dtype="i64"), ops.cast(b, dtype="i64"))


@takes("recover-indices", rows_of_a_table=3)
def rows_of_tables(g: Builder) -> Any:
    """Of a matrix that is given, of floats or not, and of one of floats that is computed."""
    ids, numbers = g.input("ids", "i64", 2), g.input("numbers", "i64", 3, 2)
    also(g, ops.take(numbers, ids), ops.take(ops.exp(weight("v", 3, 2)), ids))
    return ops.take(weight("w", 3, 2), ids)


@takes("recover-indices", plain_indices=1)
def indices_put_beside_each_other(g: Builder) -> Any:
    """As `GatherND` takes them: one tensor of pairs, apart again."""
    x, i, j = tensor("x", 2, 2), g.input("i", "i64", 2, 1), g.input("j", "i64", 2, 3)
    wide = ops.broadcast_to(i, shape=(2, 3))
    both = ops.concat(*(ops.reshape(t, shape=(2, 3, 1)) for t in (wide, j)), axis=2)
    columns = (ops.slice_(both, axis=-1, start=k, stop=k + 1) for k in (0, 1))
    return ops.take_at(x, *(ops.reshape(column, shape=(2, 3)) for column in columns))


@takes("recover-indices", plain_indices=2)
def indices_repeated_and_the_second_of_two(g: Builder) -> Any:
    i, j = g.input("i", "i64", 2, 1), g.input("j", "i64", 2, 3)
    wide = ops.broadcast_to(i, shape=(2, 3))
    also(g, ops.take_at(tensor("x", 2, 2), wide, j))
    both = ops.concat(g.input("k", "i64", 2, 3, 1), ops.reshape(j, shape=(2, 3, 1)), axis=2)
    second = ops.slice_(both, axis=2, start=1, stop=2)
    return ops.take_at(tensor("y", 2), ops.reshape(second, shape=(2, 3)))


@takes("recover-indices", plain_indices=3)
def indices_widened(g: Builder) -> Any:
    """On one axis, on three and on four."""
    i, j = (g.input(n, "i32", 2) for n in "ij")
    wide, other = ops.cast(i, dtype="i64"), ops.cast(j, dtype="i64")
    also(g, ops.take_at(tensor("x", 2, 2), wide))
    also(g, ops.take_at(tensor("y", 2, 2, 2), wide, wide, other))
    return ops.take_at(tensor("z", 2, 2, 2, 2), wide, other, other, wide)


@takes("recover-empty-rows", empty_by_maximum=1)
def rows_by_their_maximum(g: Builder) -> Any:
    x = ops.mask(tensor("x", 2, 4, 3), dense(g.input("seen", "bool", 2, 4, 3)))
    most = ops.max_(x, axis=1, keepdims=True)
    column = ops.reshape(most, shape=(2, 1, 3, 1))
    row = ops.empty(column)
    also(g, most, column, row)
    return ops.reshape(row, shape=(2, 1, 3))


@takes("recover-empty-rows", guarded_softmax=2)
def softmax_of_rows_that_may_be_empty(g: Builder) -> Any:
    x = ops.mask(tensor("x", 2, 3), dense(g.input("seen", "bool", 2, 3)))
    zero = ops.full(shape=(), value=0, dtype="f32")
    also(g, ops.where(ops.empty(x, axis=0), zero, ops.softmax(x, axis=-2)))
    return ops.where(ops.empty(x, axis=-1), zero, ops.softmax(x, axis=1))


@pytest.mark.parametrize("name", GRAPHS)
def test_every_neighbour_keeps_its_values(name: str) -> None:
    GRAPHS.check(name)
