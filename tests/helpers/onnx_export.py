"""Writes graphs as ONNX models for the tests, and runs them outside of tfgraph."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

import tfgraph
from tfgraph.api.export import FUSED
from tfgraph.onnx.export import has_attention, to_onnx, write_model
from tfgraph.passes import parse_pipeline, run_pipeline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgraph.ir import Graph

    NDArray = np.ndarray[Any, Any]

OPSETS = (13, 17, 20, 23, 24, 28)
"""The oldest; LayerNormalization; Gelu; Attention; the default; the newest."""


def written(graph: Graph, opset: int, weights: Mapping[str, NDArray] | None = None) -> bytes:
    """The bytes of the file, which ONNX's checker has passed in full."""
    fused = graph
    if has_attention(opset):
        fused, _ = run_pipeline(graph, parse_pipeline(FUSED))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        write_model(to_onnx(fused, opset), fused, weights or {}, path, "model.onnx.data")
        onnx.checker.check_model(str(path), full_check=True)
        return path.read_bytes()


class NoKernel(Exception):
    """ONNX Runtime has no kernel for an operator and its element types."""


class Session:
    """ONNX Runtime on the bytes of a file."""

    def __init__(self, model: bytes) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        try:
            self._session = onnxruntime.InferenceSession(model, options)
        except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented as cause:
            raise NoKernel(str(cause)) from cause
        self._names = [output.name for output in self._session.get_outputs()]

    def __call__(self, **inputs: NDArray) -> dict[str, NDArray]:
        return dict(zip(self._names, self._session.run(self._names, inputs), strict=True))


def by_reference(model: bytes, **inputs: NDArray) -> dict[str, NDArray]:
    """What onnx's own reference makes of it."""
    evaluator = ReferenceEvaluator(onnx.load_from_string(model))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return dict(zip(evaluator.output_names, evaluator.run(None, inputs), strict=True))


def operators(model: bytes) -> Counter[str]:
    """How many nodes of each operator; all are standard ones."""
    nodes = onnx.load_from_string(model).graph.node
    assert not any(node.domain for node in nodes)
    return Counter(node.op_type for node in nodes)


def by_numpy(
    graph: Graph, inputs: Mapping[str, NDArray], weights: Mapping[str, NDArray] | None = None
) -> dict[str, NDArray]:
    """What the graph means."""
    return tfgraph.compile(graph, "numpy", weights=weights)(**inputs)
