"""Multi-head attention: heads are separate attentions; sizes, biases, norms, scale and softcap."""

from __future__ import annotations

from typing import Any

import numpy as np
from helpers.formulas import (
    X,
    built,
    check,
    graph_of,
    linear,
    params,
    result,
    rms,
    softmax,
    x_input,
)
from helpers.part_graphs import HEADS, WEIGHTS, WIDTH, changed
from helpers.part_graphs import X as INPUT
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import blocks
from tfgraph.blocks import Layer, Norm, attention


def test_heads_are_separate_attentions(run: Any) -> None:
    q, k, v, out = (
        WEIGHTS[f"of_bare.{p}.weight"].astype(np.float64) for p in ("q", "k", "v", "out")
    )
    found, size = [], WIDTH // HEADS
    for h in range(HEADS):
        own = slice(h * size, (h + 1) * size)
        scores = (INPUT @ q[:, own]) @ (INPUT @ k[:, own]).transpose(0, 2, 1) / np.sqrt(size)
        weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        found.append(weights @ (INPUT @ v[:, own]))
        assert_close(run()["of_bare.probabilities"][:, h], weights, length=100)
    assert_close(run()["bare"], np.concatenate(found, -1) @ out, length=200)


def test_a_head_of_other_weights_changes_no_other_map(run: Any) -> None:
    found = run()
    before, after = found["of_bare.probabilities"], found["of_edited.probabilities"]
    assert changed(before, after)[:, 1].all()
    assert not changed(before, after)[:, [0, 2]].any()


def test_values_of_another_size_and_normed_heads() -> None:
    """Two query heads of 4, one key and value head, values of 3."""
    g = built(lambda x: blocks.attention(
        x, x, x, heads=2, kv_heads=1, head_size=4, value_size=3, qk_norm=Norm("rms_norm", 1e-6)
    ))  # fmt: skip
    p = params(g)
    assert p["attention.v.weight"].shape == (12, 3)
    assert p["attention.out.weight"].shape == (6, 12)
    q, k, v = (X @ p[f"attention.{n}.weight"] + p[f"attention.{n}.bias"] for n in "qkv")
    k = rms(k, 1e-6) * p["attention.k_norm.scale"]
    heads = []
    for h in range(2):
        own = rms(q[..., 4 * h : 4 * h + 4], 1e-6) * p["attention.q_norm.scale"]
        heads.append(softmax(own @ k.transpose(0, 2, 1) / 2) @ v)
    want = np.concatenate(heads, -1) @ p["attention.out.weight"] + p["attention.out.bias"]
    assert_close(result(g, p), want, length=40)

    single = {n: a.astype(np.float32) for n, a in p.items()}
    made = built(lambda x: blocks.attention(
        x, x, x, heads=2, kv_heads=1, head_size=4, value_size=3, qk_norm=Norm("rms_norm", 1e-6)
    ), "f32")  # fmt: skip
    got = tfgraph.compile(made, "cpu", weights=single)(x=X.astype(np.float32))["y"]
    assert_close(got, want, length=100)


def test_biases_by_group() -> None:
    layer = Layer(heads=2, bias=False, qkv_bias=True, out_bias=False, ffn_bias=True)
    names = {p.value.name for p in built(lambda x: blocks.encoder_layer(x, layer)).params}
    biased = {n.removesuffix(".bias") for n in names if n.endswith(".bias") and "norm" not in n}
    assert biased == {f"layer.{n}" for n in (
        "attention.q", "attention.k", "attention.v", "ffn.up", "ffn.down"
    )}  # fmt: skip


def test_scale_and_softcap() -> None:
    g = graph_of(lambda g: attention(*[x_input(g)] * 3, heads=1, scale=0.5, softcap=2, bias=False))
    p = params(g)
    q, k, v = (linear(p, f"attention.{n}", X) for n in "qkv")
    scores = 2 * np.tanh(q @ k.transpose(0, 2, 1) * 0.5 / 2)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    check(g, p | {"x": X}, linear(p, "attention.out", weights @ v))
