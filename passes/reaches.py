"""Lengths at which the masks and windows show in which two graphs differ.

A window of 4096 hides nothing from short sequences, and scores of long ones do not fit: so numbers
in masks that are larger than a length that can be drawn are taken for smaller ones, on both sides.
May import: sizes, ir.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfgraph.ir import Dim, Mask, as_dim
from tfgraph.ir.mask import All, Relative
from tfgraph.passes.sizes import SIZES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfgraph.ir import Graph, Node, Operand, Value

FARTHEST, MOST_FAR = 300, 4
"""The longest reach of a mask, and how many of them, beyond which lengths are drawn."""

_NEARER, _APART = 150, 5
"""What the first larger reach is taken for, and how far two are apart then at most."""


def far_lengths(before: Graph, after: Graph) -> list[int]:
    """Lengths just beyond what the masks reach in which the graphs differ."""
    found = {reach + 3 for reach in _differences(before, after) if max(SIZES) - 2 < reach}
    return sorted(length for length in found if length <= FARTHEST + 3)[-MOST_FAR:]


def with_nearer_masks(before: Graph, after: Graph) -> tuple[Graph, Graph] | None:
    """Both with the numbers in masks that reach further than that by nearer ones, in the same
    order; None where there are none, or where no length is beyond them. A graph that builds its
    positions itself may have such a number elsewhere: it is left alone."""
    longest = _longest(before)
    reaches = {r for r in _of_masks(before) if FARTHEST < r < longest}
    if not reaches & _differences(before, after) or _positions(after) > _positions(before):
        return None
    reaches |= {r for r in _of_masks(after) if FARTHEST < r < longest}
    nearer: dict[int, int] = {}
    last, value = 0, _NEARER - _APART
    for reach in sorted(reaches):
        value += min(reach - last, _APART)
        nearer[reach], last = value, reach
    return _replaced(before, nearer), _replaced(after, nearer)


def _differences(before: Graph, after: Graph) -> set[int]:
    reaches = [set(_reaches(graph)) for graph in (before, after)]
    return {reach for _, reach in reaches[0] ^ reaches[1]}


def _reaches(graph: Graph) -> Iterator[tuple[str, int]]:
    """The numbers in masks, and those at which slices of symbolic sizes start and end."""
    for part in _masks(graph):
        for dim in part.dims():
            if dim.is_const:
                yield str(part.map(lambda v: replace(v, name=""))), abs(int(dim))
    for node in graph.nodes:
        if node.op == "slice" and not node.inputs[0].type.shape[int(node.attrs["axis"])].is_const:  # type: ignore[arg-type]
            for name in ("start", "stop"):
                end = node.attrs[name]
                if isinstance(end, Dim) and end.is_const:
                    yield f"slice {name}", int(end)


def _masks(graph: Graph) -> Iterator[Mask]:
    for node in graph.nodes:
        for operand in node.operands:
            yield from operand.parts if isinstance(operand, Mask) else ()


def _of_masks(graph: Graph) -> set[int]:
    """But those of buckets of distances, which show at less, and have to be above their number."""
    parts = (part for part in _masks(graph) if not isinstance(part, Relative))
    return {int(d) for part in parts for d in part.dims() if d.is_const}


def _longest(graph: Graph) -> int:
    """No length is longer, if it is a sum of symbols."""
    values = list(graph.values())
    names = {s for v in values for d in v.type.shape[1:] for s in d.symbols}
    return sum(graph.symbol(name).high for name in names)


def _positions(graph: Graph) -> int:
    return sum(node.op == "iota" for node in graph.nodes)


def _replaced(graph: Graph, nearer: Mapping[int, int]) -> Graph:
    def near(dim: Dim) -> Dim:
        return as_dim(nearer.get(int(dim), int(dim))) if dim.is_const else dim

    def same(value: Value) -> Value:
        return value

    def operand(given: Operand) -> Operand:
        if not isinstance(given, Mask):
            return given
        return All(tuple(p if isinstance(p, Relative) else p.map(same, near) for p in given.parts))

    def node(given: Node) -> Node:
        return replace(given, operands=tuple(map(operand, given.operands)))

    return replace(graph, nodes=tuple(map(node, graph.nodes)))
