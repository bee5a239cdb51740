"""Stacks: encoder, decoder, encoder-decoder; the original base model."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from helpers.formulas import (
    KEEP,
    X,
    attend,
    check,
    gelu,
    graph_of,
    linear,
    normed,
    params,
    silu,
    x_input,
)
from helpers.reference import run_graph

import tfgraph
from tfgraph import blocks
from tfgraph.blocks import Layer
from tfgraph.ir.mask import padding
from tfgraph.ops import Builder, Traced

RNG = np.random.default_rng(5)


def test_post_norm_encoder_layer_with_padding() -> None:
    def make(g: Builder) -> Traced:
        keep = g.input("keep", "i64", "batch", "seq")
        layer = Layer(heads=3, ffn=20, eps=1e-6)
        return blocks.encoder_layer(x_input(g), layer, mask=padding(keep))

    g = graph_of(make)
    p = params(g)
    a = attend(p, "layer.attention", X, X, 3, 3, lambda b, i, j: KEEP[b, j])
    y = normed(p, "layer.attention_norm", X + a, 1e-6)
    f = linear(p, "layer.ffn.down", gelu(linear(p, "layer.ffn.up", y)))
    check(g, p | {"x": X, "keep": KEEP}, normed(p, "layer.ffn_norm", y + f, 1e-6))


def test_pre_norm_decoder_with_groups_gates_and_memory() -> None:
    memory = RNG.standard_normal((2, 3, 12))
    layer = Layer(
        heads=4, kv_heads=2, head_size=6, ffn=10, activation="silu", gated=True, bias=False,
        norm="rms_norm", eps=1e-3, placement="pre",
    )  # fmt: skip

    def make(g: Builder) -> Traced:
        m = g.input("memory", "f64", "batch", "source", 12)
        return blocks.decoder(x_input(g), 2, layer, memory=m)

    g = graph_of(make)
    p = params(g)
    x = X
    for i in range(2):
        name = f"layers.{i}"
        y = normed(p, f"{name}.attention_norm", x, 1e-3)
        x = x + attend(p, f"{name}.attention", y, y, 4, 2, lambda b, i, j: j <= i)
        y = normed(p, f"{name}.cross_attention_norm", x, 1e-3)
        x = x + attend(p, f"{name}.cross_attention", y, memory, 4, 2, lambda b, i, j: True)
        y = normed(p, f"{name}.ffn_norm", x, 1e-3)
        gate = silu(linear(p, f"{name}.ffn.gate", y))
        x = x + linear(p, f"{name}.ffn.down", gate * linear(p, f"{name}.ffn.up", y))
    check(g, p | {"x": X, "memory": memory}, normed(p, "final_norm", x, 1e-3))


def test_a_shared_layer_is_applied_again() -> None:
    g = graph_of(lambda g: blocks.encoder(x_input(g), 3, Layer(heads=2, ffn=8), share=True))
    assert {p.value.name.split(".")[1] for p in g.params} == {"shared"}
    p = params(g)
    one = graph_of(lambda g: blocks.encoder_layer(x_input(g), Layer(heads=2, ffn=8)))
    again = {n.value.name: p[n.value.name.replace("layer.", "layers.shared.")] for n in one.params}
    x = X
    for _ in range(3):
        x = run_graph(one, again | {"x": x})["y"]
    check(g, p | {"x": X}, x)


def test_the_original_base_model_has_its_weights() -> None:
    """Counted from both sides: the parameters of the model file, and section 3 of the paper."""
    found = tfgraph.load_source(Path(__file__).parents[2] / "examples" / "transformer-base.yaml")
    learned = [p.value.type for p in found.graph.params if p.fill.kind != "sinusoidal"]
    assert sum(math.prod(int(d) for d in made.shape) for made in learned) == 63_082_496
    d, middle = 512, 2048
    attention_, norm = 4 * (d * d + d), 2 * d
    feed = d * middle + middle + middle * d + d
    encoder = 6 * (attention_ + norm + feed + norm)
    decoder = 6 * (attention_ + norm + attention_ + norm + feed + norm)
    assert 37000 * d + encoder + decoder == 63_082_496
