"""What is drawn for proofs: sizes, masks, integers, numbers of a field and floats."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from helpers.proving import once, one, rules_pass

from tfgraph import blocks, ops
from tfgraph.ir import Graph, Mask, Node, as_dim, exact, rsqrt
from tfgraph.ir.mask import causal, padding, window
from tfgraph.ops import Builder
from tfgraph.passes import rule, run_pipeline
from tfgraph.passes.pattern import call, masked, var
from tfgraph.passes.proof import FIELD_TESTED, PROVED, TESTED, Refuted, prove_graphs, prove_pipeline
from tfgraph.passes.sizes import Sizes


def attention(mask: Mask, longest: int) -> Graph:
    with ops.graph("g") as g:
        batch, seq = g.symbol("batch", 1, 8), g.symbol("seq", 1, longest)
        q, k, v = (g.input(n, "f32", batch, seq, 4) for n in "qkv")
        g.output("y", ops.attention(q, k, v, mask, heads=1, kv_heads=1, scale=rsqrt(4)))
    return g.build()


@pytest.mark.parametrize("other", [causal(), causal() & window(4095, 0), window(4097, 0)])
def test_masks_that_reach_further_than_what_is_drawn(other: Mask) -> None:
    before = attention(causal() & window(4096, 0), 8192)
    with pytest.raises(Refuted, match="far reaches of masks taken for nearer ones"):
        prove_graphs("it", before, attention(other, 8192))
    same = prove_graphs("it", before, attention(window(4096, 0), 8192))
    assert same.kind == FIELD_TESTED
    short = attention(causal() & window(4096, 0), 512)
    assert prove_graphs("it", short, attention(causal(), 512)).kind == FIELD_TESTED


def test_a_difference_is_not_its_negative() -> None:
    @rule(call("sub", var("a"), var("b")))
    def turned(a: Any, b: Any) -> Any:
        return ops.sub(b, a)

    graph = one(lambda g: ops.sub(g.input("a", "f32", 4), g.input("b", "f32", 4)))
    with pytest.raises(Refuted, match=r"rule turned .*4 of 4 numbers are others"):
        run_pipeline(graph, [rules_pass(once(turned))], prove=True)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (lambda i: i, lambda i: ops.mul(i, i)),
        (lambda i: i, ops.abs_),
        (lambda i: ops.less(0, i), lambda i: ops.equal(i, 1)),
        (lambda i: ops.maximum(i, -3), lambda i: i),
    ],
)
def test_integers_are_more_than_zeros_and_ones(right: Any, wrong: Any) -> None:
    graphs = [one(lambda g, f=f: f(g.input("i", "i64", 5, 3))) for f in (right, wrong)]
    with pytest.raises(Refuted, match="other integers"):
        prove_graphs("it", *graphs)


def test_a_mean_of_sixteen_is_not_one_of_each_length() -> None:
    def of(**low: int) -> list[Graph]:
        made: list[Graph] = []
        for mean in (ops.mean, lambda x, **a: ops.mul(ops.sum_(x, **a), exact(1) / 16)):
            with ops.graph("g") as g:
                g.output("y", mean(g.input("x", "f32", g.symbol("seq", **low), 3), axis=0))
            made.append(g.build())
        return made

    with pytest.raises(Refuted, match="at seq=17"):
        prove_graphs("it", *of(low=16, high=64))
    assert prove_graphs("it", *of(low=16, high=16)).kind == FIELD_TESTED


@pytest.mark.parametrize(
    ("low", "high", "multiple"), [(1, 64, 1), (1, 3, 1), (16, 18, 1), (24, 64, 1), (1, 64, 16)]
)
def test_each_symbol_has_three_sizes(low: int, high: int, multiple: int) -> None:
    with ops.graph("g") as g:
        seq, n = g.symbol("seq", low, high), g.symbol("n", 1, 64)
        if multiple > 1:
            g.constrain("seq", "==", multiple * as_dim("n"))
        g.output("y", -g.input("x", "f32", seq, n))
    graph = g.build()
    sizes, drawn = Sizes(graph, graph), set[int]()
    for attempt in range(24):
        found = None if sizes.enough else sizes.at(attempt)
        if found is not None:  # which the constraint may leave none of
            sizes.count(found)
            drawn.add(found["seq"])
    assert sizes.enough
    assert len(drawn) >= 3
    if multiple == 1:
        assert any(all(n % d for d in range(2, n)) for n in drawn - {1})


def pair(build: Callable[[Builder], tuple[Any, Any]]) -> tuple[Graph, Graph]:
    """Two graphs of the same inputs."""
    return one(lambda g: build(g)[0]), one(lambda g: build(g)[1])


def two_results(g: Builder) -> tuple[Any, Any]:
    values, places = ops.topk(g.input("x", "f32", 2, 5), k=3)
    return ops.cast(values, dtype="f32"), ops.cast(places, dtype="f32")


def two_masks(g: Builder) -> tuple[Any, Any]:
    scores = g.input("scores", "f32", "batch", 1, "seq", "seq")
    rows, columns = (g.input(n, "i64", "batch", "seq") for n in ("rows", "columns"))
    masked_by = (ops.mask(scores, padding(keep)) for keep in (rows, columns))
    found, other = (ops.softmax(x) for x in masked_by)
    return found, other


def two_lengths(g: Builder) -> tuple[Any, Any]:
    x = g.input("x", "f32", "batch", "seq")
    ones = (ops.full(shape=(n,), value=1) for n in ("batch", "seq"))
    found, other = (x / ops.sum_(row, axis=0) for row in ones)
    return found, other


def two_factors(g: Builder) -> tuple[Any, Any]:
    integers = ops.cast(g.input("x", "f32", 40), dtype="i64")  # which a field has not
    whole = ops.cast(integers, dtype="f32")
    return ops.mul(whole, exact(1)), ops.mul(whole, exact(1 + Fraction(1, 10**8)))


@pytest.mark.parametrize("build", [two_results, two_masks, two_lengths, two_factors])
def test_graphs_that_are_nearly_the_same_are_told_apart(build: Any) -> None:
    before, after = pair(build)
    assert prove_graphs("nothing", before, before).kind == PROVED
    for graphs in ((before, after), (after, before)):
        with pytest.raises(Refuted, match="this changes what the graph computes"):
            prove_graphs("this", *graphs)


def test_a_row_with_one_allowed_key_says_nothing() -> None:
    """Under a mask that leaves each query one key all scores are alike: such a draw does not count,
    and where there is no other the check says so."""

    @rule(call("softmax", call("mask", call("tanh", var("s")), masked("m"))))
    def drops_tanh(s: Any, m: Any) -> Any:
        return ops.softmax(ops.mask(s, m))

    def build(length: int) -> Graph:
        return one(
            lambda g: ops.softmax(
                ops.mask(ops.tanh(g.input("s", "f32", 1, 1, 1, length)), causal(0))
            )
        )

    _, (report,) = run_pipeline(build(1), [rules_pass(once(drops_tanh))], prove=True)
    assert report.proof is not None
    assert (report.proof.kind, report.proof.error) == (TESTED, None)


def test_what_a_field_cannot_see() -> None:
    """A rounding to half precision and back: a cast is the identity here, as the docs say."""

    @rule(call("tanh", var("x")))
    def rounds(x: Any) -> Any:
        return ops.cast(ops.cast(ops.tanh(x), dtype="f16"), dtype="f32")

    graph = one(lambda g: ops.tanh(g.input("x", "f32", 4)))
    _, (report,) = run_pipeline(graph, [rules_pass(once(rounds))], prove=True)
    assert report.proof is not None
    assert report.proof.kind == FIELD_TESTED


def test_what_has_no_meaning_in_a_field_is_tested_in_floats() -> None:
    @rule(call("floor", var("x")))
    def through_integers(x: Any) -> Any:
        y = ops.cast(x, dtype="i64")  # towards 0: wrong below it
        return ops.cast(y, dtype="f32")

    @rule(call("mul", call("cast", var("i"), name="cast"), 2))
    def doubles_first(i: Any, cast: Node) -> Any:
        return ops.cast(ops.add(i, i), dtype="f32")

    graph = one(lambda g: ops.floor(g.input("x", "f32", 40)))
    with pytest.raises(Refuted, match="another value"):
        run_pipeline(graph, [rules_pass(once(through_integers))], prove=True)
    graph = one(
        lambda g: ops.mul(ops.cast(ops.cast(g.input("x", "f32", 40), dtype="i64"), dtype="f32"), 2)
    )
    _, (report,) = run_pipeline(graph, [rules_pass(once(doubles_first))], prove=True)
    assert report.proof is not None
    assert report.proof.kind == FIELD_TESTED  # integers at the border are themselves


def test_what_no_draw_can_compute_is_not_passed() -> None:
    """An index made of floats may be outside of its table in each draw."""

    def build(g: Builder, *, other: bool, beyond: int = 0) -> Any:
        index = ops.cast(ops.floor(ops.add(g.input("x", "f32", 2), 3 + beyond)), dtype="i64")
        y = ops.take(g.input("table", "f32", 8, 3), index)
        return ops.mul(y, 2) if other else ops.add(y, y)

    graphs = [one(lambda g, o=o: build(g, other=o)) for o in (False, True)]
    assert prove_graphs("it", *graphs).kind == TESTED
    graphs = [one(lambda g, o=o: build(g, other=o, beyond=50)) for o in (False, True)]
    with pytest.raises(Refuted, match=r"no draw can be computed, take: index .* out of range"):
        prove_graphs("it", *graphs)


def test_scalars_of_a_graph_are_numbers_of_the_field() -> None:
    """Found by the fuzzer: arrays of rank 0 were reshaped as no array can be."""

    def scalars(*, other: bool) -> Graph:
        with ops.graph("g") as g:
            x = ops.reshape(g.input("x", "f32", 1), shape=())
            one, two = ops.full(shape=(), value=3, dtype="i64"), ops.full(shape=(), value=2)
            g.output("n", ops.broadcast_to(one, shape=(2,)))
            g.output("y", ops.add(x, x) if other else ops.mul(x, two))
        return g.build()

    found = prove_pipeline(scalars(other=False), scalars(other=True))
    assert found is not None
    assert found.kind == FIELD_TESTED


def test_tables_in_float64_are_tested_in_floats_too() -> None:
    """Found by the fuzzer: rotary tables are cast to float32, and stood beside float64."""

    def rotary(*, other: bool) -> Graph:
        with ops.graph("g") as g:
            x, y = g.input("x", "f32", "batch", "seq", 8), g.input("y", "f32", "n")
            tables = blocks.rotary_tables(4, positions=32).rows("seq")
            turned = ops.rotary(x, tables.cos, tables.sin, heads=2)
            g.output("x", ops.sub(x, ops.neg(turned)) if other else ops.add(turned, x))
            g.output("n", ops.cast(ops.floor(y), dtype="i64"))  # which has no meaning in a field
        return g.build()

    found = prove_pipeline(rotary(other=False), rotary(other=True))
    assert found is not None
    assert found.kind == TESTED
