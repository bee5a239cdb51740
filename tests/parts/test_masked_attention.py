"""Masked attention: the future reaches nothing; losses of all positions in one pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.formulas import (
    params,
)
from helpers.part_graphs import X as INPUT
from helpers.part_graphs import changed
from helpers.reference import run_graph
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import blocks
from tfgraph.blocks import Layer
from tfgraph.ir.mask import causal
from tfgraph.ops import graph

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("strange", [7.0, np.inf, np.nan])
def test_the_future_reaches_nothing_earlier(run: Any, strange: float) -> None:
    other = INPUT.copy()
    other[:, 4:] = strange
    got, want = run(other)["causal"], run()["causal"]
    assert not changed(got, want)[:, :4].any()
    assert changed(got, want)[:, 4:].all()


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
