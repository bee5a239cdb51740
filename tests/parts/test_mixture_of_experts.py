"""Mixture of experts: token by token, by the formula."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.formulas import (
    Arrays,
    X,
    built,
    params,
    result,
    silu,
    softmax,
)
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import blocks
from tfgraph.blocks import Experts
from tfgraph.ir import Output
from tfgraph.ops import graph


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


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_weights_are_renormalised_or_not(backend: str) -> None:
    """Those of the likeliest experts, divided by their sum or as they are; all others exactly 0."""
    mixtures = [(active, normalise) for active in (1, 3, 4) for normalise in (True, False)]
    with graph("g") as g:
        x = g.input("x", "f32", "batch", "seq", 12)
        for i, (active, normalise) in enumerate(mixtures):
            experts = Experts(5, active, normalise=normalise)
            g.output(f"y{i}", blocks.mixture_of_experts(x, 2, experts, name=f"moe{i}"))
    made = g.build()
    shown = [v for v in made.values() if v.name.endswith((".weights", ".probabilities"))]
    made = replace(made, outputs=tuple(Output(v.name, v) for v in shown))
    p = params(made, "float32")
    found = tfgraph.compile(made, backend, weights=p)(x=X.astype(np.float32))
    for i, (active, normalise) in enumerate(mixtures):
        likely = softmax(X @ p[f"moe{i}.router.weight"].astype(np.float64))
        assert_close(found[f"moe{i}.probabilities"], likely, length=60)
        taken = np.argsort(np.argsort(-likely, -1), -1) < active
        want = np.where(taken, likely, 0)
        if normalise:
            want = want / want.sum(-1, keepdims=True)
            assert_close(found[f"moe{i}.weights"].sum(-1), np.ones((2, 5)), length=8)
        assert_close(found[f"moe{i}.weights"], want, length=60)
        np.testing.assert_array_equal(found[f"moe{i}.weights"] > 0, taken)
