"""Scores of queries and keys, what exporters add to them, and the masks that are read from it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from helpers.reference import run_graph

from tfgraph import ops
from tfgraph.ir import Dim, Mask, as_dim
from tfgraph.ops import Builder
from tfgraph.passes import parse_pipeline, run_pipeline

HIDDEN = -3.4e38
SIZES = {"b": 2, "n": 4, "m": 3}
"""What the symbols are when values are compared."""


def line(size: Any, *shape: Any) -> Any:
    return ops.reshape(ops.iota(length=size), shape=shape)


def number(value: float, dtype: str = "f32") -> Any:
    return ops.full(shape=(), value=value, dtype=dtype)


@dataclass(frozen=True)
class Scores:
    """Scores [batch, 2, queries, keys], and positions that broadcast with them."""

    g: Builder
    b: Dim
    m: Dim
    n: Dim

    @property
    def q(self) -> Any:
        return line(self.m, 1, 1, self.m, 1)

    @property
    def k(self) -> Any:
        return line(self.n, 1, 1, 1, self.n)

    @property
    def at(self) -> Any:
        """Where the queries stand among the keys: at the end."""
        whole = ops.iota(length=self.n)
        last = ops.slice_(whole, axis=0, start=self.n - self.m, stop=self.n)
        return ops.reshape(last, shape=(1, 1, self.m, 1))

    @property
    def rows(self) -> Any:
        return line(self.b, self.b, 1, 1, 1)

    @property
    def scores(self) -> Any:
        q = self.g.input("q", "f32", self.b, 2, self.m, 3)
        k = self.g.input("k", "f32", self.b, 2, self.n, 3)
        return q @ ops.transpose(k, perm=(0, 1, 3, 2))

    def ids(self, dtype: str = "i64", *shape: Any, name: str = "ids") -> Any:
        return self.g.input(name, dtype, *(shape or (self.b, self.n)))

    def added(self, seen: Any) -> Any:
        return ops.where(seen, number(0), number(HIDDEN))


Make = Callable[[Scores], Any]


def keys(s: Scores, dtype: str = "bool") -> Any:
    return ops.reshape(s.ids(dtype), shape=(s.b, 1, 1, s.n))


def lengths(s: Scores, dtype: str = "i64") -> Any:
    return ops.reshape(s.ids(dtype, s.b, name="lengths"), shape=(s.b, 1, 1, 1))


def groups(s: Scores) -> tuple[Any, Any]:
    q, k = s.ids("i64", s.b, s.m, name="of_q"), s.ids("i64", name="of_k")
    return ops.reshape(q, shape=(s.b, 1, s.m, 1)), ops.reshape(k, shape=(s.b, 1, 1, s.n))


def as_floats(seen: Any, dtype: str = "f32") -> Any:
    return ops.cast(seen, dtype=dtype)


def recover(sizes: tuple[Any, ...], make: Make, passes: str = "recover-masks") -> str:
    """The mask of softmax(what is made). Values are compared, those of rows with no allowed key
    only if the pass reads nothing as minus infinity."""
    with ops.graph("g") as g:
        s = Scores(g, *map(as_dim, sizes))
        g.output("y", ops.softmax(make(s)))
    before = g.build()
    graph, (report,) = run_pipeline(before, parse_pipeline(passes))
    rng = np.random.default_rng(0)
    sizes_of = {n: as_dim(v) for n, v in SIZES.items()}
    given = {}
    for i in before.inputs:
        shape = tuple(int(d.substitute(sizes_of)) for d in i.value.type.shape)
        if i.value.type.dtype.is_float:
            given[i.value.name] = rng.standard_normal(shape).astype(np.float32)
        else:
            array = rng.integers(0, 2, shape)
            array[..., :1] = 1  # a mask allows a key
            given[i.value.name] = array.astype(i.value.type.dtype.value)
    want, got = (run_graph(item, given)["y"] for item in (before, graph))
    kept = (got != 0).any(-1) | (not report.reads)  # rows with an allowed key
    np.testing.assert_allclose(got[kept], want[kept], 1e-5, 1e-6)
    masks = [o for node in graph.nodes for o in node.operands if isinstance(o, Mask)]
    return " ".join(re.sub(r"%[\d~]+", "%", str(mask)) for mask in masks)
