"""Language-model head, and the heads beside it."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.formulas import (
    X,
    built,
    gelu,
    graph_of,
    linear,
    normed,
    params,
    result,
    softmax,
    x_input,
)
from helpers.reference import run_graph
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import blocks, ops
from tfgraph.ops import Builder, Traced, graph


def test_head_scale_and_softcap() -> None:
    g = built(lambda x: blocks.lm_head(x, 5, scale=0.5, softcap=2, bias=True))
    p = params(g)
    logits = X @ p["lm_head.weight"] + p["lm_head.bias"]
    assert_close(result(g, p), 2 * np.tanh(logits * 0.5 / 2), length=20)


def test_heads() -> None:
    def make(g: Builder) -> Traced:
        x = x_input(g)
        table = blocks.token_table(7, 4, dtype="f64")
        g.output("pooled", blocks.pooler(x))
        g.output("classes", blocks.classifier(blocks.first_token(x), 3, activation="relu"))
        y = blocks.vocabulary_transform(x, 4, activation="gelu", eps=1e-6)
        return blocks.lm_head(y, 7, table=table, bias=True)

    g = graph_of(make)
    p = params(g)
    out = run_graph(g, p | {"x": X})
    assert_close(out["pooled"], np.tanh(linear(p, "pooler.dense", X[:, 0])), length=12)
    dense = np.maximum(linear(p, "classifier.dense", X[:, 0]), 0)
    assert_close(out["classes"], linear(p, "classifier.out", dense), length=24)
    y = normed(p, "transform.norm", gelu(linear(p, "transform.dense", X)), 1e-6)
    expected = y @ p["embeddings.tokens"].T + p["lm_head.bias"]
    assert_close(out["y"], expected, length=24)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_logits_become_probabilities(backend: str) -> None:
    """Of a head that is tied to a table, scaled and capped; the likeliest token is that of the
    logits."""
    with graph("g") as g:
        x = g.input("x", "f32", "batch", "seq", 12)
        table = blocks.token_table(9, 12, name="words")
        logits = blocks.lm_head(x, 9, table=table, scale=0.5, softcap=2)
        g.output("logits", logits)
        g.output("p", ops.softmax(logits))
    made = g.build()
    p = params(made, "float32")
    found = tfgraph.compile(made, backend, weights=p)(x=X.astype(np.float32))
    want = 2 * np.tanh(X @ p["words"].astype(np.float64).T * 0.5 / 2)
    assert_close(found["logits"], want, length=40)
    assert_close(found["p"], softmax(want), length=60)
    np.testing.assert_array_equal(found["p"].argmax(-1), want.argmax(-1))
