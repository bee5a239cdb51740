"""ONNX files as graphs: `import_onnx` translates them node for node, and recovers nothing.

`translates` adds an operator to the table, from outside too. What a file holds is checked before it
is used; weights are mapped, not copied. Imports ops, ir and errors.
"""

from tfgraph.onnx import (
    activations,
    attention,
    convolution,
    elementwise,
    indexing,
    layers,
    quantized,
    reduction,
    resize,
    rounding,
    scatter,
    shapes,
    slicing,
)
from tfgraph.onnx.file import Weights
from tfgraph.onnx.importer import import_onnx
from tfgraph.onnx.registry import find_translator, operators, translates
from tfgraph.onnx.site import Site, Tensor

_TABLES = (
    activations,
    attention,
    convolution,
    elementwise,
    indexing,
    layers,
    quantized,
    reduction,
    resize,
    rounding,
    scatter,
    shapes,
    slicing,
)

__all__ = [
    "Site",
    "Tensor",
    "Weights",
    "find_translator",
    "import_onnx",
    "operators",
    "translates",
]
