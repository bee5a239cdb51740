"""Minus infinity in ONNX's operators: the IR has it in masks alone. May import: site, ops, ir."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgraph import ops
from tfgraph.ir.mask import dense

if TYPE_CHECKING:
    from tfgraph.ir import Dim
    from tfgraph.onnx.site import Site, Tensor


def hidden(at: Site, condition: Tensor, x: Tensor, shape: tuple[Dim, ...], *, allows: bool) -> Any:
    """x of that shape where the condition `allows` it, or does not, and else -inf: a mask."""
    value, allowed = at.tensor(x), at.tensor(condition)
    value = value if value.shape == shape else ops.broadcast_to(value, shape=shape)
    return ops.mask(value, dense(allowed if allows else ops.logical_not(allowed)))


def lowest(at: Site, x: Tensor, shape: tuple[Dim, ...]) -> Any:
    """Where x is -inf, in that shape."""
    value = ops.reshape(at.tensor(x), shape=(*at.shape(x), 1))
    found = ops.reshape(ops.empty(value, axis=-1), shape=at.shape(x))
    return found if found.shape == shape else ops.broadcast_to(found, shape=shape)
