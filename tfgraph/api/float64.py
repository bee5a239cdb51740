"""A graph in float64 throughout, nothing rounded, and what becomes of it when ops are disturbed.

May import: backends.rounding, ops, ir.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tfgraph.backends.rounding import UNITS
from tfgraph.ops import FloatArray, evaluate, in_float64

if TYPE_CHECKING:
    from tfgraph.ir import Graph
    from tfgraph.ops import OpDef

NDArray = np.ndarray[Any, Any]
Arrays = Mapping[str, NDArray]


def is_float(array: NDArray) -> bool:
    """Whether the elements are floats, of bfloat16 too."""
    return str(array.dtype) in UNITS


@dataclass(frozen=True, eq=False)
class Disturbed(FloatArray):
    """An array whose ops are disturbed, also those in the bodies of composite ops. A subclass says
    by what."""

    def operand(self, definition: OpDef, data: NDArray) -> NDArray:
        """What a core op reads in place of these elements."""
        return data

    def result(
        self, definition: OpDef, operands: Sequence[Any], attrs: Mapping[str, Any], data: NDArray
    ) -> NDArray:
        """What a core op gives in place of these elements."""
        return data

    def apply(self, definition: OpDef, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        """The body of a core op in float64; of a composite op, each op in its body so."""
        composite = definition.kind == "composite"

        def given(x: Any) -> Any:
            if not isinstance(x, FloatArray):
                return x.map(given) if hasattr(x, "map") else x
            return self.of(x.data) if composite else FloatArray(self.operand(definition, x.data))

        with np.errstate(all="ignore"):
            result: Any = definition.body(*map(given, operands), **attrs)
        if isinstance(result, tuple):
            return tuple(self.of(r.data) for r in cast("tuple[FloatArray, ...]", result))
        data: NDArray = result.data
        return self.of(data if composite else self.result(definition, operands, attrs, data))

    def of(self, data: NDArray) -> Disturbed:
        """The same disturbance of another array."""
        return replace(self, data=data)


def outputs_in_float64(
    graph: Graph, weights: Arrays, inputs: Arrays, sizes: Mapping[str, int], like: FloatArray
) -> dict[str, NDArray]:
    """The outputs by name; `like` is any array of the domain to compute in."""
    given = dict(inputs) | {p.value.name: weights[p.value.name] for p in graph.params}
    arrays = {
        name: replace(like, data=array.astype(np.float64) if is_float(array) else array)
        for name, array in given.items()
    }
    wanted = {v.name for v in graph.output_values}
    found = {name: array.data for name, array in arrays.items() if name in wanted}
    with np.errstate(all="ignore"):
        for node, results in evaluate(in_float64(graph), arrays, sizes, like):
            named = zip((v.name for v in node.outputs), results, strict=True)
            found |= {name: result.data for name, result in named if name in wanted}
    return {o.name: found[o.value.name] for o in graph.outputs}
