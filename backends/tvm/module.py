"""What the functions of one Relax module share: kernels, and weights in compiled layout, each once.

A weight is known by what it is made of, not by the name of its value: the function that merges Q, K
and V of a layer as another does reads the same bytes. May import: tvm, base, kernels,
passes, ir.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax

from tfgraph.backends.base import CompiledWeight
from tfgraph.ir import Graph, Node, Value, map_operand
from tfgraph.passes import Declined, PassReport
from tfgraph.passes.proof import Proof, prove_graphs

if TYPE_CHECKING:
    from tfgraph.backends.tvm.kernels import Kernels

NDArray = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Launch:
    """One call of a kernel, and the node that it is for; None where it copies a result."""

    kernel: str
    node: Node | None


@dataclass(frozen=True)
class LoweredFunction:
    """A function of the module and what its caller must pass: inputs, scalars, weights. `given` is
    its graph as it was, `graph` with the nodes that run as their parts taken apart."""

    given: Graph
    graph: Graph
    scalars: tuple[str, ...]
    weights: tuple[CompiledWeight, ...]
    launches: tuple[Launch, ...]
    """In the order in which they run."""
    expanded: tuple[Declined, ...] = ()
    """The nodes that run as their parts, and why."""


@dataclass(frozen=True)
class Lowered:
    """A Relax module: `main`, and the other functions by name."""

    module: Any
    main: LoweredFunction
    functions: Mapping[str, LoweredFunction]
    calls: Mapping[str, tuple[Node, ...]]
    """The nodes of the graphs for which each kernel is called, in order; none where it copies."""

    @property
    def report(self) -> PassReport:
        """What lowering did, as the passes tell it: kernels with their nodes, and `expanded`."""
        nodes = {name: len(callers) for name, callers in self.calls.items() if callers}
        functions = (self.main, *self.functions.values())
        expanded = [d for f in functions for d in f.expanded]
        proofs = (prove_graphs("lowering", f.given, f.graph) for f in functions)
        proof = reduce(Proof.and_then, proofs)
        return PassReport("lower", nodes, tuple(dict.fromkeys(expanded)), proof=proof)


class Module:
    """A Relax module that is being made: one `Lowering` a graph adds a function to it."""

    def __init__(
        self, weights: Mapping[str, NDArray], kernels: Kernels, tied: frozenset[Value] = frozenset()
    ) -> None:
        self.builder: Any = relax.BlockBuilder()
        self.kernels = kernels
        self.arrays = weights
        self.tied = tied
        """The parameters that a linear of any function reads transposed."""
        self.calls: dict[str, list[Node]] = {}
        """The nodes for which each kernel is called."""
        self._made: dict[Any, Any] = {}
        self._weights: dict[Any, CompiledWeight] = {}

    def kernel(self, key: Any, make: Callable[[], Any], name: str) -> Any:
        """The global variable of a kernel, made once for each key."""
        if key not in self._made:
            self._made[key] = self.builder.add_func(make(), name)
        return self._made[key]

    def weight(self, key: Any, names: list[str], make: Callable[[str], CompiledWeight]) -> Any:
        """The weight of that key, made under the first of `names` that is free, else numbered."""
        if key not in self._weights:
            taken = {weight.name for weight in self._weights.values()}
            numbered = (f"{names[-1]}.{i}" for i in range(len(taken) + 1))
            free = next(name for name in (*names, *numbered) if name not in taken)
            self._weights[key] = make(free)
        return self._weights[key]

    def finish(self, main: LoweredFunction, functions: Mapping[str, LoweredFunction]) -> Lowered:
        """The module as it is."""
        calls = {name: tuple(dict.fromkeys(nodes)) for name, nodes in self.calls.items()}
        return Lowered(self.builder.get(), main, functions, calls)


def identity(graph: Graph, value: Value) -> Any:
    """What a weight is made of, as a key: equal for two graphs that compute it alike."""
    if value in graph.param_values:
        return value
    node = graph.producer[value]
    made_of = [identity(graph, v) for v in node.inputs]
    kinds = [str(map_operand(o, lambda v: Value("", v.type))) for o in node.operands]
    return (node.op, *made_of, *kinds, *node.attrs.items(), node.outputs.index(value))
