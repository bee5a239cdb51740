"""The same as `test_one_change.py`, for the rules that recover what exporters write out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from helpers.rule_graphs import Graphs, heads, tensor, weight

from tfgraph import ops
from tfgraph.ir.mask import bias, dense
from tfgraph.ops import Builder
from tfgraph.passes import PASSES, run_pipeline

GRAPHS = Graphs()
takes = GRAPHS.takes


def centered(x: Any) -> Any:
    return x - ops.mean(x, axis=-1, keepdims=True)


def root(x: Any, square: Any) -> Any:
    return ops.sqrt(ops.mean(square, axis=-1, keepdims=True) + 0.01)


@takes("recover-norms", layer_norm=1, join_scale=1, join_bias=1)
def written_layer_norm(g: Builder) -> Any:
    d = centered(tensor("x", 3, 3))
    return weight("s", 3) * (d / root(d, d**2)) + weight("b", 3)


@takes("recover-norms", layer_norm_by_reciprocal=1)
def layer_norm_by_reciprocal(g: Builder) -> Any:
    d = centered(tensor("x", 3, 3))
    g.output("centered", d)
    return d * (1 / root(d, d * d))


@takes("recover-norms", centered_norm=2)
def norms_of_what_is_centered(g: Builder) -> Any:
    """As exporters write a layer norm without a bias where there is an op for RMS norm."""
    x, y = tensor("x", 3, 3), tensor("y", 3, 3)
    centered = y - ops.mean(y, axis=1, keepdims=True)
    g.output("centered", centered)
    first = ops.rms_norm(x - ops.mean(x, axis=-1, keepdims=True), tensor("s", 3), eps=0.01)
    return first + ops.rms_norm(centered, eps=0.02)


@takes("recover-norms", rms_norm=1, join_scale=1)
def written_rms_norm(g: Builder) -> Any:
    x = tensor("x", 3, 3)
    return x / root(x, x * x) * weight("s", 3)


@takes("recover-norms", rms_norm_by_reciprocal=1)
def rms_norm_by_reciprocal(g: Builder) -> Any:
    x = tensor("x", 3, 3)
    return x * (1 / root(x, x**2))


@takes("recover-norms", join_bias=1)
def bias_of_a_norm(g: Builder) -> Any:
    return ops.layer_norm(tensor("x", 3, 3), weight("s", 3), eps=0.01) + weight("b", 3)


@takes("recover-norms", join_bias=1)
def bias_of_a_norm_without_scale(g: Builder) -> Any:
    return ops.layer_norm(tensor("x", 3, 3), eps=0.01) + weight("b", 3)


@takes("recover-norms")
def scale_of_a_scaled_norm(g: Builder) -> Any:
    return ops.layer_norm(tensor("x", 3, 3), weight("s", 3), eps=0.01) * weight("t", 3)


def activation_of(name: str, **rules: int) -> Callable[[Callable[[Any], Any]], None]:
    """An activation written out, of a vector."""

    def keep(make: Callable[[Any], Any]) -> None:
        def built(g: Builder) -> Any:
            return make(tensor("x", 8))

        built.__name__ = name
        takes("recover-activations", **rules)(built)

    return keep


TANH = 0.7978845608
activation_of("gelu 0", gelu_0=1)(lambda x: (x * 0.5) * (ops.erf(x / 1.4142135) + 1))
activation_of("gelu 1", gelu_1=1)(lambda x: x * (1 + ops.erf(x * 0.70710677)) * 0.5)
activation_of("gelu 2", gelu_2=1)(lambda x: x * ((ops.erf(x / 1.4142135) + 1) * 0.5))
activation_of("tanh 0", gelu_tanh_0=1)(
    lambda x: 0.5 * x * (ops.tanh(TANH * (x + 0.044715 * x**3)) + 1)
)
activation_of("tanh 1", gelu_tanh_1=1)(
    lambda x: x * (1 + ops.tanh((x + x * (x * x) * 0.044715) * TANH)) * 0.5
)
activation_of("tanh 2", gelu_tanh_2=1)(
    lambda x: x * ((1 + ops.tanh(x * TANH * (x * 0.044715 * x + 1))) * 0.5)
)
activation_of("tanh with a square", gelu_tanh_1=1)(
    lambda x: x * (1 + ops.tanh(TANH * (x + x * x**2 * 0.044715))) * 0.5
)
activation_of("silu", silu=1)(lambda x: x * ops.sigmoid(x))
activation_of("quick gelu", quick_gelu=1)(lambda x: x * ops.sigmoid(x * 1.702))


@takes("recover-linear", linear=1, join_bias=1)
def product_with_a_weight(g: Builder) -> Any:
    return tensor("x", 2, 2, 2) @ weight("w", 2, 2) + weight("b", 2)


@takes("recover-linear", linear=1)
def product_of_weights(g: Builder) -> Any:
    return weight("v", 2, 2) @ weight("w", 2, 2)


def folded(name: str) -> Any:
    """Heads in the batch."""
    return ops.reshape(heads(name), shape=(4, 2, 2))


@takes("recover-heads", unfold_scores=1, unfold_scaled=1, unfold_sum=1)
def folded_scores(g: Builder) -> Any:
    scores = folded("q") @ ops.transpose(folded("k"), perm=(0, 2, 1))
    return scores * 0.5 + tensor("t", 4, 2, 2)


@takes("recover-heads", unfold_product=1, unfold_scaled=1, unfold_sum=1)
def folded_product(g: Builder) -> Any:
    return ops.weighted_sum(folded("a"), folded("b")) / 3 + tensor("t", 1, 2, 2)


@takes("recover-heads", scaled_before_transpose=1, scaled_queries=1, scaled_keys=1)
def scaled_operands(g: Builder) -> Any:
    k = ops.transpose(heads("k") * 0.5, perm=(0, 1, 3, 2))
    return (heads("q") / 3) @ k


def line(size: int, *shape: int) -> Any:
    return ops.reshape(ops.iota(length=size), shape=shape)


def scores() -> Any:
    """Of two batches, two heads, three queries and three keys."""
    return tensor("q", 2, 2, 3, 2) @ ops.transpose(tensor("k", 2, 2, 3, 2), perm=(0, 1, 3, 2))


QUERY, KEY = (3, 1, 1, 3, 1), (3, 1, 1, 1, 3)
HIDDEN = -3.4e38


def scalar(value: float) -> Any:
    return ops.full(shape=(), value=value, dtype="f32")


def added(seen: Any) -> Any:
    return ops.where(seen, scalar(0), scalar(HIDDEN))


@takes("recover-masks", changes_empty_rows=1)
def causal_added(g: Builder) -> Any:
    seen = ops.logical_not(ops.less(line(*QUERY), line(*KEY)))
    return ops.softmax(scores() * 0.5 + added(seen))


@takes("recover-masks", changes_empty_rows=1)
def window_and_keys_added(g: Builder) -> Any:
    keep = ops.reshape(g.input("keep", "bool", 2, 3), shape=(2, 1, 1, 3))
    near = ops.less(line(*QUERY), line(*KEY) + 2)
    return ops.softmax(scores() + (tensor("t", 3, 3) + added(ops.logical_and(keep, near))))


@takes("recover-masks", changes_empty_rows=1, structure=1)
def distance_added(g: Builder) -> Any:
    far = ops.less(1, ops.abs_(line(*QUERY) - line(*KEY)))
    hidden = ops.where(far, scalar(HIDDEN), scalar(0))
    return ops.softmax(scores() + hidden)


@takes("recover-masks", changes_empty_rows=1)
def keys_by_number(g: Builder) -> Any:
    keep = ops.reshape(g.input("keep", "i64", 2, 3), shape=(2, 1, 1, 3))
    return ops.softmax(scores() + (1 - ops.cast(keep, dtype="f32")) * -10000)


@takes("recover-masks", changes_empty_rows=1)
def keys_by_index(g: Builder) -> Any:
    keep = ops.cast(g.input("keep", "i64", 2, 3), dtype="bool")
    return ops.softmax(scores() + added(ops.take_at(keep, line(2, 2, 1, 1, 1), line(*KEY))))


@takes("recover-masks", changes_empty_rows=1)
def keys_by_flat_index(g: Builder) -> Any:
    keep = ops.reshape(g.input("keep", "bool", 2, 3), shape=(6,))
    return ops.softmax(scores() + added(ops.take(keep, line(2, 2, 1, 1, 1) * 3 + line(*KEY))))


@takes("recover-masks", guard_changes_nan_rows=1)
def guarded(g: Builder) -> Any:
    p = ops.softmax(tensor("x", 2, 3))
    return ops.where(ops.logical_not(ops.equal(p, p)), scalar(0), p)


@takes("recover-masks", filled_changes_empty_rows=1)
def filled(g: Builder) -> Any:
    seen = ops.less(line(*KEY), line(*QUERY) + 1)
    return ops.softmax(ops.where(seen, scores() / 2 + tensor("t", 3, 3), scalar(HIDDEN)))


@takes("recover-masks", bias=1)
def biased(g: Builder) -> Any:
    return ops.softmax(scores() + tensor("t", 3, 3))


@takes("recover-masks", structure=1)
def dense_positions(g: Builder) -> Any:
    seen = ops.less(line(*KEY), line(*QUERY) + 1)
    return ops.softmax(ops.mask(scores(), dense(seen)))


@takes("recover-masks", bias_changes_empty_rows=1, structure=1)
def bias_that_hides(g: Builder) -> Any:
    seen = ops.less(line(*KEY), line(*QUERY) + 1)
    return ops.exp(ops.mask(scores(), bias(tensor("t", 3, 3) + added(seen))))


@takes("recover-masks", bias_changes_empty_rows=1, structure=1)
def bias_where_seen(g: Builder) -> Any:
    hidden = ops.less(line(*QUERY), line(*KEY))
    chosen = ops.where(hidden, scalar(HIDDEN), tensor("t", 1, 1, 3, 3))
    return ops.exp(ops.mask(scores(), bias(chosen)))


@takes("recover-masks", bias_changes_empty_rows=1)
def bias_where_not_hidden(g: Builder) -> Any:
    seen = ops.less(line(*KEY), line(*QUERY) + 1)
    chosen = ops.where(seen, tensor("t", 1, 1, 3, 3), scalar(HIDDEN))
    return ops.exp(ops.mask(scores(), bias(chosen)))


def also(*read: Any) -> None:
    """Values that are results too, so that the rules leave them in place."""
    for value in read:
        ops.current().output(ops.current().unique("also"), value)


def half_turned(x: Any, cos: Any, sin: Any, axis: int = -1) -> Any:
    half = int(x.shape[-1]) // 2
    low, high = (ops.slice_(x, axis=axis, start=i, stop=i + half) for i in (0, half))
    negated = -high
    also(low, high, negated)
    return x * cos + ops.concat(negated, low, axis=axis) * sin


def tables(*shape: int, axis: int = -1) -> tuple[Any, Any]:
    """Cosines and sines, each half twice."""
    angle = weight("angle", *shape)
    whole = ops.concat(angle, angle, axis=axis)
    return ops.cos(whole), ops.sin(whole)


@takes("recover-rotary", rotary=1)
def rotary_of_heads(g: Builder) -> Any:
    return half_turned(tensor("x", 2, 1, 3, 6), *tables(1, 1, 3, 3))


@takes("recover-rotary", rotary=1)
def rotary_by_length(g: Builder) -> Any:
    return half_turned(tensor("x", 2, 2, 3, 4), *tables(2, 2, 1, 2, axis=3), axis=3)


def turned_in_pairs(x: Any, cos: Any, sin: Any) -> Any:
    even, odd = (ops.take(x, ops.iota(length=2) * 2 + i, axis=-1) for i in (0, 1))
    negated, shape = -odd, (2, 2, 2, 2, 1)
    parts = [ops.reshape(t, shape=shape) for t in (negated, even)]
    paired = ops.reshape(ops.concat(*parts, axis=-1), shape=(2, 2, 2, 4))
    also(odd, negated, even, *parts, paired)
    return x * cos + paired * sin


def pairs(name: str) -> Any:
    one = ops.reshape(weight(name, 2, 2), shape=(1, 2, 1, 2, 1))
    return ops.reshape(ops.broadcast_to(one, shape=(1, 2, 1, 2, 2)), shape=(1, 2, 1, 4))


@takes("recover-rotary", interleaved_rotary=1)
def rotary_in_pairs(g: Builder) -> Any:
    return turned_in_pairs(tensor("x", 2, 2, 2, 4), pairs("cos"), pairs("sin"))


def parts(x: Any, axis: int) -> list[Any]:
    """All but the last two elements of a head and the rest, which are results too."""
    size = int(x.shape[-1])
    windows = (0, size - 2), (size - 2, size)
    both = [ops.slice_(x, axis=axis, start=a, stop=b) for a, b in windows]
    also(*both)
    return both


@takes("recover-rotary", partial_rotary=1)
def rotary_of_a_part(g: Builder) -> Any:
    first, rest = parts(tensor("x", 2, 2, 3, 4), -1)
    turned = ops.rotary(ops.merge_heads(first), *angles(3, 1), heads=2)
    return ops.concat(ops.split_heads(turned, 2), rest, axis=-1)


@takes("recover-rotary", partial_rotary=1)
def interleaved_rotary_of_a_part(g: Builder) -> Any:
    first, rest = parts(tensor("x", 1, 3, 2, 6), 3)
    turned = ops.rotary(ops.merge_heads(first), *angles(2, 2), heads=3, interleaved=True)
    return ops.concat(ops.split_heads(turned, 3), rest, axis=3)


@takes("recover-rotary", partial_rotary_by_length=1)
def rotary_of_a_part_by_length(g: Builder) -> Any:
    first, rest = parts(tensor("x", 2, 3, 2, 4), -1)
    turned = ops.rotary(ops.reshape(first, shape=(2, 3, 4)), *angles(3, 1), heads=2)
    return ops.concat(ops.reshape(turned, shape=(2, 3, 2, 2)), rest, axis=-1)


@takes("recover-rotary", partial_rotary_by_length=1)
def interleaved_rotary_of_a_part_by_length(g: Builder) -> Any:
    first, rest = parts(tensor("x", 1, 2, 3, 6), 3)
    flat = ops.reshape(first, shape=(1, 2, 12))
    turned = ops.rotary(flat, *angles(2, 2), heads=3, interleaved=True)
    return ops.concat(ops.reshape(turned, shape=(1, 2, 3, 4)), rest, axis=3)


@takes("recover-rotary", shared_tables=1)
def rotary_by_tables_made_for_the_batch(g: Builder) -> Any:
    wide = [ops.broadcast_to(t, shape=(2, 3, 1)) for t in angles(3, 1)]
    return ops.rotary(tensor("x", 2, 3, 2), *wide, heads=1)


@takes("recover-rotary", shared_tables=1)
def rotary_by_tables_of_the_batch(g: Builder) -> Any:
    wide = [ops.broadcast_to(t, shape=(2, 3, 2)) for t in angles(1, 3, 2)]
    also(*wide)
    return ops.rotary(tensor("x", 2, 3, 8), *wide, heads=2, interleaved=True)


def angles(*shape: int) -> tuple[Any, Any]:
    return weight("cos", *shape), weight("sin", *shape)


@pytest.mark.parametrize("name", GRAPHS)
def test_every_neighbour_keeps_its_values(name: str) -> None:
    GRAPHS.check(name)


def rotated_between_reshapes(g: Builder) -> Any:
    flat = ops.reshape(tensor("x", 2, 3, 8), shape=(2, 3, 2, 4))
    return ops.reshape(half_turned(flat, *tables(1, 3, 1, 2)), shape=(2, 3, 8))


def rotated_between_transposes(g: Builder) -> Any:
    return half_turned(ops.split_heads(tensor("x", 2, 3, 8), 2), *tables(3, 2))


def scaled_twice(g: Builder) -> Any:
    scores = (folded("q") * 0.5) @ ops.transpose(folded("k") * 0.5, perm=(0, 2, 1))
    return ops.softmax(ops.reshape(scores, shape=(2, 2, 2, 2)), axis=-1)


TIDIED = {
    "recover-rotary: between reshapes": (rotated_between_reshapes, "merge-reshapes"),
    "recover-rotary: between transposes": (
        rotated_between_transposes, "merge-transposes drop-no-op"
    ),
    "recover-heads: scaled twice": (scaled_twice, "merge-factors"),
}  # fmt: skip


@pytest.mark.parametrize("name", TIDIED)
def test_a_pass_tidies_what_it_left(name: str) -> None:
    make, cleanups = TIDIED[name]
    with ops.graph("g") as g:
        g.output("y", make(g))
    _, (report,) = run_pipeline(g.build(), [PASSES[name.partition(":")[0]]()])
    assert set(cleanups.split()) <= set(report.applied), report.applied


@pytest.mark.parametrize("name", [n for n in GRAPHS if "gelu" in n])
def test_a_rounded_constant_is_said_to_be_read(name: str) -> None:
    with ops.graph("g") as g:
        g.output("y", GRAPHS[name][0](g))
    _, (report,) = run_pipeline(g.build(), [PASSES[name.partition(":")[0]]()])
    assert report.reads == {"a rounded decimal as the constant that it was"}
