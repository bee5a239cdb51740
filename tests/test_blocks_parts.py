"""Norms and where they stand, QK norm, experts, pointers, sorting and losses, in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.reference import run_graph
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import blocks
from tfgraph.blocks import Experts, Layer, Norm
from tfgraph.errors import TfgraphError
from tfgraph.ir.mask import causal, padding
from tfgraph.ops import Builder, graph, verify
from tfgraph.passes import DEFAULT_PIPELINE, parse_pipeline, run_pipeline

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.ir import Graph
    from tfgraph.ops import Traced

Arrays = dict[str, np.ndarray[Any, Any]]
RNG = np.random.default_rng(5)
X = RNG.standard_normal((2, 5, 12))


def built(make: Callable[[Traced], Traced], dtype: str = "f64", width: int = 12) -> Graph:
    with graph("g") as g:
        g.output("y", make(g.input("x", dtype, "batch", "seq", width)))
    found = g.build()
    verify(found)
    return found


def params(g: Graph, dtype: str = "float64") -> Arrays:
    rng = np.random.default_rng(0)
    sizes = {p.value.name: tuple(map(int, p.value.type.shape)) for p in g.params}
    return {
        name: (rng.standard_normal(s) * (s[0] ** -0.5 if len(s) > 1 else 0.5)).astype(dtype)
        for name, s in sizes.items()
    }


def result(g: Graph, p: Arrays, x: Any = X) -> Any:
    return run_graph(g, p | {"x": x})["y"]


def rms(x: Any, eps: float = 1e-5) -> Any:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def standard(x: Any, eps: float = 1e-5) -> Any:
    return rms(x - x.mean(-1, keepdims=True), eps)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def silu(x: Any) -> Any:
    return x / (1 + np.exp(-x))


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


def normed(p: Arrays, name: str) -> Callable[[Any], Any]:
    return lambda x: rms(x) * p[f"layer.{name}.scale"]


def placed(p: Arrays, placement: str, shared: bool, x: Any) -> Any:
    a, f = sublayers(p, "layer")
    n, m = normed(p, "attention_norm"), normed(p, "attention_norm" if shared else "ffn_norm")
    if placement == "parallel":
        return x + a(n(x)) + f(m(x))
    na, nf = normed(p, "attention_norm"), normed(p, "ffn_norm")
    if placement == "post":
        x = na(x + a(x))
        return nf(x + f(x))
    if placement == "pre":
        x = x + a(na(x))
        return x + f(nf(x))
    x = x + normed(p, "attention_post_norm")(a(na(x)))
    return x + normed(p, "ffn_post_norm")(f(nf(x)))


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


def test_biases_by_group() -> None:
    layer = Layer(heads=2, bias=False, qkv_bias=True, out_bias=False, ffn_bias=True)
    names = {p.value.name for p in built(lambda x: blocks.encoder_layer(x, layer)).params}
    biased = {n.removesuffix(".bias") for n in names if n.endswith(".bias") and "norm" not in n}
    assert biased == {f"layer.{n}" for n in (
        "attention.q", "attention.k", "attention.v", "ffn.up", "ffn.down"
    )}  # fmt: skip


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


def test_no_activation_is_one_linear() -> None:
    g = built(lambda x: blocks.feed_forward(x, 30, activation="none", bias=False))
    p = params(g)
    assert_close(result(g, p), X @ (p["ffn.up.weight"] @ p["ffn.down.weight"]), length=60)


def mixture(p: Arrays, x: Any, active: int, normalise: bool, shared: bool) -> Any:
    """Token by token: only the experts that it takes are computed at all."""

    def expert(name: str, y: Any) -> Any:
        gate, up, down = (p[f"ffn.{name}.{n}.weight"] for n in ("gate", "up", "down"))
        return (silu(y @ gate) * (y @ up)) @ down

    out = np.zeros_like(x)
    for at in np.ndindex(x.shape[:-1]):
        w = softmax(x[at] @ p["ffn.router.weight"])
        taken = sorted(range(len(w)), key=lambda e: (-w[e], e))[:active]
        total = sum(w[e] for e in taken) if normalise else 1.0
        for e in taken:
            out[at] += w[e] / total * expert(f"experts.{e}", x[at])
        if shared:
            out[at] += expert("shared", x[at])
    return out


@pytest.mark.parametrize(("experts", "shared"), [
    (Experts(4), False), (Experts(5, 3, normalise=False), False), (Experts(3, 1), False),
    (Experts(4, 4), False), (Experts(4, 2, shared=7), True), (Experts(1, 1), False),
])  # fmt: skip
def test_mixture_of_experts(experts: Experts, shared: bool) -> None:
    g = built(lambda x: blocks.mixture_of_experts(x, 8, experts))
    p = params(g)
    want = mixture(p, X, experts.active, experts.normalise, shared)
    assert_close(result(g, p), want, length=60)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_experts_that_are_not_taken_count_for_nothing(backend: str) -> None:
    """Not even where they give NaN; and a token's result is the same in any batch, bit for bit."""
    g = built(lambda x: blocks.mixture_of_experts(x, 8, Experts(4, 1)), "f32")
    p = params(g, "float32")
    p["ffn.router.weight"][:] = 0
    p["ffn.router.weight"][0, :2] = 50, -50
    x = X.astype(np.float32)
    x[0, :, 0], x[1, :, 0] = 1, -1  # the first row takes expert 0, the second expert 1 never
    x[1] = 0  # all equal: the expert of the lowest number
    for e in (1, 2, 3):
        p[f"ffn.experts.{e}.down.weight"][:] = np.nan
    run = tfgraph.compile(g, backend, weights=p)
    got = run(x=x)["y"]
    assert np.isfinite(got).all()
    assert_close(got, mixture(p, x.astype(np.float64), 1, True, False), length=100)
    for b in range(2):
        np.testing.assert_array_equal(run(x=x[b : b + 1])["y"][0], got[b])
        np.testing.assert_array_equal(run(x=x[b : b + 1, 2:3])["y"][0, 0], got[b, 2])


def test_pointer_head() -> None:
    memory = RNG.standard_normal((2, 4, 6))
    keep = np.array([[1, 1, 0, 1], [0, 0, 0, 0]])

    def make(x: Traced, g: Builder) -> Traced:
        m = g.input("memory", "f64", "batch", "source", 6)
        mask = padding(g.input("keep", "i64", "batch", "source"))
        return blocks.pointer_head(x, m, width=7, mask=mask)

    with graph("g") as b:
        b.output("y", make(b.input("x", "f64", "batch", "seq", 12), b))
    g = b.build()
    verify(g)
    p = params(g)
    got = run_graph(g, p | {"x": X, "memory": memory, "keep": keep})["y"]
    k, q = memory @ p["pointer.memory.weight"], X @ p["pointer.query.weight"]
    scores = np.tanh(k[:, None] + q[:, :, None]) @ p["pointer.score.weight"][:, 0]
    want = np.exp(scores) * keep[:, None]
    want[0] /= want[0].sum(-1, keepdims=True)
    assert_close(got, want, length=20)  # of the second row, whose input is all padding, zeros
    assert got.shape == (2, 5, 4)


def neural_sort(s: Any, tau: float) -> Any:
    """Equation 5 of Grover et al. 2019, element by element."""
    n = len(s)
    a = np.abs(s[:, None] - s[None, :])
    rows = [((n + 1 - 2 * i) * s - a @ np.ones(n)) / tau for i in range(1, n + 1)]
    return softmax(np.array(rows))


@pytest.mark.parametrize("n", [1, 2, 7])
def test_soft_sort(n: int) -> None:
    s = RNG.standard_normal((3, n))
    for tau in (1, 0.25, 0.001):
        with graph("g") as g:
            scores = g.input("s", "f64", "batch", "n")
            g.output("y", blocks.soft_sort(scores, tau=tau))
        got = run_graph(g.build(), {"s": s})["y"]
        want = np.stack([neural_sort(row, tau) for row in s])
        assert_close(got, want, length=64, scale=8 / tau)  # as large as what is exponentiated
        assert_close(got.sum(-1), np.ones((3, n)), length=n)
    hard = np.eye(n)[np.argsort(-s, axis=-1)]  # the permutation that sorts, descending
    assert_close(got, hard, length=64)


def test_soft_sort_on_the_cpu() -> None:
    with graph("g") as g:
        g.output("y", blocks.soft_sort(g.input("s", "f32", "batch", "n"), tau=0.5))
    s = RNG.standard_normal((3, 6))
    got = tfgraph.compile(g.build(), "cpu")(s=s.astype(np.float32))["y"]
    assert_close(got, np.stack([neural_sort(row, 0.5) for row in s]), length=64)


LABELS = np.array([[3, 0, -100, 6], [-100, -100, 1, 1]])


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_cross_entropy(backend: str) -> None:
    with graph("g") as g:
        logits = g.input("logits", "f32", "batch", "seq", 7)
        labels = g.input("labels", "i64", "batch", "seq")
        g.output("y", blocks.cross_entropy(logits, labels))
    run = tfgraph.compile(g.build(), backend)
    x = (RNG.standard_normal((2, 4, 7)) * 3).astype(np.float32)
    x[0, 0] += 1e4  # what all logits share cancels
    x[1, 2, 5] = -np.inf  # never chosen
    got = run(logits=x, labels=LABELS)["y"]
    for at in np.ndindex(2, 4):
        want = 0.0
        if LABELS[at] != -100:
            shifted = x[at].astype(np.float64) - x[at].max()
            want = np.log(np.exp(shifted).sum()) - shifted[LABELS[at]]
        assert_close(got[at], np.float64(want), length=16, scale=8.0)
    strange = run(logits=x, labels=np.full_like(LABELS, 7))["y"]
    assert np.isnan(strange).all(), "a label that is no class has no loss"


def test_cross_entropy_of_one_pass_is_that_of_each_prefix() -> None:
    """Teacher forcing: all losses of a causal model in one pass are those token by token."""
    with graph("g") as g:
        ids = g.input("ids", "i64", "batch", "seq")
        labels = g.input("labels", "i64", "batch", "seq")
        x = blocks.embedding(ids, 9, 8, dtype="f64")
        x = blocks.decoder(x, 2, Layer(heads=2, ffn=8), mask=causal())
        g.output("y", blocks.cross_entropy(blocks.lm_head(x, 9), labels))
    made = g.build()
    p = params(made)
    ids_ = RNG.integers(0, 9, (2, 6))
    labels_ = np.roll(ids_, -1, 1)
    whole = run_graph(made, p | {"ids": ids_, "labels": labels_})["y"]
    for n in range(1, 7):
        part = run_graph(made, p | {"ids": ids_[:, :n], "labels": labels_[:, :n]})["y"]
        assert_close(part[:, -1], whole[:, n - 1], length=200)


def test_head_scale_and_softcap() -> None:
    g = built(lambda x: blocks.lm_head(x, 5, scale=0.5, softcap=2, bias=True))
    p = params(g)
    logits = X @ p["lm_head.weight"] + p["lm_head.bias"]
    assert_close(result(g, p), 2 * np.tanh(logits * 0.5 / 2), length=20)


@pytest.mark.parametrize(("placement", "fused"), [("sandwich", 4), ("parallel", 2), ("pre", 4)])
def test_add_and_norm_fuse_wherever_they_meet(placement: str, fused: int) -> None:
    layer = Layer(heads=2, ffn=16, norm="rms_norm", placement=placement)
    g = built(lambda x: blocks.encoder(x, 2, layer), "f32")
    after, _ = run_pipeline(g, parse_pipeline(DEFAULT_PIPELINE))
    assert [n.op for n in after.nodes].count("add_rms_norm") == fused


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


@pytest.mark.parametrize("over", ["head", "own", "width"])
def test_projected_memory_is_what_layers_make_of_it(over: str) -> None:
    """Layers that differ, each with a norm of Q and K: the same parameters, the same values."""
    layers = [
        Layer(heads=4, kv_heads=2, qk_norm=Norm("rms_norm"), qk_norm_over=over, key_bias=False),
        Layer(heads=2, head_size=4, value_size=5, qk_norm=Norm("layer_norm"), qk_norm_over=over),
    ]

    def decoder(projected: bool) -> Graph:
        with graph("g") as g:
            x = g.input("x", "f64", "batch", "seq", 12)
            memory = g.input("memory", "f64", "batch", "source", 12)
            made = blocks.project_memory(memory, 2, layers) if projected else memory
            g.output("y", blocks.decoder_states(x, 2, layers, memory=made)[-1])
        return g.build()

    whole, apart = decoder(projected=False), decoder(projected=True)
    weights = params(whole)
    assert set(weights) == set(params(apart))
    assert "layers.1.cross_attention.k_norm.scale" in weights
    given = weights | {"x": X, "memory": RNG.standard_normal((2, 7, 12))}
    assert run_graph(apart, given)["y"].tobytes() == run_graph(whole, given)["y"].tobytes()
