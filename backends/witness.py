"""Witnesses: libraries that are not ours run a graph as the ONNX file that it is exported to.

Comparisons take them by name beside the backends; nothing is compiled for them. May import: base,
onnxruntime, onnx_reference, onnx, ir.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Never

from tfgraph.backends.base import Backend, Executable, Target, Weights
from tfgraph.backends.onnx_reference import ReferenceExecutable
from tfgraph.backends.onnxruntime import OnnxExecutable
from tfgraph.onnx.export import to_onnx, write_model

if TYPE_CHECKING:
    from tfgraph.backends.onnx_file import OnnxFile
    from tfgraph.ir import Graph


class Witness(Backend):
    """Exports a graph to a folder of its own, and runs the file."""

    runs: ClassVar[type[OnnxFile]]

    def compile(
        self,
        graph: Graph,
        weights: Weights,
        target: Target,
        functions: Mapping[str, Graph] | None = None,
    ) -> Executable:
        """The exported graph. Raises TfgraphError that names the nodes without a form in ONNX,
        MissingTool where the library is not installed."""
        folder = tempfile.TemporaryDirectory(prefix="tfgraph-")
        try:
            path = Path(folder.name) / "graph.onnx"
            write_model(to_onnx(graph), graph, weights, path, f"{path.name}.data")
            return _Held(self.runs(graph, path), folder)
        except BaseException:
            folder.cleanup()
            raise


class OnnxRuntimeWitness(Witness):
    """ONNX Runtime."""

    name = "onnxruntime"
    runs = OnnxExecutable


class OnnxReferenceWitness(Witness):
    """ONNX's ReferenceEvaluator."""

    name = "onnx-reference"
    runs = ReferenceExecutable


class _Held(Executable):
    """The file's executable; its folder goes with it."""

    def __init__(self, run: OnnxFile, folder: tempfile.TemporaryDirectory[str]) -> None:
        self.name, self.target = run.name, run.target
        self.inputs, self.outputs, self.symbols = run.inputs, run.outputs, run.symbols
        self._run, self._folder = run, folder

    def __call__(
        self,
        /,
        *unnamed: Never,
        dims: Mapping[str, int] | None = None,
        out: Any = None,
        **inputs: Any,
    ) -> dict[str, Any]:
        return self._run(*unnamed, dims=dims, out=out, **inputs)

    def close(self) -> None:
        self._run.close()
        self._folder.cleanup()
