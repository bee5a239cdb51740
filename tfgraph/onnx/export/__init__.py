"""Graphs as ONNX files, of ONNX's own operators alone.

`exports` registers how an op is written, one function an op. An op without an entry is written as
what its body does, so that extensions need none. May import: ops, ir, errors.
"""

from tfgraph.onnx.export import elementwise, masks, movement, reduction, rotary, transformer
from tfgraph.onnx.export.emit import Emitter
from tfgraph.onnx.export.file import EXTERNAL_BYTES, write_model
from tfgraph.onnx.export.model import (
    DEFAULT_OPSET,
    OLDEST_OPSET,
    has_attention,
    newest_opset,
    to_onnx,
)
from tfgraph.onnx.export.registry import exports, find_exporter

_TABLES = (elementwise, masks, movement, reduction, rotary, transformer)

__all__ = [
    "DEFAULT_OPSET",
    "EXTERNAL_BYTES",
    "OLDEST_OPSET",
    "Emitter",
    "exports",
    "find_exporter",
    "has_attention",
    "newest_opset",
    "to_onnx",
    "write_model",
]
