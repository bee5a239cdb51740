"""Graphs run, round and expand as the formulas say; nodes and errors know the user's line."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from helpers.op_samples import Sample, takes
from helpers.tolerance import assert_close

from tfgraph.fuzz.schema import own_ops
from tfgraph.ir import DType, Graph, rsqrt
from tfgraph.ir.mask import padding
from tfgraph.ops import (
    REGISTRY,
    FloatArray,
    add_layer_norm,
    attention,
    embedding,
    evaluate,
    expand,
    full,
    graph,
    iota,
    layer_norm,
    linear,
    linear_activation,
    mul,
    softmax,
    verify,
    xp,
)

NDArray = np.ndarray[Any, Any]
LIKE = FloatArray(np.zeros(1, np.float32))


def run(g: Graph, given: dict[str, Any], sizes: dict[str, int] | None = None) -> dict[str, NDArray]:
    """The outputs by name."""
    arrays = {k: v if isinstance(v, FloatArray) else FloatArray(v) for k, v in given.items()}
    known = dict(arrays)
    for node, results in evaluate(g, arrays, sizes or {}, LIKE):
        known.update(zip((v.name for v in node.outputs), results, strict=True))
    return {o.name: np.asarray(known[o.value.name].data) for o in g.outputs}


# A post-norm encoder layer, by hand. Vaswani et al. 2017, section 3; Devlin et al. 2019.

WIDTH, HEADS, FFN, VOCABULARY = 12, 3, 20, 11
WEIGHTS: dict[str, tuple[int, ...]] = {
    "table": (VOCABULARY, WIDTH),
    **{f"w{n}": (WIDTH, WIDTH) for n in "qkvo"},
    **{f"b{n}": (WIDTH,) for n in "qkvo"},
    "w1": (WIDTH, FFN),
    "b1": (FFN,),
    "w2": (FFN, WIDTH),
    "b2": (WIDTH,),
    "s1": (WIDTH,),
    "t1": (WIDTH,),
    "s2": (WIDTH,),
    "t2": (WIDTH,),
}


def encoder() -> Graph:
    with graph("encoder") as g:
        ids = g.input("ids", "i64", "batch", "seq")
        keep = g.input("keep", "i64", "batch", "seq")
        w = {name: g.param(name, "f64", *shape) for name, shape in WEIGHTS.items()}
        x = embedding(ids, w["table"]) * 4
        q, k, v = (linear(x, w[f"w{n}"], w[f"b{n}"]) for n in "qkv")
        a = attention(q, k, v, padding(keep), heads=HEADS, kv_heads=HEADS, scale=rsqrt(4))
        y = add_layer_norm(linear(a, w["wo"], w["bo"]), x, w["s1"], w["t1"], eps=1e-12)
        h = linear_activation(y, w["w1"], w["b1"], activation="gelu")
        z = layer_norm(y + linear(h, w["w2"], w["b2"]), w["s2"], w["t2"], eps=1e-12)
        g.output("z", z)
    return g.build()


def encoder_by_hand(ids: NDArray, keep: NDArray, w: dict[str, NDArray]) -> NDArray:
    def norm(x: NDArray, scale: NDArray, shift: NDArray) -> NDArray:
        mean = x.sum(-1, keepdims=True) / WIDTH
        variance = ((x - mean) ** 2).sum(-1, keepdims=True) / WIDTH
        return scale * (x - mean) / np.sqrt(variance + 1e-12) + shift

    z = np.empty((*ids.shape, WIDTH))
    for b in range(len(ids)):
        x = w["table"][ids[b]] * 4
        q, k, v = (x @ w[f"w{n}"] + w[f"b{n}"] for n in "qkv")
        heads = []
        for h in range(HEADS):
            columns = slice(4 * h, 4 * h + 4)
            scores = q[:, columns] @ k[:, columns].T / math.sqrt(4)
            weights = np.exp(scores) * (keep[b] != 0)
            heads.append(weights / weights.sum(-1, keepdims=True) @ v[:, columns])
        y = norm(x + np.concatenate(heads, -1) @ w["wo"] + w["bo"], w["s1"], w["t1"])
        inner = y @ w["w1"] + w["b1"]
        inner = np.array([t * (1 + math.erf(t / math.sqrt(2))) / 2 for t in inner.flat])
        z[b] = norm(y + inner.reshape(-1, FFN) @ w["w2"] + w["b2"], w["s2"], w["t2"])
    return z


@pytest.mark.parametrize(("batch", "length"), [(1, 1), (2, 7), (3, 33)])
@pytest.mark.parametrize("expanded", [False, True], ids=["fused", "expanded"])
def test_an_encoder_layer_by_hand(batch: int, length: int, expanded: bool) -> None:
    rng = np.random.default_rng(length)
    w = {name: rng.normal(0, 0.5, shape) for name, shape in WEIGHTS.items()}
    ids = rng.integers(0, VOCABULARY, (batch, length))
    keep = (np.arange(length) < rng.integers(1, length + 1, (batch, 1))).astype(np.int64)
    g = expand(encoder()) if expanded else encoder()
    verify(g)
    got = run(g, {"ids": ids, "keep": keep, **w}, {"batch": batch, "seq": length})["z"]
    want = encoder_by_hand(ids, keep, w)
    assert got.dtype == np.float64
    assert_close(got, want, length=200)


# Rounding and expanding, for every op.


@pytest.mark.parametrize("kind", [DType.float16, DType.bfloat16, DType.float32], ids=str)
@pytest.mark.parametrize("name", [n for n in own_ops() if "logical" not in n])
def test_rounding_happens_once_an_op(name: str, kind: DType) -> None:
    for seed in range(6):
        sample = Sample(name, kind, seed)
        narrow = run(sample.graph, sample.given, sample.sizes)
        wide = {
            k: FloatArray(a.data.astype(np.float64)) if a.dtype.is_float else a
            for k, a in sample.given.items()
        }
        exact = run(sample.graph, wide, sample.sizes)
        for key, result in narrow.items():
            np.testing.assert_array_equal(
                result.astype(np.float64), exact[key].astype(result.dtype).astype(np.float64)
            )


@pytest.mark.parametrize("name", own_ops("composite"))
def test_expanding_a_composite_op_gives_the_same_numbers(name: str) -> None:
    for seed in range(20):
        sample = Sample(name, DType.float64, seed)
        expanded = expand(sample.graph)
        verify(expanded)
        assert all(n.op != name for n in expanded.nodes)
        assert {v.name for v in sample.graph.values()} <= {v.name for v in expanded.values()}
        _same_results(sample, expanded)


@pytest.mark.parametrize(
    "name", [n for n in own_ops("core") if REGISTRY[n].operands and n != "cast"]
)
def test_a_core_op_expands_to_what_its_body_does(name: str) -> None:
    kind = DType.float64 if DType.float64 in takes(REGISTRY[name]) else DType.bool_
    for seed in range(20):
        sample = Sample(name, kind, seed)
        expanded = expand(sample.graph, lambda node: True)
        verify(expanded)
        _same_results(sample, expanded)


def _same_results(sample: Sample, expanded: Graph) -> None:
    want = run(sample.graph, sample.given, sample.sizes)
    got = run(expanded, sample.given, sample.sizes)
    assert got.keys() == want.keys()
    for key in want:
        assert got[key].dtype == want[key].dtype
        np.testing.assert_array_equal(got[key], want[key])


def test_expand_until_only_core_ops_are_left() -> None:
    g = encoder()
    while any(REGISTRY[n.op].kind == "composite" for n in g.nodes):
        g = expand(g)
    verify(g)
    assert {n.op for n in g.nodes} <= set(own_ops("core"))


def test_expand_only_what_is_picked() -> None:
    g = encoder()
    some = expand(g, lambda n: n.op == "add_layer_norm")
    ops = [n.op for n in some.nodes]
    assert "add_layer_norm" not in ops
    assert "attention" in ops


# Evaluation itself.


def test_results_come_in_order_and_all_of_them() -> None:
    with graph("g") as g:
        x = g.input("x", "f32", 3)
        y = x + 1
        z = y * x
        g.output("z", z)
        g.output("y", y)
    seen = list(evaluate(g.build(), {"x": FloatArray(np.ones(3, np.float32))}, {}, LIKE))
    assert [node.op for node, _ in seen] == ["add", "mul"]
    assert [results[0].data.tolist() for _, results in seen] == [[2, 2, 2], [2, 2, 2]]


def test_the_domain_is_set_only_while_running() -> None:
    with graph("g") as g:
        g.output("n", iota(length=g.symbol("n")))
    run(g.build(), {}, {"n": 3})
    assert xp.domain.get(None) is None


@pytest.mark.parametrize("like", [np.float16, np.int64, np.bool_, np.float64])
def test_a_full_tensor_does_not_depend_on_the_array_of_the_domain(like: Any) -> None:
    with graph("g") as g:
        g.output("tenth", full(shape=(2,), value=0.1, dtype=DType.float32))
        g.output("big", full(shape=(g.symbol("n"), 1), value=70001, dtype=DType.int64))
    found = dict(
        zip(
            ("tenth", "big"),
            (r for _, (r,) in evaluate(g.build(), {}, {"n": 2}, FloatArray(np.ones(3, like)))),
            strict=True,
        )
    )
    np.testing.assert_array_equal(found["tenth"].data, np.full(2, 0.1, np.float32))
    np.testing.assert_array_equal(found["big"].data, np.full((2, 1), 70001))


def test_no_warning_escapes(recwarn: pytest.WarningsRecorder) -> None:
    from tfgraph.ops import cast, exp, log, sigmoid

    x = FloatArray(np.array([-1e4, 0, 1e4, np.inf], np.float16))
    for f in (exp, log, sigmoid, softmax):
        f(x)
    mul(x, x)
    cast(x, dtype=DType.int8)
    assert not recwarn.list
