"""Rotary positions in ONNX. May import: movement, registry, emit, ir."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgraph.onnx.export.movement import expand
from tfgraph.onnx.export.registry import exports

if TYPE_CHECKING:
    from tfgraph.ir import Node
    from tfgraph.onnx.export.emit import Emitter


def _sizes_are_known(node: Node) -> bool:
    return all(value.type.shape[-1].is_const for value in node.inputs)


@exports("rotary", since=23, when=_sizes_are_known)
def _rotary(to: Emitter, node: Node, x: str, cos: str, sin: str) -> Any:
    """ONNX's RotaryEmbedding has the same layout, and tables [batch, length, size/2]."""
    turned, table = node.inputs[0].type, node.inputs[1].type
    heads = int(node.attrs["heads"])  # type: ignore[arg-type]
    if table.rank == 2:
        whole = (turned.shape[0], *table.shape)
        with to.shared("rotary"):
            cos, sin = (expand(to, t, table.shape, whole) for t in (cos, sin))
    size, part = int(turned.shape[-1] // heads), int(2 * table.shape[-1])
    attrs: dict[str, Any] = {
        "num_heads": heads,
        "interleaved": int(bool(node.attrs["interleaved"])),
    }
    if part != size:
        attrs["rotary_embedding_dim"] = part
    return to.node("RotaryEmbedding", x, cos, sin, **attrs)
