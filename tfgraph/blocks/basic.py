"""The blocks with parameters of their own: linear, the norms, feed-forward. May import: ops, ir."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, SupportsIndex, cast

from tfgraph import ops
from tfgraph.errors import TfgraphError, nearest
from tfgraph.ir import Fill, exact, rsqrt

if TYPE_CHECKING:
    from tfgraph.ir import ExactLike
    from tfgraph.ops import Array, Traced

NORMS = ("layer_norm", "rms_norm", "none")

# Not exactly one: otherwise a kernel that drops the scale would go unseen.
_NEAR_ONE, _NEAR_ZERO = Fill("ones", exact(0.1)), Fill("normal", exact(0.1))


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


def linear(
    x: Array, width: int, *, bias: bool = True, name: str = "linear", of: str | None = None
) -> Traced:
    """x W + b: x [..., in] to [..., width], with parameters `weight` [in, width] and `bias`.

    Seeded weights are normal with variance 1/in, which keeps the variance of x (LeCun et al. 1998).
    `of` names a linear layer whose parameters this one shares.
    """
    require_size(f"{name}: the width", width)
    builder = ops.current()
    name = builder.unique(name)
    with builder.scope(name, of):
        size = width_of(x)
        weight = builder.param("weight", x.dtype, size, width, fill=Fill("normal", rsqrt(size)))
        b = builder.param("bias", x.dtype, width) if bias else None
        y = ops.linear(x, weight, b)
    return labelled(y, name)


def layer_norm(
    x: Array,
    *,
    eps: ExactLike = 1e-5,
    scale: bool = True,
    bias: bool | None = None,
    unit_offset: bool = False,
    name: str = "layer_norm",
) -> Traced:
    """Layer normalisation over the last axis, with parameters `scale` and `bias` or without.

    There is a bias where there is a scale, unless given. With `unit_offset` the rows are multiplied
    by 1 + scale. Ba et al. 2016.
    """
    builder = ops.current()
    name = builder.unique(name)
    with builder.scope(name):
        s = _scale(x, unit_offset) if scale else None
        b = (
            builder.param("bias", x.dtype, width_of(x))
            if (scale if bias is None else bias)
            else None
        )
        y = ops.layer_norm(x, s, b, eps=eps)
    return labelled(y, name)


def rms_norm(
    x: Array,
    *,
    eps: ExactLike = 1e-5,
    scale: bool = True,
    unit_offset: bool = False,
    name: str = "rms_norm",
) -> Traced:
    """Division by the root mean square over the last axis, with a parameter `scale` or without.

    With `unit_offset` the rows are multiplied by 1 + scale, as in Gemma (2024). Zhang and Sennrich
    2019.
    """
    builder = ops.current()
    name = builder.unique(name)
    with builder.scope(name):
        y = ops.rms_norm(x, _scale(x, unit_offset) if scale else None, eps=eps)
    return labelled(y, name)


def _scale(x: Array, unit_offset: bool) -> Array:
    """The parameter by which a norm multiplies, or 1 + that."""
    fill = _NEAR_ZERO if unit_offset else _NEAR_ONE
    scale = ops.current().param("scale", x.dtype, width_of(x), fill=fill)
    return ops.add(scale, 1) if unit_offset else scale


@dataclass(frozen=True)
class Norm:
    """Which norm: a `kind`, `layer_norm`, `rms_norm` or `none`, and its options."""

    kind: str = "layer_norm"
    eps: ExactLike = 1e-5
    scale: bool = True
    bias: bool | None = None
    unit_offset: bool = False

    def __post_init__(self) -> None:
        if self.kind not in NORMS:
            hint = nearest(self.kind, NORMS) or f"one of {', '.join(NORMS)}"
            raise TfgraphError(f"unknown norm '{self.kind}'", hint=hint)
        if self.bias and self.kind != "layer_norm":
            raise TfgraphError(f"{self.kind} has no bias")
        if self.unit_offset and not self.scale:
            raise TfgraphError("unit_offset is for a norm with a scale")

    def scaled(self, x: Array, name: str, params: str) -> Traced:
        """x by the scale and bias of the norm, with parameters under `params`, without norming."""
        builder = ops.current()
        with builder.scope(name, params):
            if self.scale:
                x = ops.mul(x, _scale(x, self.unit_offset))
            if self.kind == "layer_norm" and (self.scale if self.bias is None else self.bias):
                x = ops.add(x, builder.param("bias", x.dtype, width_of(x)))
        return labelled(x, name)

    def __call__(self, x: Array, name: str = "norm") -> Traced:
        """The norm of x, with parameters of that name; x itself where the kind is `none`."""
        if self.kind == "none":
            return cast("Traced", x)
        if self.kind == "rms_norm":
            return rms_norm(
                x, eps=self.eps, scale=self.scale, unit_offset=self.unit_offset, name=name
            )
        return layer_norm(
            x,
            eps=self.eps,
            scale=self.scale,
            bias=self.bias,
            unit_offset=self.unit_offset,
            name=name,
        )


def norm(
    x: Array, *, kind: str = "layer_norm", eps: ExactLike = 1e-5, name: str = "norm"
) -> Traced:
    """The norm of that kind: `layer_norm`, `rms_norm`, or `none` for x itself."""
    return Norm(kind, eps)(x, name)


def activated(x: Array, activation: str) -> Array:
    """The activation of x by its name; x itself for `none`."""
    return x if activation == "none" else ops.activation(activation)(x)


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

    `width` is that of the middle. The activation may be `none`. Vaswani et al. 2017; gated: Shazeer
    2020.
    """
    if activation != "none":
        ops.activation(activation)  # a name that is unknown is the caller's mistake
    require_size(f"{name}: the width of the middle", width)
    builder = ops.current()
    name = builder.unique(name)
    with builder.scope(name):
        if gated:
            gate = activated(linear(x, width, bias=bias, name="gate"), activation)
            hidden = ops.mul(gate, linear(x, width, bias=bias, name="up"))
        else:
            hidden = activated(linear(x, width, bias=bias, name="up"), activation)
        labelled(hidden, "hidden")
        y = linear(hidden, width_of(x), bias=bias, name="down")
    return labelled(y, name)
