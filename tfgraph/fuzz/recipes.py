"""Blocks of Transformers, with what varies in them drawn at random, and ops that need operands of
a kind. May import: blocks, ops, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgraph import blocks, ops
from tfgraph.fuzz.attention import attention_block, fused_attention, nearly_attention, sequence
from tfgraph.fuzz.draft import NORMAL, Draft, Entry
from tfgraph.fuzz.masks import random_mask
from tfgraph.ir import exact
from tfgraph.ir.mask import dense

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.ops import Array, Traced


def add_and_norm(f: Draft) -> None:
    """norm(a + b) in any order, the sum read once or twice, with or without its rows."""
    a = sequence(f)
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
    f.add(y, NORMAL)


def feed_forward(f: Draft) -> None:
    """With any activation, gated or not."""
    activation = f.pick(*ops.ACTIVATIONS)
    middle = f.width(40)
    y = blocks.feed_forward(
        sequence(f), middle, activation=activation, gated=f.chance(0.3), bias=f.chance(0.7)
    )
    f.add(y, 2.5)


def _rotary(f: Draft, head_size: int) -> blocks.Rotary | None:
    """Tables that turn all of a head, or the first of its elements."""
    sizes = [size for size in (head_size, head_size // 2, 2) if size and not size % 2]
    if not sizes:
        return None
    name = f"positions{len(f.builder.nodes)}"  # a graph may have several
    tables = blocks.rotary_tables(
        f.pick(*sizes), positions=512, interleaved=f.chance(0.5), dtype=f.dtype, name=name
    )
    return tables.rows("seq")


def whole_layer(f: Draft) -> None:
    """An encoder or decoder layer."""
    x = sequence(f)
    heads, kv_heads = f.heads((2, 2), (4, 2), (1, 1), (4, 4))
    layer = blocks.Layer(
        heads=heads,
        kv_heads=kv_heads,
        ffn=f.width(40),
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


def embeddings(f: Draft) -> None:
    """Tokens, scaled or not, with or without positions."""
    width = f.width()
    dtype = f.pick("i64", "i32")
    ids = f.input(dtype, "batch", "seq", kind="ids", argument=50).x
    x: Array = blocks.embedding(ids, 50, width, scale=f.pick(None, 4), dtype=f.dtype)
    positions = f.pick(None, "sinusoidal", "learned", "counted")
    if positions == "counted":
        table = blocks.token_table(600, width, dtype=f.dtype)
        x = ops.add(x, ops.embedding(blocks.positions_of(ids, 1), table))
    elif positions:
        block: Any = getattr(blocks, positions)
        x = ops.add(x, block("seq", width, positions=512, dtype=f.dtype))
    f.add(x, NORMAL)


# What a schema alone would make ill-conditioned


def _any(f: Draft, size: float = 2.0) -> Entry:
    found = f.draw(lambda e: e.x.dtype == f.dtype and e.size <= size)
    return found or f.floats("batch", "seq", f.width(), kind="normal")


def safe_functions(f: Draft) -> None:
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


def softmax_of_any_axis(f: Draft) -> None:
    """Some of whose elements, or whole rows, are hidden."""
    x: Array = _any(f, 1.4).x
    if not x.shape:
        return
    if f.chance(0.5):
        hidden = f.input("bool", *x.shape, kind="bools").x
        if len(x.shape) > 1:
            x = ops.mask(x, dense(hidden))
    axis = int(f.rng.integers(-len(x.shape), len(x.shape)))
    f.add(ops.softmax(x, axis=axis), 0.0)


def products(f: Draft) -> None:
    """Matrix products whose leading axes broadcast."""
    a = sequence(f)
    k = int(a.shape[-1])
    kind = f.pick("weight", "transposed", "leading")
    if kind == "weight":
        y = ops.matmul(a, f.param(k, f.width(), std=0.3).x)
    elif kind == "transposed":
        y = ops.matmul(a, ops.transpose(_like(f, a), perm=(0, 2, 1)))
    else:
        b = f.floats(2, 1, k, 8, kind="normal").x
        y = ops.matmul(a, b)
    f.add(y, 3.0)


def _like(f: Draft, a: Traced) -> Traced:
    found = f.draw(lambda e: e.x.type == a.type and e.size <= NORMAL)
    return found.x if found else a


_CHEAP: list[Callable[[Draft], None]] = [
    *[add_and_norm, feed_forward, embeddings, safe_functions, softmax_of_any_axis, products],
]
# An attention kernel takes as long to compile as ten others, so that fewer graphs have one.
RECIPES = [*_CHEAP, *_CHEAP, fused_attention, attention_block, nearly_attention, whole_layer]
"""What the blocks of a family are drawn from; there may be one of them twice."""
