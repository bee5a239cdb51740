"""A backend: the bodies of the ops in float64 throughout, rounded only at the end."""

from typing import Any

from tfgraph.backends import Backend, Executable, Target
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.ir import Graph


class _Float64(NumpyExecutable):
    def __call__(self, **inputs: Any) -> dict[str, Any]:
        found = super().__call__(**inputs)
        return {port.name: found[port.name].astype(port.dtype) for port in self.outputs}


class Float64Backend(Backend):
    """Runs a graph in float64."""

    name = "float64"

    def compile(self, graph: Graph, weights: Any, target: Target) -> Executable:
        """Nothing to compile."""
        return _Float64(graph, weights, exact=True)
