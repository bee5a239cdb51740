"""Which lines of the graph a kernel computes, for the head of its source.

May import: text, ops, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgraph.ops import find_op
from tfgraph.text import print_node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgraph.ir import Node

MOST_CALLS = 8
"""Nodes that are listed for a kernel."""


def callers(nodes: Sequence[Node]) -> list[str]:
    """The lines of the graph that a kernel computes."""
    if not nodes:
        return ["Makes a buffer of its own for an output that is another value, or a view of one."]
    lines = ["Computes:" if len(nodes) == 1 else f"Computes, at {len(nodes)} places:"]
    lines += [f"  {print_node(node)}" for node in nodes[:MOST_CALLS]]
    return lines + (["  ..."] if len(nodes) > MOST_CALLS else [])


def describe(nodes: Sequence[Node]) -> list[str]:
    """What a kernel computes, in a line for each of its ops, and for which lines of the graph."""
    ops = dict.fromkeys(node.op for node in nodes)
    return [*(f"{op}: {find_op(op).doc}" for op in ops), *callers(nodes)]
