"""The blocks with parameters of their own: linear, the norms, feed-forward. May import: ops, ir."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, SupportsIndex, cast

from tfgraph import ops
from tfgraph.errors import TfgraphError, nearest
from tfgraph.ir import Fill, exact, rsqrt

if TYPE_CHECKING:
    from tfgraph.ir import ExactLike
    from tfgraph.ops import Array, Traced

NORMS = ("layer_norm", "rms_norm")

# Not exactly one: otherwise a kernel that drops the scale would go unseen.
_NEAR_ONE = Fill("ones", exact(0.1))


def width_of(x: Array) -> int:
    """The size of the last axis, which must be a number: parameters are made for it."""
    if not x.shape:
        raise TfgraphError("expected a tensor with a last axis, got a scalar")
    if not x.shape[-1].is_const:
        raise TfgraphError(f"the width {x.shape[-1]} of {x.type} is symbolic, expected a number")
    return int(x.shape[-1])


def require_size(what: str, size: object) -> None:
    """Raise TfgraphError, which calls it `what`, unless a size of parameters is a number."""
    if isinstance(size, bool) or not isinstance(size, SupportsIndex) or operator.index(size) < 1:
        raise TfgraphError(f"{what} is {size!r}, expected an integer of at least 1")


def labelled(x: Array, name: str) -> Traced:
    """Name a result in the current scope."""
    return ops.current().label(cast("Traced", x), name)


def linear(x: Array, width: int, *, bias: bool = True, name: str = "linear") -> Traced:
    """x W + b: x [..., in] to [..., width], with parameters `weight` [in, width] and `bias`.

    Seeded weights are normal with variance 1/in, which keeps the variance of x (LeCun et al. 1998).
    """
    require_size(f"{name}: the width", width)
    builder = ops.current()
    name = builder.unique(name)
    with builder.scope(name):
        size = width_of(x)
        weight = builder.param("weight", x.dtype, size, width, fill=Fill("normal", rsqrt(size)))
        b = builder.param("bias", x.dtype, width) if bias else None
        y = ops.linear(x, weight, b)
    return labelled(y, name)


def layer_norm(x: Array, *, eps: ExactLike = 1e-5, name: str = "layer_norm") -> Traced:
    """Layer normalisation over the last axis, with parameters `scale` and `bias`.

    Ba et al. 2016.
    """
    builder = ops.current()
    name = builder.unique(name)
    with builder.scope(name):
        scale = builder.param("scale", x.dtype, width_of(x), fill=_NEAR_ONE)
        bias = builder.param("bias", x.dtype, width_of(x))
        y = ops.layer_norm(x, scale, bias, eps=eps)
    return labelled(y, name)


def rms_norm(x: Array, *, eps: ExactLike = 1e-5, name: str = "rms_norm") -> Traced:
    """Division by the root mean square over the last axis, with a parameter `scale`.

    Zhang and Sennrich 2019.
    """
    builder = ops.current()
    name = builder.unique(name)
    with builder.scope(name):
        scale = builder.param("scale", x.dtype, width_of(x), fill=_NEAR_ONE)
        y = ops.rms_norm(x, scale, eps=eps)
    return labelled(y, name)


def norm(
    x: Array, *, kind: str = "layer_norm", eps: ExactLike = 1e-5, name: str = "norm"
) -> Traced:
    """The norm of that kind: `layer_norm` or `rms_norm`."""
    if kind not in NORMS:
        raise TfgraphError(
            f"unknown norm '{kind}'", hint=nearest(kind, NORMS) or f"one of {', '.join(NORMS)}"
        )
    block = layer_norm if kind == "layer_norm" else rms_norm
    return block(x, eps=eps, name=name)


def feed_forward(
    x: Array,
    width: int,
    *,
    activation: str = "gelu",
    gated: bool = False,
    bias: bool = True,
    name: str = "ffn",
) -> Traced:
    """down(activation(up(x))), or down(activation(gate(x)) * up(x)) if gated; the shape of x stays.

    `width` is that of the middle. Vaswani et al. 2017; gated: Shazeer 2020.
    """
    act = ops.activation(activation)
    require_size(f"{name}: the width of the middle", width)
    builder = ops.current()
    name = builder.unique(name)
    with builder.scope(name):
        if gated:
            gate = act(linear(x, width, bias=bias, name="gate"))
            hidden = ops.mul(gate, linear(x, width, bias=bias, name="up"))
        else:
            hidden = act(linear(x, width, bias=bias, name="up"))
        y = linear(hidden, width_of(x), bias=bias, name="down")
    return labelled(y, name)
