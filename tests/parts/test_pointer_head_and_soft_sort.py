"""Pointer head: a distribution over the input. Soft sort: a permutation that is smooth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.formulas import (
    KEEP,
    X,
    params,
    softmax,
)
from helpers.reference import run_graph
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import blocks
from tfgraph.ir.mask import padding
from tfgraph.ops import Builder, Traced, graph, verify

RNG = np.random.default_rng(5)


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


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_what_a_pointer_gives_is_a_distribution_over_the_input(backend: str) -> None:
    with graph("g") as g:
        x, m = g.input("x", "f32", "batch", "seq", 12), g.input("memory", "f32", "batch", "s", 6)
        keep = g.input("keep", "i64", "batch", "s")
        g.output("y", blocks.pointer_head(x, m, width=7, mask=padding(keep)))
    made = g.build()
    p = params(made, "float32")
    memory = RNG.standard_normal((2, 5, 6)).astype(np.float32)
    got = tfgraph.compile(made, backend, weights=p)(
        x=X.astype(np.float32), memory=memory, keep=KEEP
    )
    y = got["y"]
    assert_close(y.sum(-1), np.ones((2, 5)), length=8)
    np.testing.assert_array_equal(y == 0, (KEEP[:, None] == 0) & np.ones((2, 5, 5), bool))
    wide = {name: w.astype(np.float64) for name, w in p.items()}
    k, q = memory @ wide["pointer.memory.weight"], X @ wide["pointer.query.weight"]
    scores = (np.tanh(k[:, None] + q[:, :, None]) @ wide["pointer.score.weight"])[..., 0]
    assert_close(y, softmax(np.where(KEEP[:, None] == 1, scores, -np.inf)), length=60)


def neural_sort(s: Any, tau: float) -> Any:
    """Equation 5 of Grover et al. 2019, element by element."""
    n = len(s)
    a = np.abs(s[:, None] - s[None, :])
    rows = [((n + 1 - 2 * i) * s - a @ np.ones(n)) / tau for i in range(1, n + 1)]
    return softmax(np.array(rows))


@pytest.mark.parametrize("n", [1, 2, 7])
def test_soft_sort(n: int) -> None:
    s = RNG.permuted(np.tile(np.arange(n) * 0.37 - 1, (3, 1)), axis=1)  # none close to another
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
    want = np.stack([neural_sort(row, 0.5) for row in s])
    assert_close(got, want, length=64, scale=8 / 0.5)  # as large as what is exponentiated
