"""The memory that a graph takes when it runs, so that what cannot fit is refused beforehand.

A value lives from the node that makes it to the last that reads it. Inputs and parameters are the
caller's and count nowhere. May import: runtime, ops, ir.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tfgraph.ir import Dim, Graph, Node, Value, as_dim, dim_max, product
from tfgraph.ops import expand, find_op
from tfgraph.ops.evaluate import Unexpandable
from tfgraph.runtime.memory import refuse_absurd

_ZERO = as_dim(0)


@dataclass(frozen=True)
class Step:
    """A node, and the bytes that are taken while it runs."""

    node: Node
    taken: Dim


def reference_steps(graph: Graph, exact: bool = False) -> list[Step]:
    """The memory of the reference: composite ops run as their bodies, and each op has its operands
    and results in float64 besides. With `exact` every float is float64 anyway."""

    def stored(value: Value) -> Dim:
        return _bytes(value, 64 if exact and value.type.dtype.is_float else None)

    def widened(node: Node) -> Dim:
        narrow = [v for v in (*node.inputs, *node.outputs) if v.type.dtype.is_float and not exact]
        return _sum(_bytes(v, 64) for v in narrow if v.type.dtype.bits < 64)

    expanded = _parts(graph)
    return _steps(expanded, expanded.nodes, stored, widened)


def _parts(graph: Graph) -> Graph:
    """The graph with composite ops as their parts, but those whose bodies take arrays alone."""
    whole: set[str] = set()
    while True:
        try:
            return expand(graph, lambda n: find_op(n.op).kind == "composite" and n.op not in whole)
        except Unexpandable as error:
            whole.add(error.node.op)


def peak(steps: Iterable[Step]) -> Dim:
    """The most bytes that are taken at a time."""
    return most(step.taken for step in steps)


def most(amounts: Iterable[Dim]) -> Dim:
    """The largest of amounts, whatever the sizes."""
    largest: list[Dim] = []
    for taken in dict.fromkeys(amounts):
        if not any(_never_less(other, taken) for other in largest):
            largest = [d for d in largest if not _never_less(taken, d)] + [taken]
    return dim_max(*largest) if largest else _ZERO


def refuse_absurd_steps(steps: Iterable[Step], sizes: Mapping[str, int]) -> None:
    """Raise TfgraphError at the place of the first node for which memory does not suffice."""
    for step in steps:
        node, used = step.node, {name: sizes[name] for name in sorted(step.taken.symbols)}
        what = f"%{node.outputs[0].name} = {node.op}"
        refuse_absurd(step.taken.evaluate(sizes), what, used, node.location)


def refuse_absurd_constant(node: Node) -> None:
    """Raise TfgraphError for a node of fixed sizes whose results don't fit into memory."""
    step = Step(node, _sum(_bytes(value, 64) for value in node.outputs))
    refuse_absurd_steps([step], {})


def _steps(
    graph: Graph,
    nodes: Sequence[Node],
    stored: Callable[[Value], Dim],
    besides: Callable[[Node], Dim],
) -> list[Step]:
    last = {value: i for i, node in enumerate(nodes) for value in node.inputs}
    live: dict[Value, Dim] = {}
    total = _ZERO
    steps: list[Step] = []
    for i, node in enumerate(nodes):
        live |= {value: stored(value) for value in node.outputs}
        total += _sum(live[value] for value in node.outputs)
        steps.append(Step(node, total + besides(node)))
        for value in dict.fromkeys((*node.inputs, *node.outputs)):
            unread = last.get(value, i) == i and value not in graph.output_values
            if unread and value in live:
                total -= live.pop(value)
    return steps


def _bytes(value: Value, bits: int | None = None) -> Dim:
    bits = value.type.dtype.bits if bits is None else bits
    count = product(value.type.shape)
    return count * (bits // 8) if bits % 8 == 0 else (count * bits + 7) // 8


def _sum(amounts: Iterable[Dim]) -> Dim:
    return sum(amounts, start=_ZERO)


def _never_less(a: Dim, b: Dim) -> bool:
    """Whether a >= b is plain to see: a - b has no negative term."""
    return all(coefficient >= 0 for _, coefficient in (a - b).terms)
