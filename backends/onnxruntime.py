"""ONNX Runtime as a witness: runs an ONNX file that was written for a graph.

May import: base, runtime, ir, errors; onnxruntime, which is a development dependency.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from tfgraph.backends.base import NDArray, constraints_of, input_ports, output_ports, symbol_ranges
from tfgraph.errors import CheckFailed, MissingTool
from tfgraph.runtime.inputs import check_inputs, refuse_positional
from tfgraph.runtime.outputs import check_out, deliver
from tfgraph.runtime.runnable import Runnable

if TYPE_CHECKING:
    from pathlib import Path

    from tfgraph.ir import Graph
    from tfgraph.runtime.sizes import Port, SymbolRange

_FATAL = 4  # of the levels of its log
_UNKNOWN = ("bfloat16", "int4")  # dtypes that its Python interface does not pass


@dataclass(repr=False)
class OnnxExecutable(Runnable):
    """The graph that was written to `path`. Raises MissingTool where ONNX Runtime is not installed,
    or has no kernel for what the file asks for."""

    graph: Graph
    path: Path
    name: str = field(init=False)
    target: str = field(init=False, default="onnxruntime")
    inputs: tuple[Port, ...] = field(init=False)
    outputs: tuple[Port, ...] = field(init=False)
    symbols: Mapping[str, SymbolRange] = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.graph.name
        self.inputs, self.outputs = input_ports(self.graph), output_ports(self.graph)
        self.symbols = symbol_ranges(self.graph)
        for port in (*self.inputs, *self.outputs):
            if port.dtype in _UNKNOWN:
                raise MissingTool(f"ONNX Runtime for Python passes no {port.dtype} ('{port.name}')")
        self._session: Any = _session(self.path)

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
        constraints = [str(c) for c in constraints_of(self.graph)]
        arrays, sizes = check_inputs(self.inputs, self.symbols, constraints, inputs, dims)
        places = check_out(self.outputs, sizes, arrays, out)
        given = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        names = [port.name for port in self.outputs]
        try:
            found = self._session.run(names, given)
        except Exception as cause:
            raise CheckFailed(f"ONNX Runtime fails on the file: {cause}") from cause
        return deliver(((n, np.asarray(a)) for n, a in zip(names, found, strict=True)), places, out)

    def close(self) -> None:
        """Free the session, which maps the file's weights."""
        self._session = None


def _session(path: Path) -> Any:
    try:
        runtime: Any = importlib.import_module("onnxruntime")
    except ModuleNotFoundError:
        raise MissingTool("onnxruntime is not installed", hint="pip install onnxruntime") from None
    options = runtime.SessionOptions()
    options.log_severity_level = _FATAL
    try:
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as cause:
        if type(cause).__name__ != "NotImplemented":
            raise CheckFailed(f"ONNX Runtime refuses the file: {cause}") from cause
        reason = str(cause).partition("Could not find an implementation for ")[2]
        operator = reason.partition(" node")[0] or str(cause)
        raise MissingTool(
            f"ONNX Runtime {runtime.__version__} has no kernel for {operator}"
        ) from None
