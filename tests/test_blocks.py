"""Blocks against the formulas of the papers, written out in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from helpers.reference import run_graph
from helpers.tolerance import assert_close

from tfgraph import blocks
from tfgraph.blocks import Layer, attention, feed_forward, layer_norm
from tfgraph.errors import TfgraphError
from tfgraph.ir import Graph
from tfgraph.ir.mask import causal, padding
from tfgraph.ops import Builder, Traced, current, graph, verify
from tfgraph.weights import sinusoidal_table

Arrays = dict[str, np.ndarray[Any, Any]]


def random_params(g: Graph, seed: int = 0) -> Arrays:
    """Parameters of every kind at random, norms' scales near one: nothing is invisible."""
    rng = np.random.default_rng(seed)
    found: Arrays = {}
    for param in g.params:
        name, shape = param.value.name, tuple(map(int, param.value.type.shape))
        x = rng.standard_normal(shape) * (shape[0] ** -0.5 if len(shape) > 1 else 0.2)
        found[name] = (x + 1 if name.endswith("scale") else x).astype(np.float64)
    return found


def linear(p: Arrays, name: str, x: Any) -> Any:
    y = x @ p[f"{name}.weight"]
    return y + p[f"{name}.bias"] if f"{name}.bias" in p else y


def normed(p: Arrays, name: str, x: Any, eps: float) -> Any:
    if f"{name}.bias" in p:
        mean = x.mean(-1, keepdims=True)
        x = (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + eps)
        return x * p[f"{name}.scale"] + p[f"{name}.bias"]
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * p[f"{name}.scale"]


def attend(
    p: Arrays, name: str, x: Any, memory: Any, heads: int, kv_heads: int, allowed: Any
) -> Any:
    """Multi-head attention by loops over batch, heads and queries."""
    q, k, v = (
        linear(p, f"{name}.q", x),
        linear(p, f"{name}.k", memory),
        linear(p, f"{name}.v", memory),
    )
    size = q.shape[-1] // heads
    context = np.zeros_like(q)
    for b in range(x.shape[0]):
        for h in range(heads):
            g = h // (heads // kv_heads)
            kh, vh = (a[b, :, g * size : (g + 1) * size] for a in (k, v))
            for i in range(x.shape[1]):
                seen = [j for j in range(memory.shape[1]) if allowed(b, i, j)]
                if not seen:
                    continue  # a row that may attend to nothing gives zeros
                scores = np.array(
                    [q[b, i, h * size : (h + 1) * size] @ kh[j] / math.sqrt(size) for j in seen]
                )
                weights = np.exp(scores - scores.max())
                weights /= weights.sum()
                context[b, i, h * size : (h + 1) * size] = weights @ vh[seen]
    return linear(p, f"{name}.out", context)


def gelu(x: Any) -> Any:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def silu(x: Any) -> Any:
    return x / (1 + np.exp(-x))


def built(make: Any) -> Graph:
    with graph("g") as g:
        g.output("y", make(g))
    made = g.build()
    verify(made)
    return made


def check(g: Graph, arrays: Arrays, expected: Any) -> None:
    got = run_graph(g, arrays)["y"]
    assert_close(got, expected, length=500)


def x_input(g: Builder, width: int = 12) -> Traced:
    return g.input("x", "f64", "batch", "seq", width)


RNG = np.random.default_rng(7)
X = RNG.standard_normal((2, 5, 12))
KEEP = np.array([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]])


def test_the_formula_reads_as_written() -> None:
    def make(g: Builder) -> Traced:
        x = x_input(g)
        return layer_norm(x + attention(x, x, x, mask=causal()))

    g = built(make)
    p = random_params(g)
    out = X + attend(p, "attention", X, X, 1, 1, lambda b, i, j: j <= i)
    check(g, p | {"x": X}, normed(p, "layer_norm", out, 1e-5))


def test_post_norm_encoder_layer_with_padding() -> None:
    def make(g: Builder) -> Traced:
        keep = g.input("keep", "i64", "batch", "seq")
        layer = Layer(heads=3, ffn=20, eps=1e-6)
        return blocks.encoder_layer(x_input(g), layer, mask=padding(keep))

    g = built(make)
    p = random_params(g)
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

    g = built(make)
    p = random_params(g)
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


def test_scale_and_softcap() -> None:
    g = built(lambda g: attention(*[x_input(g)] * 3, heads=1, scale=0.5, softcap=2, bias=False))
    p = random_params(g)
    q, k, v = (linear(p, f"attention.{n}", X) for n in "qkv")
    scores = 2 * np.tanh(q @ k.transpose(0, 2, 1) * 0.5 / 2)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    check(g, p | {"x": X}, linear(p, "attention.out", weights @ v))


def test_a_shared_layer_is_applied_again() -> None:
    g = built(lambda g: blocks.encoder(x_input(g), 3, Layer(heads=2, ffn=8), share=True))
    assert {p.value.name.split(".")[1] for p in g.params} == {"shared"}
    p = random_params(g)
    one = built(lambda g: blocks.encoder_layer(x_input(g), Layer(heads=2, ffn=8)))
    again = {n.value.name: p[n.value.name.replace("layer.", "layers.shared.")] for n in one.params}
    x = X
    for _ in range(3):
        x = run_graph(one, again | {"x": x})["y"]
    check(g, p | {"x": X}, x)


def test_embeddings_and_positions() -> None:
    ids = np.array([[3, 1, 4, 1], [2, 0, 0, 0]])

    def make(g: Builder) -> Traced:
        t = g.input("ids", "i64", "batch", "seq")
        x = blocks.embedding(t, 5, 6, scale=3, dtype="f64")
        x = x + blocks.sinusoidal("seq", 6, positions=9, dtype="f64", name="sines")
        x = x + blocks.learned("seq", 6, positions=9, offset=2, dtype="f64", name="learned")
        at = blocks.positions_of(t, 0)
        return x + blocks.embedding(at, 9, 6, dtype="f64", name="counted")

    g = built(make)
    p = random_params(g) | {"sines": sinusoidal_table(9, 6)}
    where = [[1, 2, 3, 4], [1, 0, 0, 0]]  # padding 0 stands at position 0, tokens count from 1
    expected = 3 * p["embeddings.tokens"][ids] + p["learned"][2:6] + p["counted"][np.array(where)]
    for position in range(4):
        for i in range(3):
            angle = position / 10000 ** (2 * i / 6)
            expected[:, position, 2 * i] += math.sin(angle)
            expected[:, position, 2 * i + 1] += math.cos(angle)
    check(g, p | {"ids": ids}, expected)


def test_heads() -> None:
    def make(g: Builder) -> Traced:
        x = x_input(g)
        table = blocks.token_table(7, 4, dtype="f64")
        g.output("pooled", blocks.pooler(x))
        g.output("classes", blocks.classifier(blocks.first_token(x), 3, activation="relu"))
        y = blocks.vocabulary_transform(x, 4, activation="gelu", eps=1e-6)
        return blocks.lm_head(y, 7, table=table, bias=True)

    g = built(make)
    p = random_params(g)
    out = run_graph(g, p | {"x": X})
    assert_close(out["pooled"], np.tanh(linear(p, "pooler.dense", X[:, 0])), length=12)
    dense = np.maximum(linear(p, "classifier.dense", X[:, 0]), 0)
    assert_close(out["classes"], linear(p, "classifier.out", dense), length=24)
    y = normed(p, "transform.norm", gelu(linear(p, "transform.dense", X)), 1e-6)
    expected = y @ p["embeddings.tokens"].T + p["lm_head.bias"]
    assert_close(out["y"], expected, length=24)


def test_names() -> None:
    def make(g: Builder) -> Traced:
        x = x_input(g)
        x = attention(x, x, x)
        x = attention(x, x, x)
        with g.scope("deep"):
            x = feed_forward(x, 4)
        return blocks.encoder(x, 1, Layer(heads=1))

    g = built(make)
    names = [v.name for v in g.values()]
    expected = (
        "attention attention_1 attention_1.q.weight attention.q attention.scores deep.ffn "
        "deep.ffn.up.weight layers.0.attention layers.0.attention_norm layers.0.ffn layers.0"
    )
    for name in expected.split():
        assert name in names, name
    assert len(set(names)) == len(names)


def test_a_users_name_wins() -> None:
    g = built(lambda g: g.label(layer_norm(x_input(g)), "mine"))
    assert g.outputs[0].value.name == "mine"


def test_seeded_fills_keep_the_variance() -> None:
    g = built(lambda g: attention(*[g.input("x", "f32", "batch", "seq", 48)] * 3))
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
