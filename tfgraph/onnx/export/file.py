"""Writes an ONNX model: weights inside the file, or beside it where they are many.

May import: ops, ir, errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import onnx

    from tfgraph.ir import Graph, Param

    NDArray = np.ndarray[Any, Any]

EXTERNAL_BYTES = 2**31 - 2**24
"""Above so many bytes of weights they stand beside the file: protobuf holds less than 2^31, the
nodes among them."""

_PAGE = 4096  # so that a runtime can map a weight
_PIECE = 1 << 26  # bytes that are written at a time


def write_model(
    model: onnx.ModelProto,
    graph: Graph,
    weights: Mapping[str, NDArray],
    path: Path,
    data_name: str,
    external_bytes: int = EXTERNAL_BYTES,
) -> bool:
    """Write the model with its weights to `path`; whether they stand beside it as `data_name`.

    Weights are read one after another, and of those beside the file none is held as a whole.
    """
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    params = [p for p in graph.params if p.value.name in stored]
    total = sum(_bytes(param) for param in params)
    if total <= external_bytes:
        for param in params:
            name = param.value.name
            stored[name].raw_data = numpy_helper.from_array(_array(weights[name])).raw_data
        path.write_bytes(model.SerializeToString())
        return False
    with path.with_name(data_name).open("wb") as file:
        for param in params:
            name, size = param.value.name, _bytes(param)
            file.write(b"\0" * (-file.tell() % _PAGE if size >= _PAGE else 0))
            start = file.tell()
            _stream(file, weights[name])
            tensor = stored[name]
            tensor.data_location = TensorProto.EXTERNAL
            place = {"location": data_name, "offset": str(start), "length": str(size)}
            for key, value in place.items():
                tensor.external_data.add(key=key, value=value)
    path.write_bytes(model.SerializeToString())
    return True


def _bytes(param: Param) -> int:
    kind = param.value.type
    count = int(np.prod([int(d) for d in kind.shape], dtype=np.int64))
    return (count * kind.dtype.bits + 7) // 8


def _array(array: NDArray) -> NDArray:
    """In the order and with the bytes that ONNX stores."""
    return np.ascontiguousarray(array).reshape(array.shape)


def _stream(file: Any, array: NDArray) -> None:
    """The elements in row-major order, a piece at a time."""
    if array.dtype.name == "int4":
        file.write(numpy_helper.from_array(array).raw_data)
        return
    if not array.flags.c_contiguous:
        for row in array if array.ndim > 1 else [np.ascontiguousarray(array)]:
            _stream(file, row)
        return
    flat = array.reshape(-1).view(np.uint8)
    for start in range(0, flat.size, _PIECE):
        file.write(flat[start : start + _PIECE].data)
