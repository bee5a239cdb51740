"""What is computed where it is read, and has no kernel of its own: arithmetic of integers, such as
the positions of tokens, and runs of rows of a table of positions.

Integers are exact, so that they are the same wherever they are computed; what costs little costs
less than a kernel's launch. May import: dims, ops, ir.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from tfgraph.backends.tvm.generic import dims
from tfgraph.ops.embedding_sum import terms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfgraph.ir import Graph, Node, Value

Inner = Mapping["Value", "Node"]
"""The nodes that a kernel computes where it reads their results."""

NOTHING: Inner = MappingProxyType({})
_ARITHMETIC = {
    *("iota", "full", "cast", "where", "broadcast_to", "slice", "transpose"),
    *("add", "sub", "mul", "neg", "abs", "maximum", "minimum"),
    *("equal", "less", "logical_and", "logical_or", "logical_not"),
}
_MOST = 16
"""Nodes that one reader computes for one operand: each is computed anew for every reader."""


def inlinable(graph: Graph) -> Inner:
    """The nodes whose results a reader may compute. Those that weights alone make are made when the
    artifact is, and outputs have a kernel."""
    sizes: dict[Value, int] = {}
    found: dict[Value, Node] = {}
    for node in graph.nodes:
        value = node.outputs[0]
        if value in graph.weight_values or value in graph.output_values:
            continue
        sizes[value] = 1 + sum(sizes.get(v, 0) for v in node.inputs)
        if (_of_integers(node) and sizes[value] <= _MOST) or _are_rows(node):
            found[value] = node
        else:
            sizes[value] = 0
    return found


def read_inline(node: Node) -> list[Value]:
    """The operands that the kernel of a node may compute."""
    if _of_integers(node):
        return list(node.inputs)
    if node.op in ("take", "take_at"):
        return list(node.inputs[1:])
    if node.op == "rotary":
        return list(node.inputs[1:])
    if node.op in ("embedding", "embedding_sum"):
        return [table if ids is None else ids for ids, table in terms(node.inputs)]
    return []


def computed_by(node: Node, lazy: Inner, made: Callable[[Value], bool]) -> Inner:
    """Those of the nodes in `lazy` that the kernel of a node computes: what is `made` is read."""
    inner: dict[Value, Node] = {}
    ahead = read_inline(node)
    for value in ahead:
        if value in lazy and not made(value):
            inner[value] = lazy[value]
            ahead += inner[value].inputs
    return inner


def leaves(node: Node, inner: Inner) -> Iterator[Value]:
    """What the kernel of a node reads from memory, in the order of its parameters."""
    for value in node.inputs:
        yield from leaves(inner[value], inner) if value in inner else (value,)


def symbols_of(node: Node, inner: Inner = NOTHING) -> tuple[str, ...]:
    """All symbols of a node and of those that its kernel computes, sorted."""
    return tuple(sorted({s for n in (node, *inner.values()) for s in dims.symbols_of(n)}))


def _of_integers(node: Node) -> bool:
    values = (*node.inputs, *node.outputs)
    return node.op in _ARITHMETIC and not any(v.type.dtype.is_float for v in values)


def _are_rows(node: Node) -> bool:
    """Whether a node takes rows of an array, whole, which some kernels find there."""
    return node.op == "slice" and node.attrs["axis"] not in (-1, node.output.type.rank - 1)
