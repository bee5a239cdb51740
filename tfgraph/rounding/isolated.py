"""Isolated bounds: how far a kernel may be from the reference on the very same inputs.

May import: bounded, backends, ops, ir.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.backends.base import Target, Weights, find_backend
from tfgraph.backends.rounding import Rounding
from tfgraph.ir import DType, Exact, exact
from tfgraph.ops import FloatArray, find_op
from tfgraph.ops.evaluate import run_node
from tfgraph.ops.floats import held
from tfgraph.rounding.bounded import Bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfgraph.ir import Graph, Node

NDArray = np.ndarray[Any, Any]


def isolated_bounds(
    graph: Graph,
    weights: Weights,
    feeds: Mapping[str, NDArray],
    sizes: Mapping[str, int],
    backend: str | Target | None,
) -> dict[str, NDArray]:
    """For each output by name the largest |result - reference| of each element, float64.

    `graph` is what the backend runs, usually one node: the bounds of a chain of kernels grow with
    each; of None kernels are bounded that may add in any order. `feeds` are its inputs, `sizes` its
    symbols. A bound is infinite where none can be told: where a comparison of floats, or what
    depends on it, may come out either way, and where a divisor may be 0.
    """
    resolved, rounding_of = arithmetic(graph, backend)
    arrays = {i.value.name: feeds[i.value.name] for i in graph.inputs}
    arrays |= weights_of(resolved, weights, backend)
    given = (v for v in resolved.values() if v.name in arrays)
    known = {v.name: _exactly(arrays[v.name], v.type.dtype) for v in given}
    wanted = {o.value for o in graph.outputs}
    bounds = {v: known[v.name].errors for v in wanted if v.name in known}
    for node in resolved.nodes:
        if all(v.name in arrays for v in node.outputs):
            continue
        rounding = rounding_of(node)
        operands = {v.name: replace(known[v.name], rounding=rounding) for v in node.inputs}
        like = Bounded(np.zeros(()), DType.float64, rounding=rounding)
        results = run_node(held_constants(node), operands, sizes, like)
        for value, result in zip(node.outputs, results, strict=True):
            known[value.name] = replace(result, least=-np.inf)
            if value in wanted:
                bounds[value] = result.errors
    return {o.name: np.array(bounds[o.value], np.float64) for o in graph.outputs}


def arithmetic(
    graph: Graph, backend: str | Target | None
) -> tuple[Graph, Callable[[Node], Rounding]]:
    """The graph as a backend runs it, and how the kernel of each of its nodes rounds."""
    if backend is None:
        return graph, lambda node: Rounding()
    target = Target(backend) if isinstance(backend, str) else backend
    found = find_backend(target.name)
    return found.resolve(graph, target), lambda node: found.rounding(node, target)


def weights_of(graph: Graph, weights: Weights, backend: str | Target | None) -> dict[str, NDArray]:
    """The parameters and what nodes make of them alone, which the reference computes for every
    backend: so they are exact, on both sides the same. What is no backend of ours computes it."""
    known = {p.value.name: FloatArray(np.asarray(weights[p.value.name])) for p in graph.params}
    if backend is None:
        return {name: array.data for name, array in known.items()}
    like = FloatArray(np.zeros((), np.float64))
    for node in graph.nodes:
        if graph.weight_values.issuperset(node.outputs):
            results = run_node(node, known, {}, like)
            known |= zip((v.name for v in node.outputs), results, strict=True)
    return {name: array.data for name, array in known.items()}


def held_constants(node: Node) -> Node:
    """A core op with its scalar operands as the dtype holds them: so both sides read them."""
    dtype = node.inputs[0].type.dtype if node.inputs else None
    if dtype is None or not dtype.is_float or find_op(node.op).kind != "core":
        return node

    def constant(operand: Any) -> Any:
        if not isinstance(operand, Exact):
            return operand
        return exact(held(operand, dtype))

    return replace(node, operands=tuple(map(constant, node.operands)))


def _exactly(array: NDArray, dtype: DType) -> Bounded:
    return Bounded(array.astype(np.float64) if dtype.is_float else array, dtype)
