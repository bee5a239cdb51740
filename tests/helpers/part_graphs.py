"""Each part of a Transformer once in one graph, which tests/parts run on both backends."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

import tfgraph
from tfgraph import blocks, ops
from tfgraph.blocks import Layer, attention, feed_forward, layer_norm, linear
from tfgraph.ir import Output
from tfgraph.weights import Seeded

if TYPE_CHECKING:
    from tfgraph.ir import Graph

NDArray = np.ndarray[Any, Any]
WIDTH, HEADS, VOCABULARY = 24, 3, 11
_RNG = np.random.default_rng(11)
X = _RNG.standard_normal((2, 7, WIDTH)).astype(np.float32)
IDS = _RNG.integers(2, VOCABULARY, (2, 7))


def parts() -> Graph:
    """Each part once, on the same input."""
    with tfgraph.graph("parts") as g:
        x = g.input("x", "f32", "batch", "seq", WIDTH)
        ids = g.input("ids", "i64", "batch", "seq")
        g.output("shifted", blocks.shift_right(ids, 1))
        words = blocks.token_table(VOCABULARY, WIDTH, name="words")
        y = blocks.embedding(blocks.shift_right(ids, 1), VOCABULARY, WIDTH, scale=5, table=words)
        y = blocks.decoder(y, 1, Layer(heads=HEADS, ffn=32))
        g.output("logits", blocks.lm_head(y, VOCABULARY, table=words))

        placed = x + blocks.sinusoidal("seq", WIDTH, positions=9)
        for name, y, mask in (
            ("bare", x, None), ("edited", x, None), ("placed", placed, None),
            ("causal", placed, tfgraph.causal()),
        ):  # fmt: skip
            g.output(
                name, attention(y, y, y, heads=HEADS, mask=mask, bias=False, name=f"of_{name}")
            )
        for placement in ("pre", "post"):
            layer = Layer(heads=HEADS, ffn=32, placement=placement)
            g.output(placement, blocks.encoder_layer(x, layer, name=placement))
        g.output("twice", layer_norm(layer_norm(x, name="n"), name="n"))
        g.output("no activation", feed_forward(x, 40, activation="none", bias=False, name="none"))
        y = x
        for _ in range(3):
            y = layer_norm(y + feed_forward(y, 32))
        g.output("apart", y)
        g.output("linear", linear(x, 10, name="linear"))
        g.output("surgery", linear(x, 10, name="surgery"))
        g.output("softmax", ops.softmax(x))
    graph = g.build()
    maps = [
        v for v in graph.values() if v.name in ("of_bare.probabilities", "of_edited.probabilities")
    ]
    return replace(graph, outputs=(*graph.outputs, *(Output(v.name, v) for v in maps)))


def edited(graph: Graph) -> dict[str, NDArray]:
    """Seeded weights; head 1 of `edited` is another, sublayers are zero, row 4 of `surgery` too."""
    made = {name: w.copy() for name, w in Seeded(graph.params).items()}
    for part in ("q", "k", "v", "out"):
        made[f"of_edited.{part}.weight"] = made[f"of_bare.{part}.weight"].copy()
    made["of_edited.k.weight"][:, 8:16] += 1
    for name, w in made.items():
        if name.startswith(("pre.", "post.")) and "norm" not in name:
            w[...] = 0
        if "_norm." in name or name.startswith(("n.", "n_1.")):
            w[...] = name.endswith("scale")
    made["surgery.weight"], made["surgery.bias"] = made["linear.weight"].copy(), made["linear.bias"]
    made["surgery.weight"][4] = 0
    return made


GRAPH = parts()
WEIGHTS = edited(GRAPH)


def changed(a: NDArray, b: NDArray) -> NDArray:
    """Which rows [batch, seq] differ in a bit."""
    found: NDArray = (a.view(np.uint32) != b.view(np.uint32)).any(-1)
    return found
