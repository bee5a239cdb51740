"""Blocks of Transformers for the fuzzer, with what varies in them drawn at random: attention under
every mask, in every form that is fused or nearly fused; norms, feed-forward, embeddings.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from helpers.fuzz_graphs import WIDTHS, Entry, Fuzz

from tfgraph import blocks, ops
from tfgraph.ir import Mask, as_dim, exact, rsqrt
from tfgraph.ir.mask import alibi, bias, causal, dense, padding, prefix, relative, segments, window

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.ir import DimLike
    from tfgraph.ops import Traced

_NORMAL = 1.3  # the size of values that a norm or a linear of normed values leaves


def _sequence(f: Fuzz, length: str = "seq") -> Traced:
    """A tensor [batch, length, width] of moderate size from the pool, or a new one."""
    rows = (as_dim("batch"), as_dim(length))
    found = f.draw(
        lambda e: (
            len(e.x.shape) == 3
            and e.x.shape[:2] == rows
            and e.x.dtype.is_float
            and e.x.shape[2].is_const
            and int(e.x.shape[2]) in WIDTHS
            and e.size <= _NORMAL
        )
    )
    if found is None:
        found = f.input("f32", *rows, f.pick(*WIDTHS), kind=f.pick("normal", "zeros", "constant"))
    return found.x


def random_mask(
    f: Fuzz, heads: int, queries: DimLike, keys: DimLike, offset: DimLike | None
) -> Mask | None:
    """Up to three masks and biases of any kinds, joined."""
    masks = (_causal, _window, _padding, _lengths, _prefix, _segments, _dense)
    kinds = (*masks, _bias, _alibi, _relative)
    count = f.pick(0, 1, 1, 2, 2, 3)
    parts = [f.pick(*kinds)(f, heads, queries, keys, offset) for _ in range(count)]
    return reduce(lambda a, b: a & b, parts) if parts else None


def _causal(f: Fuzz, heads: int, queries: DimLike, keys: DimLike, offset: Any) -> Mask:
    return causal(offset)


def _window(f: Fuzz, heads: int, queries: DimLike, keys: DimLike, offset: Any) -> Mask:
    return window(f.pick(None, 0, 3, 40), f.pick(None, 0, 2), offset)


def _padding(f: Fuzz, heads: int, queries: DimLike, keys: DimLike, offset: Any) -> Mask:
    kind = f.pick("prefix", "bools")
    return padding(f.input(f.pick("bool", "i64", "i32"), "batch", keys, kind=kind).x)


def _lengths(f: Fuzz, heads: int, queries: DimLike, keys: DimLike, offset: Any) -> Mask:
    return padding(f.input(f.pick("i64", "i32"), "batch", kind="lengths", argument=keys).x)


def _prefix(f: Fuzz, heads: int, queries: DimLike, keys: DimLike, offset: Any) -> Mask:
    lengths = f.input(f.pick("i64", "i32"), "batch", kind="lengths", argument=keys)
    return prefix(lengths.x, offset)


def _segments(f: Fuzz, heads: int, queries: DimLike, keys: DimLike, offset: Any) -> Mask:
    of_queries = f.input("i64", "batch", queries, kind="segments").x
    if queries == keys and f.chance(0.5):
        return segments(of_queries)
    return segments(of_queries, f.input("i64", "batch", keys, kind="segments").x)


def _some_axes(f: Fuzz, heads: int, queries: DimLike, keys: DimLike) -> tuple[DimLike, ...]:
    """A shape that broadcasts to the scores."""
    whole = ("batch", heads, queries, keys)
    some = tuple(d if f.chance(0.6) else 1 for d in whole[:-1])
    return (*some[int(f.rng.integers(0, 4)) :], keys if f.chance(0.8) else 1)


def _dense(f: Fuzz, heads: int, queries: DimLike, keys: DimLike, offset: Any) -> Mask:
    return dense(f.input("bool", *_some_axes(f, heads, queries, keys), kind="bools").x)


def _bias(f: Fuzz, heads: int, queries: DimLike, keys: DimLike, offset: Any) -> Mask:
    return bias(f.input("f32", *_some_axes(f, heads, queries, keys), kind="normal").x)


def _alibi(f: Fuzz, heads: int, queries: DimLike, keys: DimLike, offset: Any) -> Mask:
    return alibi(f.input("f32", heads, kind=f.pick("small", "zeros")).x, offset)


def _relative(f: Fuzz, heads: int, queries: DimLike, keys: DimLike, offset: Any) -> Mask:
    table = f.input("f32", f.pick(4, 8, 32), heads, kind="small").x
    return relative(table, f.pick(20, 128), bidirectional=f.chance(0.5), offset=offset)


# Attention


def fused_attention(f: Fuzz) -> None:
    """The fused op on inputs, whose hidden keys may hold NaN."""
    heads, kv_heads = f.pick((1, 1), (2, 2), (4, 4), (4, 2), (4, 1), (3, 1))
    size, value_size = f.pick(4, 8), f.pick(4, 8, 12)
    keys, offset = f.pick(("seq", None), (as_dim("past") + "seq", "past"), ("memory", 0))
    keys = as_dim(keys)
    mask = random_mask(f, heads, as_dim("seq"), keys, offset)
    q = f.input("f32", "batch", "seq", heads * size, kind="normal").x
    if f.chance(0.3):
        keep = f.input("i64", "batch", keys, kind="bools").x
        mask = padding(keep) if mask is None else mask & padding(keep)
        dirt = f.pick(np.nan, np.inf, -np.inf, 1e30)
        k = f.input(
            "f32", "batch", keys, kv_heads * size, kind="hidden", argument=(keep.value.name, dirt)
        ).x
        v = f.input(
            "f32",
            "batch",
            keys,
            kv_heads * value_size,
            kind="hidden",
            argument=(keep.value.name, 1e30),
        ).x
        del f.pool[-2:]  # nothing else may read what only the mask hides
    else:
        k = f.input("f32", "batch", keys, kv_heads * size, kind="normal").x
        v = f.input("f32", "batch", keys, kv_heads * value_size).x
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


def attention_block(f: Fuzz) -> None:
    """The block with its projections; the passes fuse it."""
    x = _sequence(f)
    heads, kv_heads = f.pick((1, 1), (2, 2), (4, 4), (4, 2), (4, 1))
    memory, offset = (x, None) if f.chance(0.7) else (_sequence(f, "memory"), 0)
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
    f.add(y, _NORMAL)


def nearly_attention(f: Fuzz) -> None:
    """Attention node by node, often with something that keeps it from being fused."""
    x = _sequence(f)
    heads = f.pick(1, 2, 4)
    q, k, v = (ops.split_heads(y, heads) for y in (x, _sequence(f), x))
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
    f.add(ops.merge_heads(product(weights, v)), _NORMAL)


# Norms, feed-forward, whole layers


def add_and_norm(f: Fuzz) -> None:
    """norm(a + b) in any order, the sum read once or twice, with or without its rows."""
    a = _sequence(f)
    width = int(a.shape[-1])
    b = f.draw(lambda e: e.x.type == a.type and e.size <= 4)
    other = b.x if b is not None else a
    if f.chance(0.4):
        other = blocks.linear(other, width, bias=f.chance(0.7))
    total = ops.add(a, other) if f.chance(0.5) else ops.add(other, a)
    rows = [f.param(width, kind=k).x for k in ("ones", "normal")]
    if f.chance(0.6):
        y = ops.layer_norm(total, *f.pick(rows, rows[:1], [], [None, rows[1]]), eps=1e-5)
    else:
        y = ops.rms_norm(total, *f.pick(rows[1:], []), eps=1e-5)
    if f.chance(0.5):
        f.add(total, 4.0)
    f.add(y, _NORMAL)


def feed_forward(f: Fuzz) -> None:
    """With any activation, gated or not."""
    activation = f.pick(*ops.ACTIVATIONS)
    middle = f.pick(*WIDTHS, 40)
    y = blocks.feed_forward(
        _sequence(f), middle, activation=activation, gated=f.chance(0.3), bias=f.chance(0.7)
    )
    f.add(y, 2.5)


def _rotary(f: Fuzz, head_size: int) -> blocks.Rotary | None:
    """Tables that turn all of a head, or the first of its elements."""
    sizes = [size for size in (head_size, head_size // 2, 2) if size and not size % 2]
    if not sizes:
        return None
    tables = blocks.rotary_tables(f.pick(*sizes), positions=512, interleaved=f.chance(0.5))
    return tables.rows("seq")


def whole_layer(f: Fuzz) -> None:
    """An encoder or decoder layer."""
    x = _sequence(f)
    heads, kv_heads = f.pick((2, 2), (4, 2), (1, 1))
    layer = blocks.Layer(
        heads=heads,
        kv_heads=kv_heads,
        ffn=f.pick(*WIDTHS, 40),
        activation=f.pick(*ops.ACTIVATIONS),
        gated=f.chance(0.3),
        bias=f.chance(0.7),
        norm=f.pick("layer_norm", "rms_norm", blocks.Norm("rms_norm", unit_offset=True)),
        placement=f.pick("pre", "post", "sandwich", "parallel"),
        shared_norm=f.chance(0.5),
        residual_scale=f.pick(None, None, 0.5),
        qk_norm=f.pick(None, None, blocks.Norm("rms_norm")),
        rotary=_rotary(f, int(x.shape[-1]) // heads) if f.chance(0.4) else None,
        softcap=f.pick(None, None, 30),
    )
    block: Any = f.pick(blocks.encoder_layer, blocks.decoder_layer)
    f.add(block(x, layer, mask=random_mask(f, heads, "seq", "seq", None)), 3.0)


def embeddings(f: Fuzz) -> None:
    """Tokens, scaled or not, with or without positions."""
    width = f.pick(*WIDTHS)
    dtype = f.pick("i64", "i32")
    ids = f.input(dtype, "batch", "seq", kind="ids", argument=50).x
    x = blocks.embedding(ids, 50, width, scale=f.pick(None, 4))
    positions = f.pick(None, "sinusoidal", "learned", "counted")
    if positions == "counted":
        table = blocks.token_table(600, width)
        x = ops.add(x, ops.embedding(blocks.positions_of(ids, 1), table))
    elif positions:
        block: Any = getattr(blocks, positions)
        x = ops.add(x, block("seq", width, positions=512))
    f.add(x, _NORMAL)


# What a schema alone would make ill-conditioned


def _any(f: Fuzz, size: float = 2.0) -> Entry:
    found = f.draw(lambda e: e.x.dtype.is_float and e.size <= size)
    return found or f.input("f32", "batch", "seq", f.pick(*WIDTHS), kind="normal")


def safe_functions(f: Fuzz) -> None:
    """Division, roots, powers and logarithms of what is well away from 0."""
    x, y = _any(f), _any(f)
    away = ops.add(ops.abs_(x.x), 0.5)
    kind = f.pick("log", "sqrt", "div", "div by", "square", "cube", "root")
    if kind in ("log", "sqrt"):
        result = ops.log(away) if kind == "log" else ops.sqrt(away)
    elif kind == "div":
        result = ops.div(x.x, away)
    elif kind == "div by":
        result = ops.div(y.x, f.pick(3, exact(0.1)))
    elif kind == "root":
        result = ops.pow_(away, f.pick(0.5, -1, 1.5))
    else:
        result = ops.pow_(x.x, 2 if kind == "square" else 3)
    f.add(result, 3 * max(x.size, y.size, 0.5))


def softmax_of_any_axis(f: Fuzz) -> None:
    """Some of whose elements, or whole rows, are hidden."""
    x = _any(f, 1.4).x
    if not x.shape:
        return
    if f.chance(0.5):
        hidden = f.input("bool", *x.shape, kind="bools").x
        if len(x.shape) > 1:
            x = ops.mask(x, dense(hidden))
    axis = int(f.rng.integers(-len(x.shape), len(x.shape)))
    f.add(ops.softmax(x, axis=axis), 0.0)


def products(f: Fuzz) -> None:
    """Matrix products whose leading axes broadcast."""
    a = _sequence(f)
    k = int(a.shape[-1])
    kind = f.pick("weight", "transposed", "leading")
    if kind == "weight":
        y = ops.matmul(a, f.param(k, f.pick(*WIDTHS), std=0.3).x)
    elif kind == "transposed":
        y = ops.matmul(a, ops.transpose(_like(f, a), perm=(0, 2, 1)))
    else:
        b = f.input("f32", 2, 1, k, 8, kind="normal").x
        y = ops.matmul(a, b)
    f.add(y, 3.0)


def _like(f: Fuzz, a: Traced) -> Traced:
    found = f.draw(lambda e: e.x.type == a.type and e.size <= _NORMAL)
    return found.x if found else a


CHEAP: list[Callable[[Fuzz], None]] = [
    *[add_and_norm, feed_forward, embeddings, safe_functions, softmax_of_any_axis, products],
]
# An attention kernel takes as long to compile as ten others, so that fewer graphs have one.
RECIPES = [*CHEAP, *CHEAP, *CHEAP, fused_attention, attention_block, nearly_attention, whole_layer]
