"""Add & norm: norms, where they stand, and what they do over many layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.formulas import (
    Arrays,
    X,
    built,
    params,
    result,
    rms,
    softmax,
    standard,
)
from helpers.part_graphs import X as INPUT
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import blocks
from tfgraph.blocks import Layer, Norm
from tfgraph.ops import graph
from tfgraph.passes import DEFAULT_PIPELINE, parse_pipeline, run_pipeline
from tfgraph.weights import Seeded


@pytest.mark.parametrize(("norm", "want", "names"), [
    (Norm("rms_norm", unit_offset=True), lambda p: rms(X) * (1 + p["n.scale"]), {"scale"}),
    (Norm("rms_norm", scale=False), lambda p: rms(X), set()),
    (Norm("layer_norm", scale=False), lambda p: standard(X), set()),
    (Norm(bias=False, eps=0.1), lambda p: standard(X, 0.1) * p["n.scale"], {"scale"}),
    (Norm(scale=False, bias=True), lambda p: standard(X) + p["n.bias"], {"bias"}),
    (Norm(unit_offset=True), lambda p: standard(X) * (1 + p["n.scale"]) + p["n.bias"],
     {"scale", "bias"}),
    (Norm("none"), lambda p: X, set()),
])  # fmt: skip
def test_norms(norm: Norm, want: Callable[[Arrays], Any], names: set[str]) -> None:
    g = built(lambda x: norm(x * 1, "n"))
    p = params(g)
    assert set(p) == {f"n.{name}" for name in names}
    assert_close(result(g, p), want(p), length=12)


def sublayers(p: Arrays, name: str, heads: int = 2) -> tuple[Any, Any]:
    """Attention without a mask, and the feed-forward network, by their formulas."""

    def dense(x: Any, part: str) -> Any:
        y = x @ p[f"{name}.{part}.weight"]
        return y + p[f"{name}.{part}.bias"] if f"{name}.{part}.bias" in p else y

    def attention(x: Any) -> Any:
        q, k, v = (dense(x, f"attention.{n}") for n in "qkv")
        d = q.shape[-1] // heads
        parts = []
        for h in range(heads):
            s = slice(h * d, (h + 1) * d)
            w = softmax(q[..., s] @ k[..., s].transpose(0, 2, 1) / np.sqrt(d))
            parts.append(w @ v[..., s])
        return dense(np.concatenate(parts, -1), "attention.out")

    def feed(x: Any) -> Any:
        return dense(np.maximum(dense(x, "ffn.up"), 0), "ffn.down")

    return attention, feed


def norm_of(p: Arrays, name: str) -> Callable[[Any], Any]:
    return lambda x: rms(x) * p[f"layer.{name}.scale"]


def placed(p: Arrays, placement: str, shared: bool, x: Any) -> Any:
    a, f = sublayers(p, "layer")
    n, m = norm_of(p, "attention_norm"), norm_of(p, "attention_norm" if shared else "ffn_norm")
    if placement == "parallel":
        return x + a(n(x)) + f(m(x))
    na, nf = norm_of(p, "attention_norm"), norm_of(p, "ffn_norm")
    if placement == "post":
        x = na(x + a(x))
        return nf(x + f(x))
    if placement == "pre":
        x = x + a(na(x))
        return x + f(nf(x))
    x = x + norm_of(p, "attention_post_norm")(a(na(x)))
    return x + norm_of(p, "ffn_post_norm")(f(nf(x)))


@pytest.mark.parametrize(("placement", "shared"), [
    ("post", True), ("pre", True), ("sandwich", True), ("parallel", True), ("parallel", False),
])  # fmt: skip
def test_placements(placement: str, shared: bool) -> None:
    layer = Layer(
        heads=2, ffn=16, activation="relu", norm="rms_norm", placement=placement, shared_norm=shared
    )
    g = built(lambda x: blocks.encoder_layer(x, layer))
    p = params(g)
    assert_close(result(g, p), placed(p, placement, shared, X), length=200)


def test_scaled_and_left_out_residuals() -> None:
    plain = Layer(heads=2, ffn=16, activation="relu", norm="none")
    for layer, wanted in (
        (plain, lambda a, f: (X + a(X)) + f(X + a(X))),
        (Layer(**vars(plain) | {"residual_scale": 0.5}),
         lambda a, f: (X + a(X) / 2) + f(X + a(X) / 2) / 2),
        (Layer(**vars(plain) | {"residual": False}), lambda a, f: f(a(X))),
        (Layer(**vars(plain) | {"residual": False, "placement": "parallel"}),
         lambda a, f: a(X) + f(X)),
    ):  # fmt: skip
        g = built(lambda x, layer=layer: blocks.encoder_layer(x, layer))  # type: ignore[misc]
        p = params(g)
        assert not any("norm" in name for name in p)
        assert_close(result(g, p), wanted(*sublayers(p, "layer")), length=200)


@pytest.mark.parametrize(("placement", "fused"), [("sandwich", 4), ("parallel", 2), ("pre", 4)])
def test_add_and_norm_fuse_wherever_they_meet(placement: str, fused: int) -> None:
    layer = Layer(heads=2, ffn=16, norm="rms_norm", placement=placement)
    g = built(lambda x: blocks.encoder(x, 2, layer), "f32")
    after, _ = run_pipeline(g, parse_pipeline(DEFAULT_PIPELINE))
    assert [n.op for n in after.nodes].count("add_rms_norm") == fused


def test_a_sublayer_of_zeros(run: Any) -> None:
    found = run()
    np.testing.assert_array_equal(found["pre"], INPUT)
    assert_close(found["post"], found["twice"], length=100)
    x = INPUT.astype(np.float64)
    for _ in range(2):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    assert_close(found["twice"], x, length=100)


PLACED = {
    "none": Layer(heads=2, ffn=32, norm="none"),
    "post": Layer(heads=2, ffn=32),
    "no residual": Layer(heads=2, ffn=32, residual=False),
    "pre": Layer(heads=2, ffn=32, placement="pre"),
}
DEPTH = 24


def variances(seed: int) -> dict[str, Any]:
    """The variance after each of 24 seeded layers, by where norms stand."""
    with graph("g") as g:
        x = g.input("x", "f32", "batch", 6, 16)
        for i, layer in enumerate(PLACED.values()):
            with g.scope(f"stack{i}"):
                states = blocks.encoder_states(x, DEPTH, layer, final_norm=False)
            for n, state in enumerate(states):
                g.output(f"{i}.{n}", state)
    made = g.build()
    x_ = np.random.default_rng(seed).standard_normal((3, 6, 16)).astype(np.float32)
    found = tfgraph.compile(made, "numpy", weights=Seeded(made.params, seed))(x=x_)
    return {
        name: np.array([found[f"{i}.{n}"].var() for n in range(DEPTH + 1)])
        for i, name in enumerate(PLACED)
    }


@pytest.mark.parametrize("seed", [0, 1])
def test_the_variance_over_many_layers(seed: int) -> None:
    """Without a norm it grows by a factor each layer, with one behind each layer it stays near 1;
    norms before sublayers leave a sum that grows linearly."""
    found = variances(seed)
    assert found["none"][-1] > 1e4 * found["none"][1]
    assert (found["none"][6::6] > 3 * found["none"][:-6:6]).all()
    for name in ("post", "no residual"):
        assert (np.abs(found[name][1:] - 1) < 0.5).all(), name
    steps = np.diff(found["pre"][::6]) / 6
    assert (steps > 0).all()
    assert (steps < 4).all()


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_a_norm_does_not_depend_on_batch_mates(backend: str) -> None:
    """Not in a bit, whatever they are; nor does the fused add & norm."""
    with graph("g") as g:
        x = g.input("x", "f32", "batch", "seq", 12)
        for kind in ("layer_norm", "rms_norm"):
            y = Norm(kind)(x * 1, kind)
            g.output(kind, y)
            g.output(f"{kind} of a sum", Norm(kind)(x + blocks.linear(y, 12), f"{kind}_2"))
    made = g.build()
    run = tfgraph.compile(made, backend, weights=params(made, "float32"))
    x_ = X.astype(np.float32)
    alone = run(x=x_[:1, 2:3])
    for mate in (1e30, 0.0, np.nan, np.inf):
        others = np.full((3, 7, 12), mate, np.float32)
        others[1, 4] = x_[0, 2]
        for name, y in run(x=others).items():
            np.testing.assert_array_equal(y[1, 4], alone[name][0, 0], err_msg=name)
