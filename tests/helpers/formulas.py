"""What blocks compute, by the formulas of the papers in float64; parameters at random."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from helpers.reference import run_graph
from helpers.tolerance import assert_close

from tfgraph.ir import Graph
from tfgraph.ops import Builder, Traced, graph, verify

Arrays = dict[str, np.ndarray[Any, Any]]
X = np.random.default_rng(7).standard_normal((2, 5, 12))
KEEP = np.array([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]])


def params(g: Graph, dtype: str = "float64") -> Arrays:
    """Parameters of every kind at random, norms' scales near one: nothing is invisible."""
    rng = np.random.default_rng(0)
    found: Arrays = {}
    for param in g.params:
        name, shape = param.value.name, tuple(map(int, param.value.type.shape))
        x = rng.standard_normal(shape) * (shape[0] ** -0.5 if len(shape) > 1 else 0.2)
        found[name] = (x + 1 if name.endswith("scale") else x).astype(dtype)
    return found


def graph_of(make: Any) -> Graph:
    """The graph whose output y is made in a builder."""
    with graph("g") as g:
        g.output("y", make(g))
    made = g.build()
    verify(made)
    return made


def built(make: Callable[[Traced], Traced], dtype: str = "f64", width: int = 12) -> Graph:
    """The graph whose output y is made of the input x [batch, seq, width]."""
    with graph("g") as g:
        g.output("y", make(g.input("x", dtype, "batch", "seq", width)))
    found = g.build()
    verify(found)
    return found


def x_input(g: Builder, width: int = 12) -> Traced:
    return g.input("x", "f64", "batch", "seq", width)


def check(g: Graph, arrays: Arrays, expected: Any) -> None:
    got = run_graph(g, arrays)["y"]
    assert_close(got, expected, length=500)


def result(g: Graph, p: Arrays, x: Any = X) -> Any:
    return run_graph(g, p | {"x": x})["y"]


def linear(p: Arrays, name: str, x: Any) -> Any:
    y = x @ p[f"{name}.weight"]
    return y + p[f"{name}.bias"] if f"{name}.bias" in p else y


def normed(p: Arrays, name: str, x: Any, eps: float) -> Any:
    if f"{name}.bias" in p:
        mean = x.mean(-1, keepdims=True)
        x = (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + eps)
        return x * p[f"{name}.scale"] + p[f"{name}.bias"]
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * p[f"{name}.scale"]


def attend(
    p: Arrays, name: str, x: Any, memory: Any, heads: int, kv_heads: int, allowed: Any
) -> Any:
    """Multi-head attention by loops over batch, heads and queries."""
    q, k, v = (
        linear(p, f"{name}.q", x),
        linear(p, f"{name}.k", memory),
        linear(p, f"{name}.v", memory),
    )
    size = q.shape[-1] // heads
    context = np.zeros_like(q)
    for b in range(x.shape[0]):
        for h in range(heads):
            g = h // (heads // kv_heads)
            kh, vh = (a[b, :, g * size : (g + 1) * size] for a in (k, v))
            for i in range(x.shape[1]):
                seen = [j for j in range(memory.shape[1]) if allowed(b, i, j)]
                if not seen:
                    continue  # a row that may attend to nothing gives zeros
                scores = np.array(
                    [q[b, i, h * size : (h + 1) * size] @ kh[j] / math.sqrt(size) for j in seen]
                )
                weights = np.exp(scores - scores.max())
                weights /= weights.sum()
                context[b, i, h * size : (h + 1) * size] = weights @ vh[seen]
    return linear(p, f"{name}.out", context)


def rms(x: Any, eps: float = 1e-5) -> Any:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def standard(x: Any, eps: float = 1e-5) -> Any:
    return rms(x - x.mean(-1, keepdims=True), eps)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def gelu(x: Any) -> Any:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def silu(x: Any) -> Any:
    return x / (1 + np.exp(-x))
