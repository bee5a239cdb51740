"""What a graph's ops ask of its symbolic sizes: a window within its axis, no empty tensor.

Inference knows constants alone, so these relations are checked on every call, where the ranges of
the symbols don't prove them. Without the check a compiled kernel would read what is not its own.
May import: ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgraph.ir import Constraint, Dim, as_dim

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfgraph.ir import Graph, Node


def implied_constraints(graph: Graph) -> tuple[Constraint, ...]:
    """The relations that the graph needs and that neither ranges nor its constraints state."""
    found: dict[Constraint, None] = {}
    for difference in _differences(graph):
        if not difference.is_const and _lowest(difference, graph) < 0:
            found[_at_least_zero(difference)] = None
    return tuple(c for c in found if c not in graph.constraints)


def _differences(graph: Graph) -> Iterator[Dim]:
    """Dimensions that must not be negative."""
    for node in graph.nodes:
        yield from _windows(node)
    for value in graph.values():
        for dim in value.type.shape:
            yield dim - 1


def _windows(node: Node) -> Iterator[Dim]:
    if node.op == "slice":
        axis, start, stop = (node.attrs[name] for name in ("axis", "start", "stop"))
        assert isinstance(axis, int)
        yield as_dim(start)  # type: ignore[arg-type]
        yield node.inputs[0].type.shape[axis] - stop  # type: ignore[operator]
    elif node.op == "topk":
        yield node.inputs[0].type.shape[-1] - node.attrs["k"]  # type: ignore[operator]


def _lowest(dim: Dim, graph: Graph) -> int:
    """A number that the dimension is never below, for sizes within the ranges; -1 if unknown."""
    total = 0
    for monomial, coefficient in dim.terms:
        term = coefficient
        for atom, power in monomial:
            if not isinstance(atom, str):
                return -1
            symbol = graph.symbol(atom)
            term *= (symbol.low if coefficient > 0 else symbol.high) ** power
        total += term
    return total


def _at_least_zero(dim: Dim) -> Constraint:
    """dim >= 0 with no minus in it: 16 - seq becomes seq <= 16."""
    zero = as_dim(0)
    left = sum((Dim(((m, -c),)) for m, c in dim.terms if c < 0), start=zero)
    right = sum((Dim(((m, c),)) for m, c in dim.terms if c > 0), start=zero)
    return Constraint(left, "<=", right)
