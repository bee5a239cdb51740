"""Blocks as a DSL: formulas read as written, names, mistakes. Each part is in tests/parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from helpers.formulas import (
    X,
    attend,
    built,
    check,
    graph_of,
    normed,
    params,
    x_input,
)

from tfgraph import blocks
from tfgraph.blocks import Experts, Layer, Norm, attention, feed_forward, layer_norm
from tfgraph.errors import TfgraphError
from tfgraph.ir.mask import causal
from tfgraph.ops import Builder, Traced, current, graph


def test_the_formula_reads_as_written() -> None:
    def make(g: Builder) -> Traced:
        x = x_input(g)
        return layer_norm(x + attention(x, x, x, mask=causal()))

    g = graph_of(make)
    p = params(g)
    out = X + attend(p, "attention", X, X, 1, 1, lambda b, i, j: j <= i)
    check(g, p | {"x": X}, normed(p, "layer_norm", out, 1e-5))


def test_names() -> None:
    def make(g: Builder) -> Traced:
        x = x_input(g)
        x = attention(x, x, x)
        x = attention(x, x, x)
        with g.scope("deep"):
            x = feed_forward(x, 4)
        return blocks.encoder(x, 1, Layer(heads=1))

    g = graph_of(make)
    names = [v.name for v in g.values()]
    expected = (
        "attention attention_1 attention_1.q.weight attention.q attention.scores deep.ffn "
        "deep.ffn.up.weight layers.0.attention layers.0.attention_norm layers.0.ffn layers.0"
    )
    for name in expected.split():
        assert name in names, name
    assert len(set(names)) == len(names)


def test_a_users_name_wins() -> None:
    g = graph_of(lambda g: g.label(layer_norm(x_input(g)), "mine"))
    assert g.outputs[0].value.name == "mine"


def test_seeded_fills_keep_the_variance() -> None:
    g = graph_of(lambda g: attention(*[g.input("x", "f32", "batch", "seq", 48)] * 3))
    fills = {p.value.name: str(p.fill) for p in g.params}
    assert fills["attention.q.weight"] == "normal(rsqrt(48))"
    assert fills["attention.q.bias"] == "normal(0.02)"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: attention(x, x, x, heads=5), "5 heads do not divide the width 12"),
        (
            lambda x: attention(x, x, x, heads=4, kv_heads=3),
            "4 query heads are not a multiple of 3 key/value heads",
        ),
        (lambda x: attention(x, x, x, heads=0), "attention: heads is 0"),
        (lambda x: feed_forward(x, 4, activation="gelo"), "unknown activation 'gelo'"),
        (lambda x: blocks.norm(x, kind="layer_nrm"), "unknown norm 'layer_nrm'"),
        (lambda x: blocks.encoder(x, 0, Layer()), "the number of layers is 0"),
        (lambda x: Layer(placement="past"), "placement is 'past'"),
        (lambda x: blocks.learned(5, 4, positions=6, offset=2), "5 positions from 2 on"),
        (lambda x: blocks.linear(current().input("s", "f32", "n"), 3), "the width n of"),
    ],
)
def test_errors_name_the_sizes(make: Any, message: str) -> None:
    with graph("g") as g, pytest.raises(TfgraphError) as caught:
        make(x_input(g))
    assert message in caught.value.message


@pytest.mark.parametrize(("wrong", "message"), [
    (lambda x: Norm("rms"), "unknown norm 'rms'"),
    (lambda x: Norm("rms_norm", bias=True), "rms_norm has no bias"),
    (lambda x: Norm(scale=False, unit_offset=True), "unit_offset is for a norm with a scale"),
    (lambda x: Experts(2, 3), "3 active experts of 2"),
    (lambda x: Experts(0), "experts: count is 0"),
    (lambda x: blocks.attention(x, x, x, value_size=0), "attention: value_size is 0"),
    (lambda x: blocks.lm_head(x, 3, softcap=0), "lm_head: softcap is 0, expected a positive"),
    (lambda x: blocks.soft_sort(x, tau=0), "soft_sort: tau is 0, expected a positive"),
    (lambda x: blocks.cross_entropy(x, x), "cross_entropy: labels f64[batch,seq,12] are not"),
    (lambda x: blocks.feed_forward(x, 4, activation="nome"), "unknown activation 'nome'"),
    (lambda x: blocks.decoder_layer(x, Layer(placement="parallel"), memory=x),
     "parallel: the parts of a layer with memory follow each other"),
])  # fmt: skip
def test_mistakes(wrong: Callable[[Traced], Any], message: str) -> None:
    with pytest.raises(TfgraphError) as caught:
        built(wrong)
    assert message in caught.value.message
