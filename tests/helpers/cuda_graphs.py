"""Runs graphs as the CUDA backend lowers them, each kernel of the emitted CUDA C on the CPU.

    run = CudaGraphs({"y": graph}, directory)
    outputs = run("y", {"x": x}, {"batch": 2})

One program holds the kernels of all graphs. The calls between them are made here, in the order in
which the lowered function makes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from cuda_emulator.prim_funcs import CudaOnCpu, numpy_of
from tvm import ir, relax

from tfgraph.backends.tvm.cuda.kernels import CudaKernels
from tfgraph.backends.tvm.emitters import lower
from tfgraph.backends.tvm.generic.dims import from_expr

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tfgraph.ir import Graph

Arrays = dict[str, Any]


class CudaGraphs:
    """Graphs by name, with their weights by name of graph."""

    def __init__(
        self,
        graphs: Mapping[str, Graph],
        directory: Path,
        weights: Mapping[str, Arrays] | None = None,
    ) -> None:
        given = weights or {}
        self.lowered = {n: lower(g, given.get(n, {}), CudaKernels()) for n, g in graphs.items()}
        self.functions = {
            f"{name}_{item.name_hint}": function
            for name, lowered in self.lowered.items()
            for item, function in lowered.module.functions_items()
            if not isinstance(function, relax.Function)
        }
        self.cuda = CudaOnCpu(self.functions, directory)

    def __call__(self, name: str, inputs: Arrays, sizes: Mapping[str, int]) -> Arrays:
        """The outputs by name."""
        lowered = self.lowered[name]
        main = lowered.module["main"]
        known: dict[Any, Any] = {}
        weights = [np.array(w.make()).reshape(w.shape) for w in lowered.main.weights]
        given = [inputs[i.value.name] for i in lowered.main.graph.inputs]
        scalars = [sizes[s] for s in lowered.main.scalars]
        known.update(zip(main.params, [*given, *scalars, *weights], strict=True))
        for block in main.body.blocks:
            for binding in block.bindings:
                known[binding.var] = self._value(name, binding.value, known, sizes)
        results = known[main.body.body]
        return {o.name: array for o, array in zip(lowered.main.graph.outputs, results, strict=True)}

    def _value(
        self, name: str, value: Any, known: Mapping[Any, Any], sizes: Mapping[str, int]
    ) -> Any:
        if isinstance(value, relax.Tuple):
            return [known[field] for field in value.fields]
        if isinstance(value, relax.TupleGetItem):
            return known[value.tuple_value][value.index]
        if not isinstance(value, relax.Call):
            return known[value]

        def size(expr: Any) -> int:
            return from_expr(expr).evaluate(sizes)

        if value.op.name == "relax.reshape":
            return known[value.args[0]].reshape([size(s) for s in value.args[1].values])
        assert value.op.name == "relax.call_tir", value.op.name
        kinds = value.ty.fields if isinstance(value.ty, ir.TupleType) else [value.ty]
        outputs = [
            np.zeros([size(s) for s in kind.shape.values], numpy_of(str(kind.dtype)))
            for kind in kinds
        ]
        arguments = [known[a] if a in known else size(a) for a in value.args[1].fields]
        self._launch(f"{name}_{value.args[0].name_hint}", [*arguments, *outputs])
        return outputs if isinstance(value.ty, ir.TupleType) else outputs[0]

    def _launch(self, name: str, values: list[Any]) -> None:
        """Launch all kernels of a PrimFunc on its parameters."""
        arrays: dict[str, Any] = {}
        symbols: dict[str, Any] = {}
        for parameter, value in zip(self.functions[name].params, values, strict=True):
            if isinstance(value, int):
                symbols[str(parameter.name)] = value
                continue
            arrays[f"{parameter.name}_ptr"] = value
            known = zip(parameter.ty.shape, value.shape, strict=True)
            symbols |= {str(size): got for size, got in known if str(size).isidentifier()}
        for kernel in self.cuda.chosen(name, symbols):
            self.cuda.launch(kernel, arrays | symbols)
