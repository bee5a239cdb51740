"""Cases that a planted fault once passed: operands of different rank, twins that differ in one
attribute, lines that are empty along another axis, rows of one large number, offsets far away."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import ops
from tfgraph.ir import as_dim
from tfgraph.ir.mask import alibi, causal, prefix, relative, segments, window

NDArray = np.ndarray[Any, Any]
BACKENDS = ("numpy", "cpu")


@pytest.mark.parametrize("backend", BACKENDS)
def test_products_of_different_ranks(backend: str) -> None:
    rng = np.random.default_rng(0)
    shapes = [
        ((2, 3, 5, 4), (3, 4, 6)),
        ((3, 5, 4), (2, 3, 4, 6)),
        ((2, 3, 5, 4), (4, 6)),
        ((5, 4), (2, 3, 4, 6)),
        ((2, 1, 5, 4), (3, 4, 6)),
    ]
    with ops.graph("g") as g:
        for i, (a, b) in enumerate(shapes):
            x, y = g.input(f"a{i}", "f32", *a), g.input(f"b{i}", "f32", *b)
            g.output(f"matmul{i}", ops.matmul(x, y))
            g.output(f"weighted{i}", ops.weighted_sum(x, y))
    feeds = {
        f"{n}{i}": rng.standard_normal(shape, np.float32)
        for i, pair in enumerate(shapes)
        for n, shape in zip("ab", pair, strict=True)
    }
    found = tfgraph.compile(g.build(), backend)(**feeds)
    for i in range(len(shapes)):
        want = feeds[f"a{i}"].astype(np.float64) @ feeds[f"b{i}"]
        for name in ("matmul", "weighted"):
            assert_close(found[f"{name}{i}"], want, length=4, scale=2.0, name=f"{name}{i}")


@pytest.mark.parametrize("backend", BACKENDS)
def test_twins_that_differ_in_one_attribute_have_kernels_of_their_own(backend: str) -> None:
    """Against each of them alone in a graph of its own."""

    def attend(**changed: Any) -> Any:
        options = {"heads": 2, "kv_heads": 2, "scale": 0.5, "softcap": None} | changed
        return lambda g, x, m: ops.attention(x, x, x, m, **options)

    def weight(g: Any) -> Any:
        return g.param("w", "f32", 16, 8)

    twins = {
        "plain": attend(),
        "cap 1": attend(softcap=1),
        "cap 5": attend(softcap=5),
        "scale": attend(scale=2),
        "heads": attend(heads=4, kv_heads=4),
        "groups": lambda g, x, m: ops.attention(
            x, *(ops.slice_(x, axis=2, start=0, stop=8),) * 2, m, heads=4, kv_heads=2, scale=0.5
        ),
        "norm": lambda g, x, m: ops.layer_norm(x, eps=1e-5),
        "norm eps": lambda g, x, m: ops.layer_norm(x, eps=1.0),
        "rms": lambda g, x, m: ops.rms_norm(x, eps=1e-5),
        "add norm": lambda g, x, m: ops.add_layer_norm(x, x, eps=1e-5),
        "add norm eps": lambda g, x, m: ops.add_layer_norm(x, x, eps=0.5),
        "gelu": lambda g, x, m: ops.linear_activation(
            x, g.param("w", "f32", 16, 8), activation="gelu"
        ),
        "relu": lambda g, x, m: ops.linear_activation(
            x, g.param("w", "f32", 16, 8), activation="relu"
        ),
        "linear": lambda g, x, m: ops.linear(x, weight(g)),
        "gated": lambda g, x, m: ops.gated_linear(
            x, weight(g), ops.slice_(x, axis=2, start=0, stop=8)
        ),
        "bias": lambda g, x, m: ops.linear(x, weight(g), g.param("b", "f32", 8)),
    }
    masks = {"none": lambda g: None, "causal": lambda g: causal(), "window": lambda g: window(1, 0)}
    rng = np.random.default_rng(1)
    weights = {"w": rng.standard_normal((16, 8), np.float32), "b": np.ones(8, np.float32)}
    x = rng.standard_normal((2, 9, 16), np.float32)

    def build(names: list[tuple[str, str]]) -> Any:
        with ops.graph("twins") as g:
            value = g.input("x", "f32", "batch", "seq", 16)
            for name, mask in names:
                g.output(f"{name}, {mask}", twins[name](g, value, masks[mask](g)))
        graph = g.build()
        used = {p.value.name: weights[p.value.name] for p in graph.params}
        return tfgraph.compile(graph, backend, weights=used, passes="dce")(x=x)

    attended = ("plain", "cap 1", "cap 5", "scale", "heads", "groups")
    every = [(n, m) for n in twins for m in masks if m == "none" or n in attended]
    together = build(every)
    for pair in every:
        (alone,) = build([pair]).values()
        np.testing.assert_array_equal(together[", ".join(pair)], alone, str(pair))
    several = [together[f"{n}, none"] for n in ("plain", "cap 1", "cap 5", "scale")]
    assert not any(np.array_equal(a, b) for a, b in pairwise(several))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_an_empty_line_along_any_axis_has_weights_of_zero(backend: str, axis: int) -> None:
    with ops.graph("g") as g:
        g.output("y", ops.softmax(g.input("x", "f32", "a", "b", 5), axis=axis))
    x = np.random.default_rng(2).standard_normal((4, 3, 5), np.float32)
    line: list[Any] = [1, 1, 1]
    line[axis] = slice(None)
    x[tuple(line)] = -np.inf
    y = tfgraph.compile(g.build(), backend)(x=x)["y"]
    assert not y[tuple(line)].any()
    sums = np.ones(tuple(n for i, n in enumerate(x.shape) if i != axis))
    sums[1, 1] = 0
    assert_close(y.sum(axis), sums, length=5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_norms_of_rows_of_one_number_are_finite(backend: str) -> None:
    """Whose variance is 0, and may come out negative."""
    with ops.graph("g") as g:
        for width in (7, 96, 768):
            x = g.input(f"x{width}", "f32", "n", width)
            g.output(f"norm{width}", ops.layer_norm(x, eps=1e-12))
            g.output(f"sum{width}", ops.add_layer_norm(x, x, eps=1e-12))
    numbers = np.geomspace(1e3, 1e17, 500).astype(np.float32)
    feeds = {f"x{w}": np.repeat(numbers[:, None], w, 1) for w in (7, 96, 768)}
    for name, y in tfgraph.compile(g.build(), backend)(**feeds).items():
        assert np.isfinite(y).all(), name


@pytest.mark.parametrize("beyond", [2**31 + 7, 2**33])
def test_queries_may_stand_as_far_away_as_they_like(beyond: int) -> None:
    """Beyond 32 bits, in tiles that another mask cuts: as at a moderate distance."""
    past = as_dim("past")
    with ops.graph("g") as g:
        g.symbol("past", 1, 2**40, 5)
        x = g.input("x", "f32", "batch", "s", 8)
        k = g.input("k", "f32", "batch", "t", 8)
        ids = segments(g.input("own", "i64", "batch", "s"), g.input("ids", "i64", "batch", "t"))
        lengths = g.input("lengths", "i64", "batch")
        masks = {
            "causal": causal(past),
            "window": window(3, 1, past),
            "right": window(right=0, offset=past),
            "prefix": prefix(lengths, past),
            "relative": relative(g.input("table", "f32", 8, 2), 20, offset=past),
        }
        for name, m in masks.items():
            g.output(name, ops.attention(x, k, k, m & ids, heads=2, kv_heads=2, scale=0.5))
    model = tfgraph.compile(g.build(), "cpu")
    rng = np.random.default_rng(3)
    feeds = {
        "x": rng.standard_normal((1, 5, 8), np.float32),
        "k": rng.standard_normal((1, 70, 8), np.float32),
        "own": rng.integers(0, 2, (1, 5)),
        "ids": rng.integers(0, 2, (1, 70)),
        "lengths": np.array([30]),
        "table": rng.standard_normal((8, 2), np.float32),
    }
    far, near = (model(dims={"past": past}, **feeds) for past in (beyond, 1000))
    for name in masks:
        np.testing.assert_array_equal(far[name], near[name], name)


def test_alibi_at_the_largest_offset() -> None:
    with ops.graph("g") as g:
        x, slopes = g.input("x", "f32", 1, "s", 8), g.input("slopes", "f32", 1)
        m = causal(2**30) & alibi(slopes, 2**30)
        g.output("y", ops.attention(x, x, x, m, heads=1, kv_heads=1, scale=1))
    feeds = {"x": np.ones((1, 3, 8), np.float32), "slopes": np.zeros(1, np.float32)}
    assert_close(tfgraph.compile(g.build(), "cpu")(**feeds)["y"], np.ones((1, 3, 8)))
