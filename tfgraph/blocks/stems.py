"""What makes vectors of sound and of images: convolutions as a product of windows and a matrix.

May import: basic, ops, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tfgraph import ops
from tfgraph.blocks.basic import activated, labelled, linear, require_size
from tfgraph.errors import TfgraphError
from tfgraph.ir import Fill, as_dim, rsqrt

if TYPE_CHECKING:
    from tfgraph.ops import Array, Traced

KERNEL = 3


def convolution(x: Array, width: int, *, stride: int = 1, name: str = "convolution") -> Traced:
    """Windows of three neighbours, `stride` apart, each times a matrix: x [batch, stride*n, in] to
    [batch, n, width], with a zero before x and one behind it. `weight` is [in * 3, width], the
    three neighbours in a channel behind each other, and there is a `bias`."""
    require_size(f"{name}: the stride", stride)
    batch, length, channels = x.shape
    count = length // stride
    if count * stride != length:
        raise TfgraphError(f"{name}: the length {length} is not a multiple of {stride}")
    around = ops.full(shape=(batch, as_dim(1), channels), value=0, dtype=x.dtype)
    padded = ops.concat(around, x, around, axis=1)
    taps: list[Array] = []
    for k in range(KERNEL):  # elements k, k + stride, ...: the first of each `stride` from k on
        rows = ops.slice_(padded, axis=1, start=k, stop=k + length)
        rows = ops.reshape(rows, shape=(batch, count, stride, channels))
        first = ops.slice_(rows, axis=2, start=0, stop=1)
        taps.append(ops.reshape(first, shape=(batch, count, channels, 1)))
    windows = ops.reshape(ops.concat(*taps, axis=3), shape=(batch, count, channels * KERNEL))
    return linear(windows, width, name=name)


def audio_stem(x: Array, width: int, *, activation: str = "gelu", name: str = "stem") -> Traced:
    """Two convolutions of which the second halves the length: x [batch, channels, 2*seq] to
    [batch, seq, width]. Radford et al. 2022 (Whisper), section 2.2."""
    if len(x.shape) != 3:
        raise TfgraphError(f"{name}: expected [batch, channels, 2*seq], got {x.type}")
    builder = ops.current()
    name = builder.unique(name)
    with builder.scope(name):
        y = ops.transpose(x, perm=(0, 2, 1))
        y = activated(convolution(y, width, name="conv1"), activation)
        y = activated(convolution(y, width, stride=2, name="conv2"), activation)
    return labelled(y, name)


def image_stem(
    x: Array, width: int, *, patch: int, class_token: bool = True, name: str = "stem"
) -> Traced:
    """A vector for each square of `patch` pixels, row by row, and before them the class token: x
    [batch, channels, height, width in pixels] to [batch, squares + 1, width]. The `patches.weight`
    is [channels * patch * patch, width]. Dosovitskiy et al. 2020, section 3.1."""
    require_size(f"{name}: the size of a patch", patch)
    if len(x.shape) != 4 or any(int(d) % patch for d in x.shape[2:]):
        raise TfgraphError(f"{name}: expected images of whole patches of {patch}, got {x.type}")
    batch, channels, height, breadth = x.shape
    rows, columns = height // patch, breadth // patch
    builder = ops.current()
    name = builder.unique(name)
    with builder.scope(name):
        cut = ops.reshape(x, shape=(batch, channels, rows, patch, columns, patch))
        cut = ops.transpose(cut, perm=(0, 2, 4, 1, 3, 5))
        y = ops.reshape(cut, shape=(batch, rows * columns, channels * patch * patch))
        y = linear(y, width, name="patches")
        if class_token:
            token = builder.param("class_token", x.dtype, width, fill=Fill("normal", rsqrt(width)))
            first = ops.broadcast_to(token, shape=(batch, 1, width))
            y = cast("Traced", ops.concat(first, y, axis=1))
    return labelled(y, name)
