"""The ONNX exports in tests/data, and small models made here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from helpers.checkpoints import CASES
from onnx import TensorProto, helper, numpy_helper

NDArray = np.ndarray[Any, Any]
EXPORTS = Path(__file__).parents[1] / "data" / "onnx"
NAMES = tuple(sorted(path.stem for path in EXPORTS.glob("*.onnx")))
TYPES = {
    "f32": TensorProto.FLOAT,
    "i64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
    "i8": TensorProto.INT8,
    "u8": TensorProto.UINT8,
}


def references(export: str) -> dict[str, NDArray]:
    """The arrays recorded for an export, by `in.`, `out.`, `nomask.` and `leftpad.` names."""
    with np.load(CASES / export.partition(".")[0] / "ref.npz") as file:
        return dict(file)


def export_path(export: str) -> Path:
    """The file of an export."""
    return EXPORTS / f"{export}.onnx"


def save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[str, list[Any]]],
    outputs: list[str],
    initializers: dict[str, NDArray] | None = None,
    opset: int = 18,
) -> Path:
    """Write a model: inputs are dtypes and shapes by name, sizes of which may be names."""
    given = [helper.make_tensor_value_info(n, TYPES[t], shape) for n, (t, shape) in inputs.items()]
    made = [onnx.ValueInfoProto(name=name) for name in outputs]
    stored = [numpy_helper.from_array(a, n) for n, a in (initializers or {}).items()]
    graph = helper.make_graph(nodes, "g", given, made, stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), str(path))
    return path


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """A node; names are separated by blanks, `_` leaves one out."""
    names = ["" if name == "_" else name for name in inputs.split()]
    return helper.make_node(op, names, outputs.split(), name=f"n_{outputs}", **attributes)
