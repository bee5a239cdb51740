"""What masks do to scores [..., query, key]: which keys are allowed, and what is added.

Every backend has these semantics; this is their definition. May import: xp, infer, ir, errors.
"""

from __future__ import annotations

from functools import reduce, singledispatch
from typing import TYPE_CHECKING, Any

from tfgraph.errors import TfgraphError
from tfgraph.ir import Dim, DType, Mask, TensorType, as_dim, dim_max
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
from tfgraph.ops import xp
from tfgraph.ops.infer import broadcast_shapes

if TYPE_CHECKING:
    from tfgraph.ops.array import Array


_MOST_BUCKETS = 4096
_FURTHEST = 2**30  # kernels count positions in 32 bits


def apply(scores: Array, mask: Mask) -> Array:
    """Add the biases, then put -inf where a key is not allowed."""
    for part in mask.parts:
        added = bias(part, scores)
        scores = scores if added is None else xp.add(scores, added)
    found = [allowed(part, scores) for part in mask.parts]
    kept = [a for a in found if a is not None]
    return xp.hide(scores, reduce(xp.logical_and, kept)) if kept else scores


def positions(scores: Array, offset: Dim | None) -> tuple[Array, Array]:
    """Positions of queries [query, 1] and keys [1, key], for their differences: query 0 stands at
    `offset`; where that is negative, query 0 at 0 and key 0 behind it."""
    queries, keys = scores.shape[-2:]
    start = offset or as_dim(0)
    first_query = dim_max(start, 0)
    i = _range(scores, first_query, queries)
    j = _range(scores, first_query - start, keys)
    return xp.expand_dims(i, 1), xp.expand_dims(j, 0)


def _range(scores: Array, start: Dim, count: Dim) -> Array:
    """start, ..., start + count - 1; start is not negative."""
    if start.is_const:
        return xp.add(xp.arange(count, like=scores), int(start))
    return xp.arange(start + count, like=scores).slice(0, start, start + count)


@singledispatch
def allowed(mask: Mask, scores: Array) -> Array | None:
    """Bool, broadcastable to the scores; None allows all."""
    return None


@singledispatch
def bias(mask: Mask, scores: Array) -> Array | None:
    """What is added to the scores; None adds nothing."""
    return None


@allowed.register(Causal)
def _causal(mask: Causal, scores: Array) -> Array:
    return _not_after(scores, mask.offset)


@allowed.register(Window)
def _window(mask: Window, scores: Array) -> Array | None:
    i, j = positions(scores, mask.offset)
    bounds: list[Array] = []
    if mask.left is not None:
        bounds.append(xp.less(i, _shift(j, mask.left)))  # i < j + left + 1
    if mask.right is not None:
        bounds.append(xp.less(j, _shift(i, mask.right)))
    return reduce(xp.logical_and, bounds) if bounds else None


@allowed.register(Padding)
def _padding(mask: Padding, scores: Array) -> Array:
    keep = mask.keep
    if len(keep.shape) == 1:
        _, j = positions(scores, None)
        return xp.less(j, _batch(_wide(keep), scores))
    real = keep if keep.dtype == DType.bool_ else xp.unary("logical_not", xp.equal(keep, 0))
    return _batch(real, scores)


@allowed.register(Prefix)
def _prefix(mask: Prefix, scores: Array) -> Array:
    _, j = positions(scores, None)
    return xp.logical_or(
        xp.less(j, _batch(_wide(mask.length), scores)), _not_after(scores, mask.offset)
    )


@allowed.register(Segments)
def _segments(mask: Segments, scores: Array) -> Array:
    ones = [1] * (len(scores.shape) - 3)
    ids = _wide(mask.query)
    query = xp.reshape(ids, (ids.shape[0], *ones, ids.shape[1], 1))
    return xp.equal(query, _batch(_wide(mask.key), scores))


@allowed.register(Dense)
def _dense(mask: Dense, scores: Array) -> Array:
    return mask.allowed  # type: ignore[no-any-return]


@bias.register(Bias)
def _bias(mask: Bias, scores: Array) -> Array:
    return mask.values  # type: ignore[no-any-return]


@bias.register(Alibi)
def _alibi(mask: Alibi, scores: Array) -> Array:
    i, j = positions(scores, mask.offset)
    distance = xp.cast(xp.sub(j, i), scores.dtype)
    return xp.mul(xp.reshape(mask.slopes, (*mask.slopes.shape, 1, 1)), distance)


@bias.register(Relative)
def _relative(mask: Relative, scores: Array) -> Array:
    i, j = positions(scores, mask.offset)
    rows = mask.table.take(_bucket(mask, xp.sub(j, i)), 0)  # [query, key, head]
    return rows.transpose((2, 0, 1))  # type: ignore[no-any-return]


def _bucket(mask: Relative, distance: Array) -> Array:
    """The row of the table for each distance: key position - query position."""
    buckets, limit = int(mask.table.shape[0]), int(mask.max_distance)
    before = xp.minimum(xp.maximum(xp.sub(0, distance), 0), limit)
    if not mask.bidirectional:
        return _reached(before, bucket_bounds(buckets, limit))
    bounds = bucket_bounds(buckets // 2, limit)
    after = xp.minimum(xp.maximum(distance, 0), limit)
    behind = xp.add(_reached(after, bounds), buckets // 2)
    return xp.where(xp.less(0, distance), behind, _reached(before, bounds))


def _reached(distance: Array, bounds: list[int]) -> Array:
    """How many of the bounds a distance has reached."""
    passed = [xp.unary("logical_not", xp.less(distance, bound)) for bound in bounds]
    return reduce(xp.add, [xp.cast(p, DType.int64) for p in passed])


def _wide(x: Array) -> Array:
    """As i64, the type of positions."""
    return x if x.dtype == DType.int64 else xp.cast(x, DType.int64)


def _not_after(scores: Array, offset: Dim | None) -> Array:
    """Keys that do not come after the query."""
    i, j = positions(scores, offset)
    return xp.unary("logical_not", xp.less(i, j))


def _batch(x: Array, scores: Array) -> Array:
    """x [batch] or [batch, key] with axes of 1 up to the rank of the scores."""
    rank = len(scores.shape)
    last = tuple(x.shape[1:]) or (1,)
    return xp.reshape(x, (x.shape[0], *[1] * (rank - 2), *last))


def _shift(position: Array, distance: Dim) -> Array:
    """position + distance + 1: the first position beyond a bound."""
    return xp.add(position, int(distance) + 1)


def check(mask: Mask, scores: TensorType) -> None:
    """Check a mask (with types for tensors) against the type of the scores.

    Raises TfgraphError: where query and key lengths differ and no offset is given, or where a
    tensor does not fit.
    """
    if scores.rank < 2:
        raise TfgraphError(f"scores are [..., query, key], got {scores}")
    for part in mask.parts:
        _check_positions(part, scores)
        _check_tensors(part, scores)


def _check_positions(part: Mask, scores: TensorType) -> None:
    queries, keys = scores.shape[-2:]
    if not isinstance(part, Causal | Window | Prefix | Alibi | Relative):
        return
    if part.offset is not None and part.offset.is_const and abs(int(part.offset)) > _FURTHEST:
        raise TfgraphError(f"{part}: an offset is at most {_FURTHEST} either way")
    if part.offset is None and queries != keys:
        raise TfgraphError(
            f"{part}: {queries} queries stand before {keys} keys, and no offset says where",
            hint="give the position of the first query, such as causal(offset=past)",
        )
    if isinstance(part, Window):
        for bound in (part.left, part.right):
            if bound is not None and (not bound.is_const or int(bound) < 0):
                raise TfgraphError(f"window: {bound} is not a distance of at least 0")


def _check_tensors(part: Mask, scores: TensorType) -> None:
    batch, (queries, keys) = scores.shape[0], scores.shape[-2:]
    if isinstance(part, Padding | Prefix | Segments) and scores.rank < 3:
        name = type(part).__name__.lower()
        raise TfgraphError(f"{name}: scores are [batch, ..., query, key], got {scores}")
    if isinstance(part, Padding):
        if part.keep.rank == 1:
            _expect("padding lengths", part.keep, (batch,), "int")
        else:
            _expect("padding", part.keep, (batch, keys), "int bool")
    elif isinstance(part, Prefix):
        _expect("prefix lengths", part.length, (batch,), "int")
    elif isinstance(part, Segments):
        _expect("segments of queries", part.query, (batch, queries), "int")
        _expect("segments of keys", part.key, (batch, keys), "int")
    elif isinstance(part, Alibi):
        if scores.rank < 3:
            raise TfgraphError(f"alibi: scores are [..., head, query, key], got {scores}")
        _expect("alibi slopes", part.slopes, (scores.shape[-3],), "float")
    elif isinstance(part, Relative):
        _check_relative(part, scores)
    elif isinstance(part, Dense | Bias):
        tensor = part.allowed if isinstance(part, Dense) else part.values
        _expect(
            "dense" if isinstance(part, Dense) else "bias",
            tensor,
            None,
            "bool" if isinstance(part, Dense) else "float",
        )
        if broadcast_shapes(tensor.shape, scores.shape) != scores.shape:
            raise TfgraphError(f"{tensor} does not broadcast to the scores {scores}")


def _check_relative(part: Relative, scores: TensorType) -> None:
    if scores.rank < 3:
        raise TfgraphError(f"relative: scores are [..., head, query, key], got {scores}")
    table, least = part.table, 4 if part.bidirectional else 2
    if table.rank != 2 or not table.dtype.is_float or table.shape[1] != scores.shape[-3]:
        expected = f"[buckets,{scores.shape[-3]}]"
        raise TfgraphError(f"relative table: expected float of shape {expected}, got {table}")
    buckets, limit = table.shape[0], part.max_distance
    if not buckets.is_const or int(buckets) < least or int(buckets) % (least // 2):
        kind = "an even number of at least 4" if part.bidirectional else "a number of at least 2"
        raise TfgraphError(f"relative: {buckets} buckets, expected {kind}")
    if int(buckets) > _MOST_BUCKETS:
        raise TfgraphError(f"relative: {buckets} buckets, expected at most {_MOST_BUCKETS}")
    exact = int(buckets) // least
    if not limit.is_const or not exact < int(limit) < 1 << 31:
        raise TfgraphError(f"relative: max_distance is {limit}, expected a number above {exact}")


def _expect(what: str, got: TensorType, shape: tuple[Any, ...] | None, kinds: str) -> None:
    kind = "bool" if got.dtype == DType.bool_ else "float" if got.dtype.is_float else "int"
    if kind not in kinds.split() or (shape is not None and got.shape != shape):
        shown = "" if shape is None else f" of shape [{','.join(map(str, shape))}]"
        raise TfgraphError(f"{what}: expected {' or '.join(kinds.split())}{shown}, got {got}")
