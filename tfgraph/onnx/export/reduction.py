"""Reductions in ONNX. May import: registry, emit, ir."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgraph.ir import DType
from tfgraph.onnx.export.registry import exports

if TYPE_CHECKING:
    from tfgraph.ir import Node
    from tfgraph.onnx.export.emit import Emitter

_NAMES = {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax"}
_AXES_ARE_INPUTS = {"ReduceSum": 13, "ReduceMean": 18, "ReduceMax": 18}


@exports("sum", "mean", "max")
def _reduce(to: Emitter, node: Node, x: str) -> Any:
    return reduced(to, _NAMES[node.op], x, node.attrs["axis"], bool(node.attrs["keepdims"]))


def reduced(to: Emitter, op: str, x: str, axis: Any, keepdims: bool = True) -> Any:
    """A reduction along one axis."""
    if to.opset >= _AXES_ARE_INPUTS[op]:
        return to.node(op, x, to.ints(axis), keepdims=int(keepdims))
    return to.node(op, x, axes=[axis], keepdims=int(keepdims))


@exports("cumsum")
def _cumsum(to: Emitter, node: Node, x: str) -> Any:
    return to.node("CumSum", x, to.scalar(node.attrs["axis"], DType.int64))  # type: ignore[arg-type]


@exports("topk")
def _topk(to: Emitter, node: Node, x: str) -> Any:
    return to.node("TopK", x, to.ints(node.attrs["k"]), outputs=2, axis=-1)  # type: ignore[arg-type]


@exports("empty")
def _empty(to: Emitter, node: Node, x: str) -> Any:
    return is_empty(to, x, node.attrs["axis"], node.inputs[0].type.dtype)


def is_empty(to: Emitter, x: str, axis: Any, dtype: DType) -> Any:
    """Whether all along an axis is -inf; keeps the axis."""
    return to.node("Equal", reduced(to, "ReduceMax", x, axis), to.low(dtype))
