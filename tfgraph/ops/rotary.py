"""Rotary position embeddings: a composite op. May import: the core ops, define, infer, ir."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError
from tfgraph.ir import TensorType, as_dim, product
from tfgraph.ops.define import op
from tfgraph.ops.elementwise import add, mul, sub
from tfgraph.ops.infer import require_float, same_dtype
from tfgraph.ops.movement import concat, reshape, slice_

if TYPE_CHECKING:
    from tfgraph.ir import Dim
    from tfgraph.ops.array import Array


def infer_rotary(
    x: TensorType, cos: TensorType, sin: TensorType, *, heads: int, interleaved: bool
) -> TensorType:
    """The result's type. Raises TfgraphError for operands that do not fit."""
    require_float(x)
    same_dtype(x, cos, sin)
    if x.rank != 3:
        raise TfgraphError(f"expected x of [batch, length, heads*d], got {x}")
    if heads < 1 or x.shape[-1] % heads != as_dim(0):
        raise TfgraphError(f"{heads} heads do not divide the width {x.shape[-1]}")
    if cos.shape != sin.shape or cos.shape[:-1] not in (x.shape[:2], x.shape[1:2]):
        rows = f"[{x.shape[1]},r/2] or [{x.shape[0]},{x.shape[1]},r/2]"
        raise TfgraphError(f"expected cos and sin of {rows}, got {cos} and {sin}")
    left = x.shape[-1] // heads - 2 * cos.shape[-1]
    if left.is_const and int(left) < 0:
        raise TfgraphError(
            f"cos has {cos.shape[-1]} columns, which turn {2 * cos.shape[-1]} elements of heads of "
            f"{x.shape[-1] // heads}"
        )
    return x


def rotary_flops(
    x: TensorType, cos: TensorType, sin: TensorType, *, heads: int, **attrs: object
) -> Dim:
    """Three operations for each element that is turned."""
    return 6 * product(x.shape[:-1]) * heads * cos.shape[-1]


@op(infer=infer_rotary, kind="composite", flops=rotary_flops)
def rotary(x: Array, cos: Array, sin: Array, /, *, heads: int, interleaved: bool = False) -> Array:
    """Turns pairs (a, b) of each head by their angles: (a cos - b sin, b cos + a sin).

    x [batch, length, heads*d]; cos and sin [length, r/2], or [batch, length, r/2] where positions
    differ. The first r elements of each head are turned, the others stay. Pair i is elements i and
    r/2 + i, or if `interleaved` 2i and 2i + 1. Su et al. 2021; halves as in GPT-NeoX.
    """
    batch, length, width = x.shape
    half = cos.shape[-1]
    each = (batch, length, as_dim(heads))
    t = reshape(x, shape=(*each, width // heads))
    cos, sin = (reshape(y, shape=(*y.shape[:-1], as_dim(1), half)) for y in (cos, sin))
    if interleaved:
        pairs = reshape(slice_(t, axis=3, stop=2 * half), shape=(*each, half, as_dim(2)))
        a = reshape(slice_(pairs, axis=4, stop=1), shape=(*each, half))
        b = reshape(slice_(pairs, axis=4, start=1, stop=2), shape=(*each, half))
    else:
        a = slice_(t, axis=3, stop=half)
        b = slice_(t, axis=3, start=half, stop=2 * half)
    first = sub(mul(a, cos), mul(b, sin))
    second = add(mul(b, cos), mul(a, sin))
    if interleaved:
        parts = (reshape(y, shape=(*each, half, as_dim(1))) for y in (first, second))
        y = reshape(concat(*parts, axis=4), shape=(*each, 2 * half))
    else:
        y = concat(first, second, axis=3)
    if 2 * half != width // heads:
        y = concat(y, slice_(t, axis=3, start=2 * half, stop=width // heads), axis=3)
    return reshape(y, shape=(batch, length, width))
