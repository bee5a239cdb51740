"""Weights that are computed when an artifact is made: their arrays, and what they are made of.

May import: memory, ops, ir.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tfgraph.backends.memory import refuse_absurd_constant
from tfgraph.ir import Graph, Value
from tfgraph.ops import FloatArray
from tfgraph.ops.evaluate import run_node

NDArray = np.ndarray[Any, Any]


def weight_array(graph: Graph, arrays: Mapping[str, NDArray], value: Value) -> NDArray:
    """A weight's array, computed from the parameters' arrays where nodes make it."""
    if value in graph.param_values:
        return arrays[value.name]
    node = graph.producer[value]
    refuse_absurd_constant(node)
    known = {v.name: FloatArray(weight_array(graph, arrays, v)) for v in node.inputs}
    results = run_node(node, known, {}, FloatArray(np.zeros((), np.float64)))
    return results[node.outputs.index(value)].data


def source_names(graph: Graph, value: Value) -> list[str]:
    """The names of the parameters that a weight is made of, in order."""
    if value in graph.param_values:
        return [value.name]
    inputs = graph.producer[value].inputs
    return list(dict.fromkeys(name for v in inputs for name in source_names(graph, v)))
