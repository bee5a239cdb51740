"""Masks in ONNX: computed in the graph by our own formulas, each once for the whole file.

The formulas are those of `ops.masking`, traced; so a mask means here what it means everywhere. May
import: emit, registry, ops, ir.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from tfgraph.ir import Mask, Value, as_dim
from tfgraph.onnx.export.registry import exports
from tfgraph.ops import masking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgraph.ir import Dim, Node, TensorType
    from tfgraph.onnx.export.emit import Emitter

Found = tuple[str, "Value"]


@exports("mask")
def _mask(to: Emitter, node: Node, x: str, m: Mask) -> Any:
    """Biases are added one after another, then what is hidden becomes -inf."""
    scores = node.output.type
    for part in m.parts:
        added = to.trace("mask", masking.bias, part, scores)
        x = x if added is None else to.node("Add", x, added[0])
    kept = allowed(to, m, scores)
    if kept is not None:
        return to.node("Where", kept[0], x, to.low(scores.dtype))
    return x if x != to.names[node.inputs[0]] else to.node("Identity", x)


def allowed(to: Emitter, m: Mask, scores: TensorType) -> Found | None:
    """What all parts allow, a bool tensor that broadcasts to the scores; None allows all."""

    def all_parts(mask: Mask, like: Any) -> Any:
        found = [masking.allowed(part, like) for part in mask.parts]
        kept = [a for a in found if a is not None]
        return reduce(lambda a, b: a.binary("logical_and", b), kept) if kept else None

    return to.trace("mask", all_parts, m, scores)


def biases(to: Emitter, m: Mask, scores: TensorType) -> Found | None:
    """The sum of all biases, which broadcasts to the scores; None adds nothing."""

    def all_parts(mask: Mask, like: Any) -> Any:
        found = [masking.bias(part, like) for part in mask.parts]
        added = [b for b in found if b is not None]
        return reduce(lambda a, b: a.binary("add", b), added) if added else None

    return to.trace("mask", all_parts, m, scores)


def attention_mask(to: Emitter, m: Mask, scores: TensorType) -> str:
    """The fourth operand of ONNX's Attention: what is allowed, or what is added, with -inf where
    nothing is allowed; "" where neither is said.

    Its shape is [query, key] or [batch or 1, head or 1, query, key]: ONNX Runtime's kernels want
    the last two sizes as they are.
    """
    found = [f for f in (allowed(to, m, scores), biases(to, m, scores)) if f is not None]
    if not found:
        return ""
    shapes = [value.type.shape for _, value in found]
    whole = _together(shapes, scores)
    name = found[0][0]
    with to.shared("mask"):
        if len(found) == 2:
            name = to.node("Where", name, found[1][0], to.low(scores.dtype))
        if whole not in shapes:
            name = to.node("Expand", name, to.sizes.shape(whole))
    return name


def _together(shapes: Sequence[tuple[Dim, ...]], scores: TensorType) -> tuple[Dim, ...]:
    """The shape of tensors that broadcast to the scores, together; the last two axes are whole."""
    batch, heads, *inner = scores.shape
    if all(len(shape) <= 2 for shape in shapes):
        return tuple(inner)
    one = as_dim(1)
    wide = [(one,) * (4 - len(shape)) + shape for shape in shapes]
    outer = [
        size if any(shape[axis] != one for shape in wide) else one
        for axis, size in enumerate((batch, heads))
    ]
    return (*outer, *inner)
