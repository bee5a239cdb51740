"""Golden text: what the passes make of whole models, what each makes alone, and what none fuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tfgraph import ops
from tfgraph.blocks import Experts, Layer, Norm, alibi_slopes, decoder, encoder, rotary_tables
from tfgraph.ir import Fill, Graph
from tfgraph.ir.mask import alibi, causal, padding
from tfgraph.ops import Builder
from tfgraph.passes import DEFAULT_PIPELINE, PASSES, PassReport, parse_pipeline, run_pipeline
from tfgraph.text import print_graph


def post_norm_encoder(layers: int = 2) -> Graph:
    """Masked by padding; its norms follow the sums."""
    with ops.graph("encoder") as g:
        x = g.input("x", "f32", "batch", "seq", 8)
        keep = g.input("keep", "i64", "batch", "seq", fill=Fill("prefix"))
        g.output("y", encoder(x, layers, Layer(heads=2, ffn=16), mask=padding(keep)))
    return g.build()


def pre_norm_decoder(layers: int = 2) -> Graph:
    """Causal, with groups of query heads; its norms precede the sublayers, whose sums go on."""
    with ops.graph("decoder") as g:
        x = g.input("x", "f32", "batch", "seq", 8)
        layer = Layer(
            heads=4,
            kv_heads=2,
            ffn=16,
            norm="rms_norm",
            placement="pre",
            activation="silu",
            gated=True,
            bias=False,
        )
        g.output("y", decoder(x, layers, layer, mask=causal()))
    return g.build()


def cross_attention() -> Graph:
    """One decoder layer over an encoder's output."""
    with ops.graph("cross") as g:
        x = g.input("x", "f32", "batch", "seq", 8)
        memory = g.input("memory", "f32", "batch", "source", 8)
        real = g.input("real", "i64", "batch", fill=Fill("ones"))
        layer = Layer(heads=2, ffn=16)
        g.output("y", decoder(x, 1, layer, memory=memory, memory_mask=padding(real)))
    return g.build()


def rotary_decoder() -> Graph:
    """Heads normed, then turned; a sandwich of norms that multiply by 1 + scale; two experts."""
    with ops.graph("rotary") as g:
        g.symbol("seq", 1, 16)
        x = g.input("x", "f32", "batch", "seq", 8)
        layer = Layer(
            heads=2,
            kv_heads=1,
            ffn=16,
            norm=Norm("rms_norm", unit_offset=True),
            qk_norm=Norm("rms_norm"),
            rotary=rotary_tables(4, positions=16).rows("seq"),
            placement="sandwich",
            activation="silu",
            gated=True,
            bias=False,
            experts=Experts(2, 1),
        )
        g.output("y", decoder(x, 1, layer, mask=causal()))
    return g.build()


def parallel_decoder() -> Graph:
    """Attention and feed-forward network beside each other, each with its norm, and ALiBi."""
    with ops.graph("parallel") as g:
        x = g.input("x", "f32", "batch", "seq", 8)
        layer = Layer(heads=2, ffn=16, placement="parallel", shared_norm=False)
        g.output("y", decoder(x, 2, layer, mask=causal() & alibi(alibi_slopes(2))))
    return g.build()


MODELS: dict[str, Callable[[], Graph]] = {
    "post-norm-encoder": post_norm_encoder,
    "pre-norm-decoder": pre_norm_decoder,
    "cross-attention": cross_attention,
    "rotary-decoder": rotary_decoder,
    "parallel-decoder": parallel_decoder,
}


def report_text(reports: list[PassReport]) -> str:
    """What was applied and what was not, without places (which hold this file's line numbers)."""
    lines: list[str] = []
    for report in reports:
        counts = ", ".join(f"{rule} {count}" for rule, count in report.applied.items())
        lines.append(f"{report.name}: {counts or 'nothing'}")
        lines += [f"  {d.rule} not at {d.at}: {d.reason}" for d in report.declined]
    return "\n".join(lines)


@pytest.mark.parametrize("name", MODELS)
def test_whole_models(name: str, golden: Any) -> None:
    graph, reports = run_pipeline(MODELS[name](), parse_pipeline(DEFAULT_PIPELINE))
    golden(f"passes/{name}.tfg", print_graph(graph))
    golden(f"passes/{name}.report.txt", report_text(reports))


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_two_add_norms_a_post_norm_layer(layers: int) -> None:
    graph, reports = run_pipeline(post_norm_encoder(layers), parse_pipeline(DEFAULT_PIPELINE))
    applied = {rule: n for report in reports for rule, n in report.applied.items()}
    assert applied["fuse-add-layer-norm"] == 2 * layers
    assert applied["fuse-attention"] == applied["merge-qkv"] == layers
    assert applied["fuse-linear-activation"] == layers
    ops_left = [n.op for n in graph.nodes]
    assert ops_left.count("add_layer_norm") == 2 * layers
    assert not {"add", "layer_norm", "softmax", "mask", "matmul", "gelu"} & set(ops_left)


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_all_but_one_sum_of_a_pre_norm_stack(layers: int) -> None:
    """Each norm but the first follows a sum: 2L - 1 inside, and the final one."""
    graph, reports = run_pipeline(pre_norm_decoder(layers), parse_pipeline(DEFAULT_PIPELINE))
    applied = {rule: n for report in reports for rule, n in report.applied.items()}
    assert applied["fuse-add-rms-norm"] == 2 * layers >= 2 * layers - 1
    fused = [n for n in graph.nodes if n.op == "add_rms_norm"]
    # The sum goes on but for the last, which only the final norm reads.
    assert [n.attrs["keep_sum"] for n in fused] == [True] * (2 * layers - 1) + [False]
    assert [n.op for n in graph.nodes].count("rms_norm") == 1


def alone(make: Callable[[Builder], Any]) -> Graph:
    with ops.graph("alone") as g:
        g.output("y", make(g))
    return g.build()


def _x(g: Builder, *shape: Any) -> Any:
    return g.input("x", "f32", *(shape or ("batch", "seq", 8)))


def _simplify(g: Builder) -> Any:
    x = ops.transpose(ops.transpose(_x(g), perm=(0, 2, 1)), perm=(0, 2, 1))
    batch, seq, width = x.shape
    x = ops.reshape(ops.reshape(x, shape=(batch * seq, width)), shape=(batch, seq, 2, 4))
    return (x * 0.5) * 4 + (x - 0) / 1


def _cse(g: Builder) -> Any:
    x, y = _x(g), g.input("y", "f32", "batch", "seq", 8)
    return ops.exp(x + y) * ops.exp(y + x)


def _fuse_attention(g: Builder) -> Any:
    q, k, v = (g.input(n, "f32", "batch", 2, "seq", 4) for n in ("q", "k", "v"))
    scores = ops.matmul(q, ops.transpose(k, perm=(0, 1, 3, 2))) / 2
    return ops.matmul(ops.softmax(ops.mask(ops.tanh(scores / 50) * 50, causal())), v)


def _fuse_add_norm(g: Builder) -> Any:
    x, y, bias = _x(g), g.input("y", "f32", "batch", "seq", 8), g.param("bias", "f32", 8)
    total = (x + bias) + y
    return total + ops.layer_norm(total, g.param("scale", "f32", 8), eps=1e-6)


def _fuse_linear_activation(g: Builder) -> Any:
    return ops.gelu(ops.linear(_x(g), g.param("w", "f32", 8, 16), g.param("b", "f32", 16)))


def _fuse_gated_linear(g: Builder) -> Any:
    x, w = _x(g), [g.param(f"w{i}", "f32", 8, 16) for i in range(2)]
    return ops.silu(ops.linear(x, w[0])) * ops.linear(x, w[1], g.param("b", "f32", 16))


def _merge_projections(g: Builder) -> Any:
    x, memory = _x(g), g.input("memory", "f32", "batch", "source", 8)
    w = [g.param(f"w{i}", "f32", 8, 8) for i in range(6)]
    own = ops.attention(*(ops.linear(x, w[i]) for i in range(3)), heads=2, kv_heads=2, scale=1)
    k, v = ops.linear(memory, w[4]), ops.linear(memory, w[5], g.param("b", "f32", 8))
    return ops.attention(ops.linear(own, w[3]), k, v, heads=2, kv_heads=2, scale=1)


def _dce(g: Builder) -> Any:
    x = _x(g)
    ops.layer_norm(ops.exp(x), g.param("dead", "f32", 8))
    return ops.tanh(x)


@pytest.mark.parametrize(
    "make",
    [
        _simplify,
        _cse,
        _fuse_attention,
        _fuse_add_norm,
        _fuse_linear_activation,
        _fuse_gated_linear,
        _merge_projections,
        _dce,
    ],
)
def test_each_pass_alone(make: Callable[[Builder], Any], golden: Any) -> None:
    name = make.__name__[1:].replace("_", "-")
    graph = alone(make)
    after, reports = run_pipeline(graph, [PASSES[name]()])
    text = f"{print_graph(graph)}\n{report_text(reports)}\n\n{print_graph(after)}"
    golden(f"passes/alone/{name}.txt", text)


def near_misses() -> Graph:
    """Each part of a layer, with one thing about it that a rule does not take."""
    with ops.graph("near_misses") as g:
        x, y = _x(g, 2, 8, 8), g.input("y", "f32", 2, 8, 8)
        row, scale = g.param("row", "f32", 8), g.param("scale", "f32", 8)
        found: dict[str, Any] = {}

        found["broadcast_add"] = ops.layer_norm(x + row, scale)
        found["other_axis"] = ops.layer_norm(ops.transpose(x + y, perm=(0, 2, 1)), scale)

        h = ops.linear(x, g.param("w", "f32", 8, 8))
        found["second_consumer"] = ops.gelu(h)
        found["its_other_reader"] = ops.exp(h)

        q, k, v = (g.input(n, "f32", 2, 4, 8, 8) for n in ("q", "k", "v"))
        v2 = g.input("v2", "f32", 2, 1, 8, 8)
        k_t = ops.transpose(k, perm=(0, 1, 3, 2))
        added = g.input("added_mask", "f32", 2, 1, 8, 8)

        def attend(name: str, scores: Any, values: Any, axis: int = -1) -> Any:
            weights = g.label(ops.softmax(scores, axis=axis), f"{name}.weights")
            found[name] = ops.matmul(weights, values)
            return weights

        attend("unknown_mask", ops.matmul(q, k_t) * 0.5 + added, v)
        attend("k_not_transposed", ops.matmul(q, k), v)
        attend("heads_differ", ops.matmul(q, k_t) * 0.25, v2)
        attend("softmax_over_another_axis", ops.matmul(q, k_t) * 0.125, v, axis=2)
        weights = attend("weights_read", ops.matmul(q, k_t) * 0.1, v)
        found["their_other_reader"] = ops.exp(weights)
        for name, value in found.items():
            g.output(name, g.label(value, name))
    return g.build()


def test_near_misses_are_reported_with_place_and_reason(golden: Any) -> None:
    graph, reports = run_pipeline(near_misses(), parse_pipeline(DEFAULT_PIPELINE))
    golden("passes/near-misses.txt", report_text(reports))
    places = [d.location for report in reports for d in report.declined]
    assert all(place is not None and place.file == __file__ and place.line for place in places)
    assert not any(
        n.op in ("attention", "add_layer_norm", "linear_activation") for n in graph.nodes
    )
