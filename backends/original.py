"""A witness that runs the very ONNX file that a model was imported from.

What it computes in between is found by the file's own names. May import: base, onnx_file,
onnxruntime, onnx_reference, ir, errors; onnx.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

import numpy as np
import onnx

from tfgraph.backends.base import input_ports, output_ports, symbol_ranges
from tfgraph.backends.onnx_reference import start_evaluator
from tfgraph.backends.onnxruntime import start_session
from tfgraph.errors import CheckFailed, TfgraphError
from tfgraph.runtime.runnable import Runnable

if TYPE_CHECKING:
    from tfgraph.ir import Graph

NDArray = np.ndarray[Any, Any]


class OriginalFile(Runnable):
    """An ONNX file that `graph` was imported from, in ONNX Runtime or in ONNX's evaluator. Raises
    MissingTool, CheckFailed where the library refuses it."""

    def __init__(self, graph: Graph, path: Path, witness: str) -> None:
        self.name, self.target = graph.name, witness
        self.inputs, self.outputs = input_ports(graph), output_ports(graph)
        self.symbols = symbol_ranges(graph)
        self.path = path
        start = start_session if witness == "onnxruntime" else start_evaluator
        self._session: Any = start(str(path))

    def __call__(
        self,
        /,
        *unnamed: Never,
        dims: Mapping[str, int] | None = None,
        out: Any = None,
        **inputs: Any,
    ) -> dict[str, NDArray]:
        """The outputs by name. The sizes are those of the inputs."""
        return self._run(self._session, [port.name for port in self.outputs], inputs)

    def inner(self, model: onnx.ModelProto, inputs: Mapping[str, NDArray]) -> dict[str, NDArray]:
        """Every result of every node of the file, by the file's names. `model` is what it holds."""
        names = [name for node in model.graph.node for name in node.output if name]
        if self.target == "onnx-reference":
            return dict(zip(names, self._evaluated(names, inputs), strict=True))
        tapped = onnx.ModelProto()
        tapped.CopyFrom(model)
        known = {output.name for output in tapped.graph.output}
        tapped.graph.output.extend(
            onnx.ValueInfoProto(name=name) for name in names if name not in known
        )
        session = start_session(tapped.SerializeToString(), folder=str(self.path.parent))
        return self._run(session, names, inputs)

    def close(self) -> None:
        """Free the session."""
        self._session = None

    def _evaluated(self, names: list[str], inputs: Mapping[str, NDArray]) -> list[NDArray]:
        with np.errstate(all="ignore"):
            found = self._session.run(None, dict(self._given(inputs)), intermediate=True)
        return [found[name] for name in names]

    def _run(
        self, session: Any, names: list[str], inputs: Mapping[str, NDArray]
    ) -> dict[str, NDArray]:
        try:
            with np.errstate(all="ignore"):
                found = session.run(names, dict(self._given(inputs)))
        except Exception as cause:
            raise CheckFailed(f"{self.target} fails on {self.path.name}: {cause}") from cause
        return {n: np.asarray(a) for n, a in zip(names, found, strict=True)}

    def _given(self, inputs: Mapping[str, NDArray]) -> Mapping[str, NDArray]:
        """The inputs by the file's names: a name that calls of ours take already has a `_`."""
        given: dict[str, NDArray] = {}
        for name in _input_names(self.path):
            array = inputs.get(name, inputs.get(f"{name}_"))
            if array is None:
                raise TfgraphError(
                    f"input '{name}' of {self.path.name} has no effect, and so is none of the "
                    f"imported graph: {self.target} cannot run the file without it"
                )
            given[name] = np.asarray(array, order="C")
        return given


def read_proto(path: Path) -> onnx.ModelProto:
    """What an ONNX file holds, functions inlined as the importer does; weights that stand beside it
    stay there."""
    library: Any = onnx
    model: onnx.ModelProto = library.load(str(path), load_external_data=False)
    if model.functions:
        from onnx import inliner

        model = inliner.inline_local_functions(model)
    return model


def _input_names(path: Path) -> list[str]:
    """Those that a caller gives: files may list their weights among the inputs, too."""
    graph = read_proto(path).graph
    stored = {tensor.name for tensor in graph.initializer}
    return [declared.name for declared in graph.input if declared.name not in stored]
