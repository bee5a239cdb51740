"""fuse-embedding: what becomes one sum of embeddings, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from tfgraph import ops
from tfgraph.ir import sqrt
from tfgraph.ops import Builder
from tfgraph.passes import PASSES, run_pipeline
from tfgraph.text import print_node


def rows(g: Builder, name: str, *shape: Any, dtype: str = "i64", like: str = "f32") -> Any:
    ids = g.input(name, dtype, *(shape or ("batch", "seq")))
    return ops.embedding(ids, g.param(f"{name}.table", like, 9, 4))


def positions(g: Builder) -> Any:
    return ops.slice_(g.param("positions", "f32", 99, 4), axis=0, start=2, stop=g.symbol("seq") + 2)


def read(g: Builder, x: Any) -> Any:
    """That value, which is an output as well."""
    g.output("read", x)
    return x


def many(g: Builder) -> Any:
    """Five tables, of which four make one sum."""
    x = rows(g, "ids") * 3
    for name in ("b", "c", "d", "e"):
        x = x + rows(g, name, dtype="i32")
    return x


TOKENS = "embedding_sum(%ids, %ids.table"
KINDS = "%kinds, %kinds.table"
CASES: dict[str, tuple[Any, str]] = {
    "gpt2": (lambda g: rows(g, "ids") + positions(g), f"{TOKENS}, %1) {{scale=1}}"),
    "the original": (
        lambda g: rows(g, "ids") * sqrt(4) + positions(g),
        f"{TOKENS}, %2) {{scale=2}}",
    ),
    "bert": (
        lambda g: rows(g, "ids") + rows(g, "kinds") + positions(g),
        f"{TOKENS}, {KINDS}, %3) {{scale=1}}",
    ),
    "a scale alone": (lambda g: sqrt(3) * rows(g, "ids"), f"{TOKENS}) {{scale=sqrt(3)}}"),
    "the scaled one stands first": (
        lambda g: rows(g, "kinds") + rows(g, "ids") * 3,
        f"{TOKENS}, {KINDS}) {{scale=3}}",
    ),
    "a row, positions": (
        lambda g: rows(g, "ids") + g.param("row", "f32", 4) + rows(g, "kinds", "seq", dtype="i32"),
        f"{TOKENS}, %row, {KINDS}) {{scale=1}}",
    ),
    "before the sum": (
        lambda g: positions(g) + (g.param("row", "f32", 1, 4) + rows(g, "ids")),
        f"{TOKENS}, %row, %0) {{scale=1}}",
    ),
    "more rows than tokens": (
        lambda g: rows(g, "ids", "seq") + rows(g, "kinds"),
        f"{TOKENS}, {KINDS}) {{scale=1}}",
    ),
    "positions are read": (
        lambda g: rows(g, "ids") + read(g, rows(g, "kinds", "seq")),
        f"{TOKENS}, %1) {{scale=1}}",
    ),
}
LEFT: dict[str, tuple[Any, str]] = {
    "five tables": (many, ""),
    "three tables and two others": (
        lambda g: (
            rows(g, "ids") + rows(g, "b") + rows(g, "c") + g.param("row", "f32", 4) + positions(g)
        ),
        "",
    ),
    "tokens are read": (lambda g: read(g, rows(g, "ids")) + rows(g, "kinds"), "read by"),
    "scaled tokens are read": (lambda g: read(g, rows(g, "ids") * 3) + positions(g), "read by"),
    "tokens are read unscaled": (lambda g: read(g, rows(g, "ids")) * 3, "read by"),
    "another of its shape": (lambda g: rows(g, "ids") + g.input("x", "f32", "batch", "seq", 4), ""),
    "scaled by a tensor": (lambda g: rows(g, "ids") * g.param("row", "f32", 4), ""),
    "a number": (lambda g: rows(g, "ids") + 3, ""),
    "integers": (lambda g: rows(g, "ids", like="i32") * 3, "expected a floating point tensor"),
    "two sums": (lambda g: rows(g, "ids") * 3 + rows(g, "kinds") * 5, ""),
}


def fused(make: Any) -> tuple[Any, Any]:
    """The node that makes the result, and what the pass says."""
    with ops.graph("g") as g:
        g.output("y", make(g))
    graph, (report,) = run_pipeline(g.build(), [PASSES["fuse-embedding"]()], prove=True)
    return graph.producer[graph.outputs[-1].value], report


@pytest.mark.parametrize("name", CASES)
def test_what_becomes_one_sum(name: str) -> None:
    make, want = CASES[name]
    last, report = fused(make)
    assert print_node(last).partition(" = ")[2].partition(" : ")[0] == want
    assert report.proof.kind == "PROVED"
    assert not report.declined


@pytest.mark.parametrize("name", LEFT)
def test_what_does_not(name: str) -> None:
    """The last op stays; what the report says."""
    make, want = LEFT[name]
    last, report = fused(make)
    assert last.op in ("add", "mul")
    assert [want in d.reason for d in report.declined] == [True] * bool(want)
