"""Elementwise ops and activations in ONNX. May import: registry, emit, ir."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgraph.ir import DType, exact
from tfgraph.onnx.export.emit import DTYPES
from tfgraph.onnx.export.registry import exports, not_f64

if TYPE_CHECKING:
    from tfgraph.ir import Node
    from tfgraph.onnx.export.emit import Emitter

_SAME = {
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "div": "Div",
    "pow": "Pow",
    "maximum": "Max",
    "minimum": "Min",
    "equal": "Equal",
    "less": "Less",
    "logical_and": "And",
    "logical_or": "Or",
    "logical_not": "Not",
    "where": "Where",
    "neg": "Neg",
    "abs": "Abs",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "sin": "Sin",
    "cos": "Cos",
    "tanh": "Tanh",
    "erf": "Erf",
    "floor": "Floor",
    "matmul": "MatMul",
    "weighted_sum": "MatMul",
    "relu": "Relu",
    "sigmoid": "Sigmoid",
}
"""Ops that ONNX has under another name, with the same operands."""


@exports(*_SAME)
def _same(to: Emitter, node: Node, *operands: str) -> Any:
    return to.node(_SAME[node.op], *operands)


@exports("where", when=lambda node: node.output.type.dtype == DType.bool_)
def _choose(to: Emitter, node: Node, condition: str, yes: str, no: str) -> Any:
    """ONNX Runtime has no Where of bools."""
    first = to.node("And", condition, yes)
    return to.node("Or", first, to.node("And", to.node("Not", condition), no))


@exports("less", when=lambda node: node.inputs[0].type.dtype == DType.bool_)
def _less(to: Emitter, node: Node, a: str, b: str) -> Any:
    """ONNX's Less takes no bools."""
    x, y = (to.node("Cast", v, dtype=DType.int32, to=DTYPES[DType.int32][0]) for v in (a, b))
    return to.node("Less", x, y)


@exports("cast")
def _cast(to: Emitter, node: Node, x: str) -> Any:
    dtype = node.output.type.dtype
    return to.node("Cast", x, dtype=dtype, to=DTYPES[dtype][0])


@exports("relu2")
def _relu2(to: Emitter, node: Node, x: str) -> Any:
    y = to.node("Relu", x)
    return to.node("Mul", y, y)


@exports("gelu", since=20)
def _gelu(to: Emitter, node: Node, x: str) -> Any:
    return to.node("Gelu", x)


@exports("gelu_tanh", since=20, when=not_f64)
def _gelu_tanh(to: Emitter, node: Node, x: str) -> Any:
    return to.node("Gelu", x, approximate="tanh")


@exports("silu")
def _silu(to: Emitter, node: Node, x: str) -> Any:
    """Not ONNX's Swish: ONNX Runtime 1.32 has no kernel for it."""
    return to.node("Mul", x, to.node("Sigmoid", x))


@exports("quick_gelu")
def _quick_gelu(to: Emitter, node: Node, x: str) -> Any:
    inside = to.node("Mul", x, to.scalar(exact(1.702), node.output.type.dtype))
    return to.node("Mul", x, to.node("Sigmoid", inside))
