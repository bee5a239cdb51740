"""A graph as what a host does to run it: arrays to make, kernels to launch in order.

Every op runs in its generic kernel, fused ones as their parts; equal nodes share a kernel, and a
reshape is the same array under another shape; see `inline` for what has no kernel. May import:
generic, languages, base, ops, passes, ir, errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfgraph.backends.base import CompiledWeight, NDArray, Weights
from tfgraph.backends.tvm.generic import (
    NOTHING,
    SUPPORTED,
    Inner,
    computed_by,
    gpu_kernel,
    inlinable,
    kernel_key,
    leaves,
    symbols_of,
)
from tfgraph.backends.tvm.portable.languages import LANGUAGES
from tfgraph.backends.tvm.weights import source_names, weight_array
from tfgraph.errors import TfgraphError
from tfgraph.ir import Graph, Node, Value
from tfgraph.ops import expand
from tfgraph.ops.evaluate import Unexpandable


@dataclass(frozen=True)
class Call:
    """One call of a PrimFunc, by its name. `arrays` holds the values whose arrays it is given, by
    the names of its parameters; sizes are symbols, and have their names."""

    function: str
    node: Node
    arrays: Mapping[str, str]


@dataclass(frozen=True)
class Program:
    """The PrimFuncs of a graph and the calls of them, in order."""

    graph: Graph
    """With its nodes taken apart into those that have a kernel."""
    functions: Mapping[str, Any]
    calls: tuple[Call, ...]
    views: Mapping[str, str]
    """What is another value's array under another shape."""
    weights: tuple[CompiledWeight, ...]
    scalars: tuple[str, ...]
    """Symbols that no input's shape tells."""

    def array(self, value: str) -> str:
        """The value whose array it is."""
        return self.views.get(value, value)

    def nodes_of(self, function: str) -> list[Node]:
        """The nodes that a PrimFunc computes."""
        return [call.node for call in self.calls if call.function == function]


def program_of(graph: Graph, weights: Weights, target: str) -> Program:
    """The program of a graph. Raises TfgraphError at a node that no kernel and no parts run."""
    graph = apart(graph, target)
    lazy, most = inlinable(graph), LANGUAGES[target].most_arrays
    functions: dict[str, Any] = {}
    known: dict[Any, str] = {}
    calls: list[Call] = []
    views: dict[str, str] = {}
    made: set[Value] = set()

    def make(value: Value) -> None:
        """The call that makes what is computed where it is read, for who cannot."""
        if value in lazy and value not in made:
            call(lazy[value])

    def call(node: Node) -> None:
        inner = computed_by(node, lazy, made.__contains__)
        if len([*leaves(node, inner), *node.outputs]) > most:
            inner = NOTHING
        for value in leaves(node, inner):
            make(value)
        made.update(node.outputs)
        key = kernel_key(node, inner)
        if key not in known:
            known[key] = _free(node.op, functions)
            functions[known[key]] = gpu_kernel(node, inner)
        calls.append(Call(known[key], node, _arrays(node, inner, views)))

    running = running_nodes(graph)
    for node in running:
        if node.op == "reshape":
            make(node.inputs[0])
            source = node.inputs[0].name
            views[node.output.name] = views.get(source, source)
        elif node.outputs[0] not in lazy:
            call(node)
    used = {v for node in running for v in node.inputs} | {o.value for o in graph.outputs}
    read = [v for v in graph.values() if v in graph.weight_values and v in used]
    bound = {str(d) for i in graph.inputs for d in i.value.type.shape if not d.is_const}
    symbols = {s for v in graph.values() for d in v.type.shape for s in d.symbols}
    symbols |= {s for node in graph.nodes for s in symbols_of(node)}
    return Program(
        graph,
        functions,
        tuple(calls),
        views,
        tuple(_weight(graph, weights, v) for v in read),
        tuple(sorted(symbols - bound)),
    )


def running_nodes(graph: Graph) -> list[Node]:
    """The nodes that are computed when the program runs, not when the artifact is made."""
    return [n for n in graph.nodes if not graph.weight_values.issuperset(n.outputs)]


def apart(graph: Graph, target: str) -> Graph:
    """The graph with ops that have no generic kernel taken apart."""

    def missing(node: Node) -> bool:
        return node.op not in SUPPORTED and not graph.weight_values.issuperset(node.outputs)

    while absent := [node for node in graph.nodes if missing(node)]:
        try:
            graph = expand(graph, missing)
        except Unexpandable as error:
            raise _refusal(error.node, target) from error
        left = {node.outputs: node.op for node in graph.nodes}
        for node in absent:
            if left.get(node.outputs) == node.op:
                raise _refusal(node, target)
    return graph


def _refusal(node: Node, target: str) -> TfgraphError:
    types = ", ".join(str(v.type) for v in node.inputs)
    return TfgraphError(
        f"the {target} backend cannot run {node.op} on {types}: it has no kernel and no parts",
        node.location,
        "--target cpu has other kernels",
    )


def _free(op: str, taken: Mapping[str, Any]) -> str:
    names = (op, *(f"{op}_{number}" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def _arrays(node: Node, inner: Inner, views: Mapping[str, str]) -> dict[str, str]:
    given = {f"x{i}": views.get(v.name, v.name) for i, v in enumerate(leaves(node, inner))}
    return given | {f"y{i}": v.name for i, v in enumerate(node.outputs)}


def _weight(graph: Graph, weights: Weights, value: Value) -> CompiledWeight:
    def make() -> NDArray:
        return weight_array(graph, weights, value)

    sizes = tuple(int(d) for d in value.type.shape)
    sources = tuple(source_names(graph, value))
    return CompiledWeight(value.name, value.type.dtype.value, sizes, "plain", sources, make)
