"""Which attention nodes the attention kernel runs. May import: ir."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgraph.ir import Mask
from tfgraph.ir import mask as masks

if TYPE_CHECKING:
    from tfgraph.ir import Dim, Node, TensorType

_MAX_HEAD_SIZE = 256


def attention_misfit(node: Node) -> str:
    """Why the attention kernel cannot run a node; "" if it can."""
    q, k, v = node.inputs[:3]
    heads, kv_heads = int(node.attrs["heads"]), int(node.attrs["kv_heads"])  # type: ignore[arg-type]
    widths = q.type.shape[-1], v.type.shape[-1]
    if not all(width.is_const for width in widths):
        return "the width of heads is symbolic"
    width = max(int(widths[0]) // heads, int(widths[1]) // kv_heads)
    if width > _MAX_HEAD_SIZE:
        return f"heads of {width} are wider than the kernel's {_MAX_HEAD_SIZE}"
    mask = next((o for o in node.operands if isinstance(o, Mask)), None)
    for part in () if mask is None else mask.parts:
        if not _mask_fits(part, k.type.shape[1]):
            shape = next(iter(part.tensors())).type
            return f"the kernel cannot read a mask of {shape}, which has no element for each key"
    return ""


def _mask_fits(part: Mask, keys: Dim) -> bool:
    """Whether the kernel can read the mask's tensor: one element a key, at most rank 4."""
    if not isinstance(part, masks.Dense | masks.Bias):
        return True
    type_: TensorType = next(iter(part.tensors())).type
    return 1 <= type_.rank <= 4 and type_.shape[-1] == keys
