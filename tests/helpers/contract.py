"""The graph on which every backend's contract is tested, and its meaning written plainly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import tfgraph
from tfgraph import ops
from tfgraph.ir import Fill, as_dim, exact
from tfgraph.ir.mask import causal, padding

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfgraph.backends.base import Executable
    from tfgraph.ops import Builder

NDArray = np.ndarray[Any, Any]
WEIGHTS: Mapping[str, NDArray] = {
    name: np.random.default_rng(i).standard_normal(shape).astype(np.float32)
    for i, (name, shape) in enumerate({"table": (50, 8), "w": (8, 8), "b": (8,)}.items())
}


def contract_graph() -> tfgraph.Graph:
    """Ids and a mask into attention; outputs of every kind, also those that compute nothing."""
    with tfgraph.graph("contract") as g:
        g.symbol("batch", 1, 16)
        g.symbol("seq", 1, 200)
        g.symbol("past", 1, 300)  # in no input's shape
        g.constrain("past", "<=", as_dim("seq") * 100)
        ids = g.input("ids", "i64", "batch", "seq", fill=Fill("ids", exact(50)))
        keep = g.input("keep", "bool", "batch", "seq", fill=Fill("prefix"))
        x = g.input("x", "f32", "batch", "seq", 8)
        table, w, b = (g.param(n, "f32", *a.shape) for n, a in WEIGHTS.items())
        h = ops.linear(ops.add(ops.embedding(ids, table), x), w, b)
        mask = causal() & padding(keep)
        y = ops.attention(h, h, h, mask, heads=2, kv_heads=2, scale=0.5)
        rows = (as_dim("batch") * "seq", 8)
        g.output("hidden", h)
        g.output("context", y)
        g.output("context_again", y)
        g.output("input", x)
        g.output("weight", w)
        g.output("weight_rows", ops.reshape(w, shape=(16, 4)))
        g.output("flat", ops.reshape(y, shape=rows))
        g.output("flat_input", ops.reshape(x, shape=rows))
        total = ops.sum_(ops.iota(length="past"))
        g.output("positions", ops.add(ops.iota(length="seq"), total))
        g.output("hidden_keys", ops.logical_not(keep))
    return g.build()


def meaning(past: int, ids: NDArray, keep: NDArray, x: NDArray) -> dict[str, NDArray]:
    """The outputs of `contract_graph` in float64."""
    table, w, b = (array.astype(np.float64) for array in WEIGHTS.values())
    batch, seq = ids.shape
    h = (table[ids] + x) @ w + b
    heads = h.reshape(batch, seq, 2, 4).transpose(0, 2, 1, 3)
    scores = 0.5 * heads @ heads.transpose(0, 1, 3, 2)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights *= np.tril(np.ones((seq, seq))) * keep[:, None, None, :]
    weights /= weights.sum(-1, keepdims=True)
    y = (weights @ heads).transpose(0, 2, 1, 3).reshape(batch, seq, 8)
    return {
        "hidden": h,
        "context": y,
        "context_again": y,
        "input": x,
        "weight": WEIGHTS["w"],
        "weight_rows": WEIGHTS["w"].reshape(16, 4),
        "flat": y.reshape(-1, 8),
        "flat_input": x.reshape(-1, 8),
        "positions": np.arange(seq) + past * (past - 1) // 2,
        "hidden_keys": ~keep,
    }


def feeds(batch: int, seq: int, seed: int = 0) -> dict[str, NDArray]:
    """Inputs of `contract_graph`; the first key is never masked."""
    rng = np.random.default_rng([seed, batch, seq])
    return {
        "ids": rng.integers(0, 50, (batch, seq)),
        "keep": np.arange(seq) < rng.integers(1, seq + 1, (batch, 1)),
        "x": rng.standard_normal((batch, seq, 8)).astype(np.float32),
    }


def compile_small(backend: str, build: Callable[[Builder], None]) -> Executable:
    """A graph of a few nodes, compiled."""
    with tfgraph.graph("small") as g:
        build(g)
    return tfgraph.compile(g.build(), backend)
