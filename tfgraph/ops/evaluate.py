"""Run a graph through the bodies of its ops, in any domain; and expand composite ops in a graph.

May import: define, trace, xp, ir, errors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from tfgraph.errors import TfgraphError
from tfgraph.ir import Dim, DType, Mask, Node, Value, map_operand
from tfgraph.ops import xp
from tfgraph.ops.array import Array
from tfgraph.ops.builder import Builder
from tfgraph.ops.define import find_op
from tfgraph.ops.trace import Traced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tfgraph.ir import Attr, Graph

A = TypeVar("A", bound=Array)


def evaluate(
    graph: Graph, given: Mapping[str, A], sizes: Mapping[str, int], like: A
) -> Iterator[tuple[Node, tuple[A, ...]]]:
    """Each node with its results, in order.

    `given` holds the inputs and parameters by value name, `sizes` the symbols; `like` is any array
    of the domain. Raises TfgraphError, at the node's place, where an op refuses its operands.
    """
    known: dict[str, Any] = dict(given)
    last = {v.name: i for i, node in enumerate(graph.nodes) for v in node.inputs}
    kept = {v.name for v in graph.output_values}
    for i, node in enumerate(graph.nodes):
        results = run_node(node, known, sizes, like)
        yield node, results
        known.update(zip((v.name for v in node.outputs), results, strict=True))
        for name in {v.name for v in node.inputs}:
            if last[name] == i and name not in kept:
                del known[name]


def run_node(
    node: Node, known: Mapping[str, A], sizes: Mapping[str, int], like: A
) -> tuple[A, ...]:
    """Apply one node to arrays by value name, with symbols replaced by sizes."""
    definition = find_op(node.op)
    attrs = {name: _with_sizes(attr, sizes) for name, attr in node.attrs.items()}
    operands: list[Any] = []
    for operand in node.operands:
        if isinstance(operand, Mask):
            operands.append(operand.map(lambda v: known[v.name], lambda d: d.substitute(sizes)))
        else:
            operands.append(known[operand.name] if isinstance(operand, Value) else operand)
    try:
        token = xp.domain.set(like)
        try:
            first = next((known[v.name] for v in node.inputs), like)
            result: Any = first.apply(definition, operands, attrs)
        finally:
            xp.domain.reset(token)
    except IndexError as cause:
        raise TfgraphError(f"{node.op}: {cause}", node.location) from cause
    except TfgraphError as error:
        error.location = error.location or node.location
        raise
    return _as_tuple(result, len(node.outputs))


def _as_tuple(result: Any, count: int) -> tuple[Any, ...]:
    return tuple(result) if count > 1 else (result,)


def _with_sizes(attr: Attr, sizes: Mapping[str, int]) -> Attr:
    if isinstance(attr, Dim):
        return attr.substitute(sizes)
    if isinstance(attr, tuple):
        return tuple(_with_sizes(item, sizes) for item in attr)
    return attr


class Unexpandable(TfgraphError):
    """An op whose body takes arrays alone: it fails on values of a graph, so it has no parts."""

    def __init__(self, node: Node, cause: Exception) -> None:
        self.node = node
        said = cause.message if isinstance(cause, TfgraphError) else str(cause)
        kind = "" if isinstance(cause, TfgraphError) else f"{type(cause).__name__}: "
        self.reason = f"its body fails on values of a graph: {kind}{said}"
        hint = "write the body with tfgraph.ops.xp, or with ops"
        super().__init__(f"{node.op} has no parts: {self.reason}", node.location, hint)


def expand(graph: Graph, which: Callable[[Node], bool] | None = None) -> Graph:
    """The graph with composite ops (or those that `which` picks) replaced by their bodies.

    Results keep their names. Core ops that are picked are replaced by what their bodies do to
    traced values. Raises Unexpandable where a body fails on those.
    """
    nodes: list[Node] = []
    taken = {value.name for value in graph.values()}
    for node in graph.nodes:
        definition = find_op(node.op)
        if not (which(node) if which else definition.kind == "composite"):
            nodes.append(node)
            continue
        nodes += _expansion(node, taken)
    return replace(graph, nodes=tuple(nodes))


def _expansion(node: Node, taken: set[str]) -> list[Node]:
    """The nodes that the body of the node's op makes; new names are `result~number`."""
    builder = Builder("expansion", prefix="new ")
    with builder, builder.at(node.location):
        traced = [map_operand(o, lambda v: Traced(builder, v)) for o in node.operands]  # type: ignore[arg-type, return-value]
        try:
            results = _as_tuple(find_op(node.op).body(*traced, **node.attrs), len(node.outputs))
            if not all(isinstance(r, Traced) for r in results):
                raise TfgraphError("it does not return such values")
        except Exception as cause:
            raise Unexpandable(node, cause) from cause
        # A body that gives back an operand, as a mask that hides nothing does, still needs a node.
        results = tuple(r.reshape(r.shape) if r.value in node.inputs else r for r in results)
    names = {r.value: value for r, value in zip(results, node.outputs, strict=True)}
    base = node.outputs[-1].name.partition("~")[0]

    def rename(value: Value) -> Value:
        if value in names or value in node.inputs:
            return names.get(value, value)
        number = len(names)
        while f"{base}~{number}" in taken:
            number += 1
        taken.add(f"{base}~{number}")
        names[value] = Value(f"{base}~{number}", value.type)
        return names[value]

    return [
        replace(inner.map_values(rename), outputs=tuple(map(rename, inner.outputs)))
        for inner in builder.nodes
    ]


def in_float64(graph: Graph) -> Graph:
    """The graph with float64 where a cast or a constant names another float type."""

    def widened(node: Node) -> Node:
        dtype = node.attrs.get("dtype")
        if not isinstance(dtype, DType) or not dtype.is_float:
            return node
        return replace(node, attrs={**node.attrs, "dtype": DType.float64})

    return replace(graph, nodes=tuple(map(widened, graph.nodes)))
