"""Small rules and a short form of graphs, for the tests of the engine."""

from __future__ import annotations

from typing import Any

from tfgraph import ops
from tfgraph.ir import Graph
from tfgraph.ops import verify
from tfgraph.passes import call, rule, var
from tfgraph.text import print_graph


def nodes(graph: Graph) -> list[str]:
    """The nodes and the return of the text, types left out."""
    verify(graph)
    text = print_graph(graph).partition("weights {")[0]
    lines = [line.strip() for line in text.splitlines() if line.startswith("  ")]
    return [line.partition(" : ")[0] for line in lines]


@rule(call("exp", call("neg", var("x")), name="exp"))
def reciprocal(x: Any) -> Any:
    """exp(-x) -> 1 / exp(x)."""
    return ops.div(1, ops.exp(x))


@rule(call("neg", call("neg", var("x"), shared=True)))
def drop_double(x: Any) -> Any:
    """-(-x) -> x."""
    return x


def double(x: Any) -> Any:
    """-(-x)."""
    return ops.neg(ops.neg(x))
