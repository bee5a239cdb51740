"""Proofs of passes: the default rules pass, wrong ones are named, and what is not seen is known."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.generating import YAML, model
from helpers.proving import once, one, rules_pass
from inline_snapshot import snapshot

from tfgraph import blocks, ops
from tfgraph.errors import CheckFailed
from tfgraph.ir import Graph, Node, exact, rsqrt
from tfgraph.ir.mask import causal, padding, relative, window
from tfgraph.ops import Builder
from tfgraph.passes import (
    DEFAULT_PIPELINE,
    Pass,
    Rule,
    parse_pipeline,
    rule,
    run_pipeline,
)
from tfgraph.passes.pattern import call, either, masked, opt, var
from tfgraph.passes.proof import (
    ERROR,
    FIELD_TESTED,
    PROVED,
    READ,
    Refuted,
    prove_pipeline,
)


def encoder(layers: int = 1, mask: Any = None) -> Graph:
    with ops.graph("g") as g:
        x = g.input("x", "f32", g.symbol("batch", 1, 8), g.symbol("seq", 1, 64), 12)
        keep = g.input("keep", "i64", "batch", "seq")
        layer = blocks.Layer(heads=2, ffn=16)
        g.output("y", blocks.encoder(x, layers, layer, mask=mask or padding(keep)))
    return g.build()


@pytest.mark.parametrize("name", YAML)
def test_every_default_pass_keeps_the_meaning_of_whole_models(name: str) -> None:
    graph = model(name).graph
    fused, reports = run_pipeline(graph, parse_pipeline(DEFAULT_PIPELINE), prove=True)
    proofs = [r.proof for r in reports if r.proof is not None]
    assert len(proofs) == len(reports)
    for proof in proofs:
        assert proof.kind == PROVED or (proof.kind == FIELD_TESTED and 0 < proof.error < ERROR)  # type: ignore[operator]
    whole = prove_pipeline(graph, fused)
    assert whole is not None
    assert whole.kind in (PROVED, FIELD_TESTED)
    assert whole.error is not None
    assert whole.error < ERROR


def test_a_deep_gated_model_takes_more_primes() -> None:
    """The degrees of its polynomials double in each layer: twelve draws of
    three primes would say too little."""
    with ops.graph("g") as g:
        x = g.input("x", "f32", g.symbol("batch", 1, 8), g.symbol("seq", 1, 64), 4)
        layer = blocks.Layer(heads=2, ffn=64, activation="silu", gated=True)
        g.output("y", blocks.encoder(x, 9, layer))
    graph = g.build()
    fused, _ = run_pipeline(graph, parse_pipeline(DEFAULT_PIPELINE))
    whole = prove_pipeline(graph, fused)
    assert whole is not None
    assert whole.error is not None
    assert whole.error < ERROR


def test_the_kinds_of_the_default_passes() -> None:
    _, reports = run_pipeline(encoder(), parse_pipeline(DEFAULT_PIPELINE), prove=True)
    assert {r.name: (r.proof.kind, r.proof.opaque) for r in reports if r.proof} == snapshot(
        {
            "simplify": ("FIELD-TESTED", ()),
            "fold-constants": ("PROVED", ()),
            "cse": ("PROVED", ()),
            "fuse-attention": ("FIELD-TESTED", ("exp", "order")),
            "fuse-embedding": ("PROVED", ()),
            "fuse-add-norm": ("PROVED", ()),
            "fuse-linear-activation": ("PROVED", ()),
            "fuse-gated-linear": ("PROVED", ()),
            "merge-projections": ("FIELD-TESTED", ()),
            "fuse-rotary": ("PROVED", ()),
            "dce": ("PROVED", ()),
        }
    )


def test_the_cost_does_not_grow_with_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    from tfgraph.passes import proof

    drawn: list[int] = []
    compare = proof.agree_in_field
    monkeypatch.setattr(proof, "agree_in_field", lambda *a: (drawn.append(1), compare(*a))[1])
    counts: list[int] = []
    for layers in (1, 3):
        proof._prove.cache_clear()  # pyright: ignore[reportPrivateUsage]
        drawn.clear()
        run_pipeline(encoder(layers), parse_pipeline(DEFAULT_PIPELINE), prove=True)
        counts.append(len(drawn))
    assert counts[0] == counts[1] > 0


_Q, _K, _V = (call("linear", var("x"), var(f"w{n}"), var(f"b{n}"), name=n) for n in "qkv")
_NORM = call("layer_norm", var("a"), var("s"), var("b"), name="norm")
_FUSED = call("attention", var("q"), var("k"), var("v"), masked("m"), name="node")


@rule(_FUSED)
def drops_the_scale(q: Any, k: Any, v: Any, m: Any, node: Node) -> Any:
    return _attention(node, q, k, v, m, scale=exact(1))


@rule(_FUSED)
def rounds_the_scale(q: Any, k: Any, v: Any, m: Any, node: Node) -> Any:
    return _attention(node, q, k, v, m, scale=exact(float(node.attrs["scale"])))  # type: ignore[arg-type]


@rule(_FUSED)
def swaps_q_and_k(q: Any, k: Any, v: Any, m: Any, node: Node) -> Any:
    return _attention(node, k, q, v, m)


@rule(_FUSED)
def swaps_k_and_v(q: Any, k: Any, v: Any, m: Any, node: Node) -> Any:
    return _attention(node, q, v, k, m)


@rule(_FUSED)
def drops_the_mask(q: Any, k: Any, v: Any, m: Any, node: Node) -> Any:
    return _attention(node, q, k, v, None)


@rule(_FUSED)
def adds_a_mask(q: Any, k: Any, v: Any, m: Any, node: Node) -> Any:
    return _attention(node, q, k, v, m & causal(0))


@rule(_FUSED)
def merges_the_heads_in_another_order(q: Any, k: Any, v: Any, m: Any, node: Node) -> Any:
    return _attention(node, q, k, v, m, heads=1, kv_heads=1)


def _attention(node: Node, *operands: Any, **changed: Any) -> Any:
    return ops.attention(*operands, **{**node.attrs, **changed})


@rule(_NORM)
def takes_another_eps(a: Any, s: Any, b: Any, norm: Node) -> Any:
    return ops.layer_norm(a, s, b, eps=1e-6)


@rule(_NORM)
def swaps_scale_and_bias(a: Any, s: Any, b: Any, norm: Node) -> Any:
    return ops.layer_norm(a, b, s, eps=norm.attrs["eps"])  # type: ignore[arg-type]


@rule(_NORM)
def drops_the_bias_of_a_norm(a: Any, s: Any, b: Any, norm: Node) -> Any:
    return ops.layer_norm(a, s, eps=norm.attrs["eps"])  # type: ignore[arg-type]


@rule(_NORM)
def takes_rms_for_layer_norm(a: Any, s: Any, b: Any, norm: Node) -> Any:
    return ops.add(ops.rms_norm(a, s, eps=norm.attrs["eps"]), b)  # type: ignore[arg-type]


@rule(call("linear", var("x"), var("w"), var("b")))
def drops_the_bias_of_a_linear(x: Any, w: Any, b: Any) -> Any:
    return ops.linear(x, w)


@rule(call("add", var("a"), var("b")))
def adds_one_twice(a: Any, b: Any) -> Any:
    return ops.add(a, a)


@rule(call("gelu", var("x")))
def takes_the_tanh_form(x: Any) -> Any:
    return ops.gelu_tanh(x)


@rule(call("gelu", var("x")))
def takes_relu(x: Any) -> Any:
    return ops.relu(x)


@rule(call("softmax", var("x")))
def leaves_softmax_out(x: Any) -> Any:
    return x


@rule(_FUSED)
def drops_a_wide_window(q: Any, k: Any, v: Any, m: Any, node: Node) -> Any:
    return _attention(node, q, k, v, None)


@rule(_FUSED)
def narrows_a_window(q: Any, k: Any, v: Any, m: Any, node: Node) -> Any:
    return _attention(node, q, k, v, window(50, 0))


@rule(_FUSED)
def adds_a_wide_window(q: Any, k: Any, v: Any, m: Any, node: Node) -> Any:
    return _attention(node, q, k, v, m & window(50, None))


@rule(_FUSED)
def takes_another_distance(q: Any, k: Any, v: Any, m: Any, node: Node) -> Any:
    return _attention(node, q, k, v, relative(m.table, 200))


@pytest.mark.parametrize(
    ("wrong", "mask"),
    [
        (drops_a_wide_window, lambda g: window(64, 64)),
        (narrows_a_window, lambda g: window(100, 0)),
        (adds_a_wide_window, lambda g: window(100, 0)),
        (takes_another_distance, lambda g: relative(g.input("table", "f32", 8, 2), 20)),
    ],
)
def test_what_shows_at_long_sequences_alone(wrong: Rule, mask: Any) -> None:
    with ops.graph("g") as g:
        batch, seq = g.symbol("batch", 1, 8), g.symbol("seq", 1, 512)
        q, k, v = (g.input(n, "f32", batch, seq, 6) for n in "qkv")
        y = ops.attention(q, k, v, mask(g), heads=2, kv_heads=2, scale=rsqrt(3))
        g.output("y", y)
    with pytest.raises(Refuted, match=f"rule {wrong.name} changes what it replaces"):
        run_pipeline(g.build(), [rules_pass(once(wrong))], prove=True)


WRONG_FUSED = [
    drops_the_scale,
    rounds_the_scale,
    swaps_q_and_k,
    swaps_k_and_v,
    drops_the_mask,
    adds_a_mask,
    merges_the_heads_in_another_order,
]
WRONG = [
    takes_another_eps,
    swaps_scale_and_bias,
    drops_the_bias_of_a_norm,
    takes_rms_for_layer_norm,
    drops_the_bias_of_a_linear,
    adds_one_twice,
    takes_the_tanh_form,
    takes_relu,
    leaves_softmax_out,
]


@pytest.mark.parametrize("wrong", [*WRONG_FUSED, *WRONG], ids=lambda r: r.name)
def test_a_wrong_rule_is_named(wrong: Rule) -> None:
    graph = encoder()
    if wrong in WRONG_FUSED:
        graph, _ = run_pipeline(graph, parse_pipeline("simplify,fuse-attention"))
    with pytest.raises(Refuted, match=f"rule {wrong.name} changes what it replaces") as error:
        run_pipeline(graph, [rules_pass(once(wrong))], prove=True)
    assert isinstance(error.value, CheckFailed)  # exit code 1
    assert error.value.location == wrong.location


def test_what_stands_behind_a_reading_is_checked() -> None:
    @rule(call("tanh", var("x")), reads="tanh as erf")
    def reads(x: Any) -> Any:
        return ops.erf(x)

    def build(g: Builder) -> Any:
        return ops.gelu(ops.tanh(g.input("x", "f32", 4)))

    _, (report,) = run_pipeline(one(build), [rules_pass(reads)], prove=True)
    assert report.proof is not None
    assert (report.proof.kind, report.proof.error) == (READ, None)
    with pytest.raises(Refuted, match="rule takes-relu changes"):
        run_pipeline(one(build), [rules_pass(reads, takes_relu)], prove=True)


def test_a_shift_of_scores_is_no_difference() -> None:
    """softmax(s + c) = softmax(s), where c is the same all along a row: exp is a homomorphism."""

    @rule(call("softmax", call("add", var("s"), var("c"))))
    def drops_a_shift(s: Any, c: Any) -> Any:
        return ops.softmax(s)

    def build(width: int) -> Graph:
        return one(lambda g: ops.softmax(g.input("s", "f32", 3, 4) + g.input("c", "f32", 3, width)))

    _, (report,) = run_pipeline(build(1), [rules_pass(once(drops_a_shift))], prove=True)
    assert report.proof is not None
    assert report.proof.kind == FIELD_TESTED
    with pytest.raises(Refuted):
        run_pipeline(build(4), [rules_pass(once(drops_a_shift))], prove=True)


def test_a_pass_that_tells_no_regions_is_checked_as_a_whole() -> None:
    class Careless(Pass):
        name = "careless"

        def run(self, graph: Graph) -> Graph:
            from dataclasses import replace

            first, *rest = graph.nodes
            return replace(graph, nodes=(replace(first, op="sin"), *rest))

    graph = one(lambda g: ops.exp(ops.tanh(g.input("x", "f32", 4))))
    with pytest.raises(Refuted, match="pass careless changes what the graph computes"):
        run_pipeline(graph, [Careless()], prove=True)


def test_an_optional_operand_and_an_optional_mask() -> None:
    """Left-out operands are no values at the border."""

    @rule(
        call("attention", var("q"), var("k"), var("v"), either(masked("m"), opt("n")), name="node")
    )
    def same(q: Any, k: Any, v: Any, m: Any, n: Any, node: Node) -> Any:
        return ops.attention(q, k, v, m, **node.attrs)  # type: ignore[arg-type]

    def build(g: Builder) -> Any:
        q, k, v = (g.input(n, "f32", 1, 3, 4) for n in "qkv")
        return ops.attention(q, k, v, heads=1, kv_heads=1, scale=rsqrt(4))

    _, (report,) = run_pipeline(one(build), [rules_pass(once(same))], prove=True)
    assert report.proof is not None
    assert report.proof.kind == PROVED
