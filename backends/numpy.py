"""The reference: every op by its body, in float64, rounded once an op. Plain and slow.

May import: base, memory, ops, runtime, ir.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Never

import numpy as np

from tfgraph.backends.base import (
    Backend,
    Executable,
    NDArray,
    Target,
    Weights,
    constraints_of,
    input_ports,
    output_ports,
    symbol_ranges,
)
from tfgraph.backends.memory import Step, reference_steps, refuse_absurd_steps
from tfgraph.backends.rounding import Rounding
from tfgraph.ir import Graph, Node, Value
from tfgraph.ops import FloatArray, evaluate, in_float64
from tfgraph.ops.floats import SharedArray
from tfgraph.parallel import side_by_side
from tfgraph.runtime.inputs import Inputs, refuse_positional
from tfgraph.runtime.outputs import check_out, deliver
from tfgraph.runtime.overlap import check_states
from tfgraph.runtime.runnable import Runnable
from tfgraph.runtime.sizes import Port, SymbolRange

Case = tuple[Mapping[str, NDArray], Mapping[str, int]]
"""Inputs by name, and the sizes that their shapes do not tell."""


@dataclass(repr=False)
class NumpyExecutable(Runnable):
    """Runs a graph node by node. With `exact` every float is float64 from the start, and nothing
    is rounded to the graph's dtypes: what the graph means in exact arithmetic, very nearly."""

    graph: Graph
    weights: Weights
    exact: bool = False
    functions: Mapping[str, Runnable] = field(default_factory=dict[str, Runnable])
    name: str = field(init=False)
    target: str = field(init=False, default="numpy")
    inputs: tuple[Port, ...] = field(init=False)
    outputs: tuple[Port, ...] = field(init=False)
    symbols: Mapping[str, SymbolRange] = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.graph.name
        self.inputs = input_ports(self.graph)
        self.outputs = output_ports(self.graph)
        self.symbols = symbol_ranges(self.graph)

    def __call__(
        self,
        /,
        *unnamed: Never,
        dims: Mapping[str, int] | None = None,
        out: Any = None,
        **inputs: Any,
    ) -> dict[str, NDArray]:
        """The outputs by name; see `Runnable.__call__`."""
        refuse_positional(unnamed, self.inputs)
        arrays, sizes = self._checked(inputs, dims)
        check_states({port.name for port in self.inputs if port.is_state}, arrays)
        places = check_out(self.outputs, sizes, arrays, out)
        wanted = {o.value.name for o in self.graph.outputs}
        found = {v.name: a for v, _, a in self._values(arrays, sizes, wanted)}
        # Copies: an output is never an input, a weight, a view of one, or another output.
        results = ((o.name, np.array(found[o.value.name], order="C")) for o in self.graph.outputs)
        return deliver(results, places, out)

    def together(self, cases: Sequence[Case]) -> list[dict[str, NDArray]]:
        """The outputs by name for each case of inputs and sizes, all computed node by node, so that
        a weight is widened to float64 once for all of them: for a model of few tokens that takes
        longer than the rest. As many run at once as there are cores; memory is that of all."""
        checked = [self._checked(inputs, dims) for inputs, dims in cases]
        weights = {p.value.name: SharedArray(self.weights[p.value.name]) for p in self.graph.params}
        wanted = {o.value.name for o in self.graph.outputs}
        found: list[dict[str, NDArray]] = [{} for _ in checked]
        # The largest first, so that all end at about the same time.
        sizes = [sum(array.size for array in arrays.values()) for arrays, _ in checked]
        order = sorted(range(len(checked)), key=lambda i: -sizes[i])
        runs = [self._values(*checked[i], None, weights) for i in order]
        with side_by_side(len(runs)) as each:
            while step := [s for s in each(lambda run: next(run, None), runs) if s is not None]:
                for i, (value, _, array) in zip(order, step, strict=True):
                    if value.name in wanted:
                        found[i][value.name] = array
                node = step[0][1]
                for value in () if node is None else node.inputs:
                    if value.name in weights:
                        weights[value.name].forget()
        return [
            {o.name: np.array(values[o.value.name], order="C") for o in self.graph.outputs}
            for values in found
        ]

    def trace(
        self,
        inputs: Mapping[str, NDArray],
        dims: Mapping[str, int] | None = None,
        keep: set[str] | None = None,
    ) -> Iterator[tuple[Value, Node | None, NDArray]]:
        """Every value in order with the node that made it, inputs and parameters first; only those
        named in `keep` where it is given. Raises TfgraphError at a node that does not fit into
        memory, before anything is computed."""
        yield from self._values(*self._checked(inputs, dims), keep)

    def _checked(
        self, inputs: Mapping[str, NDArray], dims: Mapping[str, int] | None
    ) -> tuple[dict[str, NDArray], dict[str, int]]:
        return self._check.check(inputs, dims)

    def _values(
        self,
        arrays: Mapping[str, NDArray],
        sizes: Mapping[str, int],
        keep: set[str] | None,
        shared: Mapping[str, FloatArray] | None = None,
    ) -> Iterator[tuple[Value, Node | None, NDArray]]:
        """Every value in order; `shared` are the weights where several runs share them."""
        refuse_absurd_steps(self._steps, sizes)
        weights = {p.value.name: self.weights[p.value.name] for p in self.graph.params}
        plain = arrays if shared else {**arrays, **weights}
        given = {n: FloatArray(self._wide(array)) for n, array in plain.items()}
        given.update(shared or {})
        sources = [i.value for i in self.graph.inputs] + [p.value for p in self.graph.params]
        for value in sources:
            if keep is None or value.name in keep:
                yield value, None, given[value.name].data
        like = FloatArray(np.zeros((), np.float64))
        graph = in_float64(self.graph) if self.exact else self.graph
        for node, results in evaluate(graph, given, sizes, like):
            for value, result in zip(node.outputs, results, strict=True):
                if keep is None or value.name in keep:
                    yield value, node, result.data

    @cached_property
    def _check(self) -> Inputs:
        constraints = [str(c) for c in constraints_of(self.graph)]
        return Inputs(self.inputs, self.symbols, constraints)

    @cached_property
    def _steps(self) -> list[Step]:
        return reference_steps(self.graph, self.exact)

    def _wide(self, array: NDArray) -> NDArray:
        wide = self.exact and array.dtype.kind == "f"
        return array.astype(np.float64) if wide else array


class NumpyBackend(Backend):
    """The reference backend."""

    name = "numpy"
    has_functions = True

    def compile(
        self,
        graph: Graph,
        weights: Weights,
        target: Target,
        functions: Mapping[str, Graph] | None = None,
    ) -> Executable:
        """The graph itself, ready to run."""
        others = {name: NumpyExecutable(g, weights) for name, g in (functions or {}).items()}
        return NumpyExecutable(graph, weights, functions=others)

    def rounding(self, node: Node, target: Target) -> Rounding:
        """A whole op in float64, rounded once."""
        return Rounding(arithmetic="float64")
