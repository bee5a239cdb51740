"""ONNX's Attention and RotaryEmbedding, in the form that the blocks write attention in, which the
passes fuse. May import: site, indexing, shapes, registry, ops, ir, errors."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import DType, as_dim, exact, rsqrt
from tfgraph.ir import mask as masks
from tfgraph.onnx.registry import translates
from tfgraph.onnx.site import Site, Tensor, size_tensor

if TYPE_CHECKING:
    from tfgraph.ir import Dim, Mask


@translates("Attention", since=23)
def _attention(
    at: Site,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    lengths: Tensor | None = None,
    /,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    scale: Any = None,
    softcap: Any = 0,
    softmax_precision: int = 1,
    left_window_size: int = -1,
    right_window_size: int = -1,
) -> Any:
    """softmax(scale Q K^T, capped, masked) V; K and V go on behind those of the past."""
    queries, flat = at.tensor(q), len(at.shape(q)) == 3
    keys, values = at.tensor(k), at.tensor(v)
    if flat:
        queries = _heads(queries, q_num_heads)
        keys, values = _heads(keys, kv_num_heads), _heads(values, kv_num_heads)
    past = as_dim(0)
    if past_key is not None and past_value is not None:
        former, worth = at.tensor(past_key), at.tensor(past_value)
        past = former.shape[2]
        keys = ops.concat(former, keys, axis=2)
        values = ops.concat(worth, values, axis=2)
    present = keys, values
    heads, size = queries.shape[1], queries.shape[3]
    if not heads.is_const or not keys.shape[1].is_const or not size.is_const:
        raise TfgraphError(f"heads and their size must be known, got {queries.type}")
    for i in (0, 3):
        at.require_equal(queries.shape[i], keys.shape[i])
    at.require_equal(keys.shape[2], values.shape[2])
    keys, values = (ops.repeat_heads(x, int(heads)) for x in (keys, values))
    scores: Any = ops.matmul(queries, ops.transpose(keys, perm=(0, 1, 3, 2)))
    scores = scores * (rsqrt(int(size)) if scale is None else scale)
    shown = [scores] * 4
    if softcap and exact(softcap).factor > 0:
        scores = ops.tanh(scores / softcap) * softcap
        shown[1:] = [scores] * 3
    mask = _mask(at, scores, attn_mask, past, lengths, bool(is_causal))
    window = _window(at, scores, left_window_size, right_window_size, past, lengths)
    mask = window if mask is None else mask if window is None else mask & window
    if mask is not None:
        scores = ops.mask(scores, mask)
        shown[2:] = [scores] * 2
    weights = ops.softmax(scores)
    shown[3] = weights
    y = ops.weighted_sum(weights, values)
    y = ops.merge_heads(y) if flat else y
    if not 0 <= qk_matmul_output_mode <= 3:
        raise TfgraphError(f"qk_matmul_output_mode is {qk_matmul_output_mode}")
    return y, *present, shown[qk_matmul_output_mode]


def _heads(x: Any, count: int | None) -> Any:
    if not count:
        raise TfgraphError("the number of heads is missing")
    return ops.split_heads(x, count)


def _mask(
    at: Site,
    scores: Any,
    attn_mask: Tensor | None,
    past: Dim,
    lengths: Tensor | None,
    is_causal: bool,
) -> Mask | None:
    """All that hides scores or adds to them."""
    parts: list[Mask] = []
    total = scores.shape[-1]
    if attn_mask is not None:
        given = at.tensor(attn_mask)
        if given.shape[-1] != total and given.shape[-1].is_const and total.is_const:
            parts.append(masks.dense(_below(total, int(given.shape[-1]))))
            given = _longer(given, total)
        at.broadcast(scores.shape, given.shape)
        parts.append(masks.dense(given) if given.dtype == DType.bool_ else masks.bias(given))
    if lengths is not None:
        parts.append(masks.padding(at.tensor(lengths)))
    if is_causal and lengths is None:
        parts.append(masks.causal(_start(past, scores)))
    elif is_causal:
        parts.append(masks.dense(_behind(at, at.tensor(lengths), scores)))  # type: ignore[arg-type]
    return reduce(lambda a, b: a & b, parts) if parts else None


def _start(past: Dim, scores: Any) -> Dim | None:
    """The offset of queries behind a past; None where it is 0 and lengths agree."""
    queries, keys = scores.shape[-2:]
    return past if past.terms or queries != keys else None


def _positions(at: Site, lengths: Any, scores: Any) -> tuple[Any, Any]:
    """Of queries and keys, where the queries are the last of the keys that there are; both moved
    on by the number of queries, so that none is negative."""
    *_, count, total = scores.shape
    i = ops.reshape(ops.iota(length=count), shape=(1, 1, count, 1))
    j = ops.reshape(ops.iota(length=total), shape=(1, 1, 1, total))
    last = ops.reshape(lengths, shape=(lengths.shape[0], 1, 1, 1))
    ahead = ops.reshape(size_tensor(count, at.sizes), shape=(1, 1, 1, 1))
    return i + last, j + ahead  # type: ignore[operator]


def _behind(at: Site, lengths: Any, scores: Any) -> Any:
    """j <= i + lengths[batch] - count."""
    i, j = _positions(at, lengths, scores)
    return ops.less(j, i + 1)


def _below(total: Dim, count: int) -> Any:
    return ops.less(ops.iota(length=total), count)


def _longer(given: Any, total: Dim) -> Any:
    """The mask with more keys, which another part of it hides."""
    rest = (*given.shape[:-1], total - given.shape[-1])
    return ops.concat(given, ops.full(shape=rest, value=0, dtype=given.dtype), axis=-1)


def _window(
    at: Site, scores: Any, left: int, right: int, past: Dim, lengths: Tensor | None
) -> Mask | None:
    if left < 0 and right < 0:
        return None
    if lengths is None:
        before, after = (as_dim(n) if n >= 0 else None for n in (left, right))
        return masks.window(before, after, offset=_start(past, scores))
    i, j = _positions(at, at.tensor(lengths), scores)
    near = [ops.less(i, j + (left + 1))] if left >= 0 else []
    near += [ops.less(j, i + (right + 1))] if right >= 0 else []
    return masks.dense(near[0] if len(near) == 1 else ops.logical_and(*near))


@translates("RotaryEmbedding", since=23)
def _rotary_embedding(
    at: Site,
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None = None,
    /,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Any:
    """Turns pairs (a, b) of each head: (a cos - b sin, a sin + b cos)."""
    value, flat = at.tensor(x), len(at.shape(x)) == 3
    tables = [at.tensor(t) for t in (cos, sin)]
    if positions is not None:
        tables = [ops.take(t, at.tensor(positions), axis=0) for t in tables]
    if flat and not num_heads:
        raise TfgraphError("the number of heads is missing")
    heads = num_heads if flat else _count(value.shape[1])
    value = value if flat else ops.merge_heads(value)  # [batch, length, heads*size]
    half = (rotary_embedding_dim or int(value.shape[-1]) // heads) // 2
    for table in tables:
        at.require_equal(table.shape[-1], as_dim(half))
        at.broadcast(value.shape[:2], table.shape[:-1])
    whole = (*value.shape[:2], as_dim(half))
    tables = [t if t.shape == whole else ops.broadcast_to(t, shape=whole) for t in tables]
    y = ops.rotary(value, *tables, heads=heads, interleaved=bool(interleaved))
    return y if flat else ops.split_heads(y, heads)


def _count(heads: Dim) -> int:
    if not heads.is_const:
        raise TfgraphError(f"the number of heads must be known, got {heads}")
    return int(heads)
