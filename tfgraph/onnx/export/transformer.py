"""The ops of a Transformer in ONNX. May import: masks, movement, reduction, rows,
registry, emit, ir."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgraph.ir import Exact, Mask, TensorType, Value
from tfgraph.ir.mask import Causal
from tfgraph.onnx.export.masks import attention_mask
from tfgraph.onnx.export.movement import filled
from tfgraph.onnx.export.reduction import is_empty
from tfgraph.onnx.export.registry import exports, not_f64
from tfgraph.onnx.export.rows import Low

if TYPE_CHECKING:
    from tfgraph.ir import Node
    from tfgraph.onnx.export.emit import Emitter


@exports("linear")
def _linear(to: Emitter, node: Node, x: str, weight: str, bias: str = "") -> Any:
    y = to.node("MatMul", x, weight)
    return to.node("Add", y, bias) if bias else y


@exports("softmax")
def _softmax(to: Emitter, node: Node, x: str) -> Any:
    """A row that is -inf all along, of which ONNX makes NaN, gives zeros."""
    axis, given = node.attrs["axis"], node.inputs[0]
    y = to.node("Softmax", x, axis=axis)
    low = to.low_values.get(given, Low.NOWHERE)
    if low == Low.NOWHERE or (low == Low.SOME and axis in (-1, given.type.rank - 1)):
        return y
    dtype = given.type.dtype
    return to.node("Where", is_empty(to, x, axis, dtype), to.scalar(0, dtype), y)


@exports("layer_norm", since=17, when=not_f64)
def _layer_norm(to: Emitter, node: Node, x: str, scale: str = "", bias: str = "") -> Any:
    return to.node("LayerNormalization", x, scale or _ones(to, node), bias, **_norm(node))


@exports("rms_norm", since=23, when=not_f64)
def _rms_norm(to: Emitter, node: Node, x: str, scale: str = "") -> Any:
    return to.node("RMSNormalization", x, scale or _ones(to, node), **_norm(node))


def _norm(node: Node) -> dict[str, Any]:
    eps = node.attrs["eps"]
    assert isinstance(eps, Exact)
    return {"axis": -1, "epsilon": float(eps)}


def _ones(to: Emitter, node: Node) -> str:
    """The scale of a norm that has none."""
    given = node.output.type
    with to.shared("ones"):
        row = Value("ones", TensorType(given.dtype, (given.shape[-1],)))
        return str(filled(to, row, 1))


def _is_attention(node: Node) -> bool:
    """ONNX multiplies Q and K by the root of the scale, and takes 0 for one that is not given."""
    return not_f64(node) and float(node.attrs["scale"]) > 0  # type: ignore[arg-type]


@exports("attention", since=23, when=_is_attention)
def _attention(to: Emitter, node: Node, q: str, k: str, v: str, m: Any = "") -> Any:
    """ONNX's Attention has the same layout: heads side by side. Rows without a key give zeros."""
    heads, kv_heads = int(node.attrs["heads"]), int(node.attrs["kv_heads"])  # type: ignore[arg-type]
    scale, softcap = node.attrs["scale"], node.attrs["softcap"]
    attrs: dict[str, Any] = {"q_num_heads": heads, "kv_num_heads": kv_heads, "scale": float(scale)}  # type: ignore[arg-type]
    if softcap is not None:
        attrs["softcap"] = float(softcap)  # type: ignore[arg-type]
    mask = ""
    if isinstance(m, Causal) and (m.offset is None or not m.offset.terms):
        attrs["is_causal"] = 1
    elif isinstance(m, Mask):
        queries, keys = node.inputs[0].type, node.inputs[1].type
        shape = (queries.shape[0], heads, queries.shape[1], keys.shape[1])
        mask = attention_mask(to, m, queries.with_shape(shape))
    return to.node("Attention", q, k, v, mask, **attrs)
