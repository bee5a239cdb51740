"""Attention in every form that is fused or nearly fused, under random masks.

May import: blocks, ops, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tfgraph import blocks, ops
from tfgraph.fuzz.draft import NORMAL, Draft
from tfgraph.fuzz.masks import random_mask
from tfgraph.ir import as_dim, exact, rsqrt
from tfgraph.ir.mask import padding

if TYPE_CHECKING:
    from tfgraph.ops import Traced


_VALUES = (
    "normal",
    "normal",
    "large",
    "offset",
    "constant",
    "small",
    "one-hot",
    "one-hot",
    "special",
)


def sequence(f: Draft, length: str = "seq") -> Traced:
    """A tensor [batch, length, width] of moderate size from the pool, or a new one."""
    rows = (as_dim("batch"), as_dim(length))
    found = f.draw(
        lambda e: (
            len(e.x.shape) == 3
            and e.x.shape[:2] == rows
            and e.x.dtype == f.dtype
            and e.finite  # a fused attention hides what 0 * inf gives to matmul
            and e.x.shape[2].is_const
            and int(e.x.shape[2]) % 8 == 0
            and e.size <= NORMAL
        )
    )
    if found is None:
        found = f.floats(*rows, f.swarm.width, kind=f.pick("normal", "zeros", "constant"))
    return found.x


def fused_attention(f: Draft) -> None:
    """The fused op on inputs, whose hidden keys may hold NaN."""
    heads, kv_heads = f.heads()
    size, value_size = f.pick(4, 8), f.pick(4, 8, 12)
    keys, offset = f.pick(("seq", None), (as_dim("past") + "seq", "past"), ("memory", 0))
    keys = as_dim(keys)
    mask = random_mask(f, heads, as_dim("seq"), keys, offset)
    q = f.floats("batch", "seq", heads * size, kind="normal").x
    if f.chance(0.3):
        keep = f.input("i64", "batch", keys, kind="bools").x
        mask = padding(keep) if mask is None else mask & padding(keep)
        dirt = f.pick(np.nan, np.inf, -np.inf, 1e30)
        k = f.floats(
            "batch", keys, kv_heads * size, kind="hidden", argument=(keep.value.name, dirt)
        ).x
        v = f.floats(
            "batch",
            keys,
            kv_heads * value_size,
            kind="hidden",
            argument=(keep.value.name, 1e30),
        ).x
        del f.pool[-2:]  # nothing else may read what only the mask hides
    else:
        k = f.floats("batch", keys, kv_heads * size, kind="normal").x
        v = f.floats("batch", keys, kv_heads * value_size, kind=f.pick(*_VALUES)).x
    y = ops.attention(
        q,
        k,
        v,
        mask,
        heads=heads,
        kv_heads=kv_heads,
        scale=f.pick(rsqrt(size), exact(1), exact(0.3)),
        softcap=f.pick(None, None, 5, exact(0.5)),
    )
    f.add(y, f.size_of(v))


def attention_block(f: Draft) -> None:
    """The block with its projections; the passes fuse it."""
    x = sequence(f)
    heads, kv_heads = f.heads((1, 1), (2, 2), (4, 4), (4, 2), (4, 1))
    memory, offset = (x, None) if f.chance(0.7) else (sequence(f, "memory"), 0)
    mask = random_mask(f, heads, "seq", memory.shape[1], offset)
    y = blocks.attention(
        x,
        memory,
        memory,
        heads=heads,
        kv_heads=kv_heads,
        mask=mask,
        bias=f.chance(0.7),
        softcap=f.pick(None, None, 30),
        scale=f.pick(None, 1),
    )
    f.add(y, NORMAL)


def nearly_attention(f: Draft) -> None:
    """Attention node by node, often with something that keeps it from being fused."""
    x = sequence(f)
    heads = f.pick(1, 2, 4)
    q, k, v = (ops.split_heads(y, heads) for y in (x, sequence(f), x))
    if q.shape[-1] != k.shape[-1]:
        k = q
    twist = f.pick(None, None, "axis", "read twice", "no transpose", "other scale", "scaled q")
    if twist == "scaled q":
        q = ops.mul(q, 0.5)
    turned = ops.transpose(k, perm=(0, 1, 3, 2))
    scores = ops.matmul(q, turned)
    scores = ops.div(scores, 3) if twist == "other scale" else ops.mul(scores, rsqrt(8))
    if f.chance(0.3):
        scores = ops.mul(ops.tanh(ops.div(scores, 4)), 4)
    mask = random_mask(f, heads, "seq", "seq", None)
    if mask is not None:
        scores = ops.mask(scores, mask)
    weights = ops.softmax(scores, axis=2 if twist == "axis" else f.pick(-1, 3))
    if twist == "read twice":
        f.add(weights, 0.0)
    product = f.pick(ops.matmul, ops.weighted_sum)
    f.add(ops.merge_heads(product(weights, v)), NORMAL)
