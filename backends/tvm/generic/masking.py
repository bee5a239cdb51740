"""The generic kernel of `mask`. May import: tvm, tfgraph.backends.tvm.generic.

The semantics are those of `tfgraph.ops.masking`: biases are added, then what no mask forbids stays.
"""

from __future__ import annotations

import math
import operator
from functools import reduce, singledispatch
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tfgraph.backends.tvm.generic.kernel import Kernel, emitter
from tfgraph.backends.tvm.generic.loops import Indices
from tfgraph.ir import Dim, Mask
from tfgraph.ir.mask import (
    Alibi,
    Bias,
    Causal,
    Dense,
    Padding,
    Prefix,
    Relative,
    Segments,
    Window,
    bucket_bounds,
)

Expr = Any


@emitter("mask")
def _mask(kernel: Kernel) -> None:
    scores, mask = kernel.operands

    def value(i: Indices) -> Expr:
        score = scores[i]
        for part in mask.parts:
            added = bias(part, kernel, i)
            score = score if added is None else score + added
        found = [allowed(part, kernel, i) for part in mask.parts]
        kept = [a for a in found if a is not None]
        if not kept:
            return score
        return tirx.Select(reduce(tirx.And, kept), score, T.float32(-math.inf))

    kernel.fill(value)


@singledispatch
def allowed(mask: Mask, kernel: Kernel, i: Indices) -> Expr | None:
    """Whether the element at `i` = (batch, ..., query, key) is kept; None is always."""
    return None


@singledispatch
def bias(mask: Mask, kernel: Kernel, i: Indices) -> Expr | None:
    """What is added to the element at `i`; None is nothing."""
    return None


def position(kernel: Kernel, offset: Dim | None, i: Indices) -> Expr:
    """The position of the query; of a key it is its index."""
    return i[-2] if offset is None else i[-2] + kernel.dim(offset)


@allowed.register(Causal)
def _causal(mask: Causal, kernel: Kernel, i: Indices) -> Expr:
    return i[-1] <= position(kernel, mask.offset, i)


@allowed.register(Window)
def _window(mask: Window, kernel: Kernel, i: Indices) -> Expr | None:
    query = position(kernel, mask.offset, i)
    bounds = []
    if mask.left is not None:
        bounds.append(query <= i[-1] + kernel.dim(mask.left))
    if mask.right is not None:
        bounds.append(i[-1] <= query + kernel.dim(mask.right))
    return reduce(tirx.And, bounds) if bounds else None


@allowed.register(Padding)
def _padding(mask: Padding, kernel: Kernel, i: Indices) -> Expr:
    if mask.keep.type.rank == 1:
        return i[-1] < T.cast(mask.keep[[i[0]]], "int64")
    keep = mask.keep[[i[0], i[-1]]]
    return keep if mask.keep.dtype == "bool" else tirx.NE(keep, tirx.const(0, mask.keep.dtype))


@allowed.register(Prefix)
def _prefix(mask: Prefix, kernel: Kernel, i: Indices) -> Expr:
    inside = i[-1] < T.cast(mask.length[[i[0]]], "int64")
    return tirx.Or(inside, i[-1] <= position(kernel, mask.offset, i))


@allowed.register(Segments)
def _segments(mask: Segments, kernel: Kernel, i: Indices) -> Expr:
    query, key = mask.query[[i[0], i[-2]]], mask.key[[i[0], i[-1]]]
    return tirx.EQ(T.cast(query, "int64"), T.cast(key, "int64"))


@allowed.register(Dense)
def _dense(mask: Dense, kernel: Kernel, i: Indices) -> Expr:
    return mask.allowed.at(i)


@bias.register(Bias)
def _bias(mask: Bias, kernel: Kernel, i: Indices) -> Expr:
    return mask.values.at(i)


@bias.register(Alibi)
def _alibi(mask: Alibi, kernel: Kernel, i: Indices) -> Expr:
    distance = T.cast(i[-1] - position(kernel, mask.offset, i), "float32")
    return mask.slopes[[i[-3]]] * distance


@bias.register(Relative)
def _relative(mask: Relative, kernel: Kernel, i: Indices) -> Expr:
    distance = kernel.loops.hold(i[-1] - position(kernel, mask.offset, i), "distance")
    return mask.table[[relative_bucket(mask, distance), i[-3]]]


def relative_bucket(mask: Relative, distance: Expr) -> Expr:
    """The row of the table for key position - query position: how many bounds it has reached."""
    buckets, limit, zero = int(mask.table.type.shape[0]), int(mask.max_distance), T.int64(0)

    def reached(distance: Expr, bounds: list[int]) -> Expr:
        return reduce(
            operator.add, [T.Select(distance >= T.int64(b), T.int64(1), zero) for b in bounds]
        )

    if not mask.bidirectional:
        return reached(-distance, bucket_bounds(buckets, limit))
    bounds = bucket_bounds(buckets // 2, limit)
    after = buckets // 2 + reached(distance, bounds)
    return T.Select(distance > zero, after, reached(-distance, bounds))
