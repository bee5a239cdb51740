"""Every kind of mask, and its meaning written plainly by index, independent of `ops.masking`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

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
    alibi,
    bias,
    causal,
    dense,
    padding,
    prefix,
    relative,
    segments,
    window,
)
from tfgraph.ops import FloatArray

if TYPE_CHECKING:
    from tfgraph.ir import Mask

    NDArray = np.ndarray[Any, Any]

BATCH, HEADS = 2, 3


def allows(part: Mask, b: Any, h: Any, i: Any, j: Any, past: int) -> Any:
    """Whether query i may attend key j, as section 4 of the design says in words."""
    position = past + i
    match part:
        case Causal():
            return j <= position
        case Window(left=left, right=right):
            first = position - (math.inf if left is None else int(left))
            last = position + (math.inf if right is None else int(right))
            return (j >= first) & (j <= last)
        case Padding(keep=keep):
            return j < keep.data[b] if keep.data.ndim == 1 else keep.data[b, j] != 0
        case Prefix(length=length):
            return (j < length.data[b]) | (j <= position)
        case Segments(query=query, key=key):
            return query.data[b, i] == key.data[b, j]
        case Dense(allowed=allowed):
            return _at(allowed.data, b, h, i, j)
    return True


def adds(part: Mask, b: Any, h: Any, i: Any, j: Any, past: int) -> Any:
    """What is added to the score of query i and key j."""
    match part:
        case Bias(values=values):
            return _at(values.data, b, h, i, j)
        case Alibi(slopes=slopes):
            return -slopes.data[h] * ((past + i) - j)
        case Relative(table=table):
            rows = np.vectorize(lambda distance: t5_bucket(distance, len(table.data), part))
            return table.data[rows(j - (past + i)), h]
    return 0.0


def t5_bucket(relative_position: int, buckets: int, m: Relative) -> int:
    """The bucket as Raffel et al. 2020 (Mesh TensorFlow) compute it, with a logarithm in float32,
    whose error is less than the gap to the next integer distance."""
    row, n = 0, -relative_position
    if m.bidirectional:
        buckets //= 2
        row, n = (buckets if n < 0 else 0), abs(n)
    n = max(n, 0)
    exact = buckets // 2
    if n < exact:
        return row + n
    share = np.log(np.float32(n / exact)) / np.float32(math.log(int(m.max_distance) / exact))
    return row + min(exact + int(np.float32(share * (buckets - exact))), buckets - 1)


def _at(data: NDArray, *index: Any) -> Any:
    """The elements of an array that broadcasts to [batch, head, query, key]."""
    own = index[len(index) - data.ndim :]
    return data[tuple(0 * i if n == 1 else i for n, i in zip(data.shape, own, strict=True))]


def pairs(m: Mask, shape: tuple[int, ...], past: int) -> tuple[NDArray, NDArray]:
    """For each element of scores [batch, head, query, key]: whether it is allowed by all parts of a
    mask, and what is added to it."""
    index = np.ogrid[tuple(slice(n) for n in shape)]
    allowed, added = np.ones(shape, bool), np.zeros(shape)
    for part in m.parts:
        allowed &= allows(part, *index, past)
        added += adds(part, *index, past)
    return allowed, added


def masked(scores: NDArray, m: Mask, past: int) -> NDArray:
    """The definition: biases are added, then a key that any mask forbids gets -inf."""
    index = np.ogrid[tuple(slice(n) for n in scores.shape)]
    for part in m.parts:
        scores = scores + adds(part, *index, past)
    return np.where(pairs(m, scores.shape, past)[0], scores, -math.inf)


def kinds(queries: int, keys: int, past: int, heads: int = HEADS) -> dict[str, Mask]:
    """A mask of every kind and form. Where lengths agree, no offset is given."""
    rng = np.random.default_rng([queries, keys])
    offset = None if queries == keys and past == 0 else past

    def array(data: Any) -> FloatArray:
        return FloatArray(np.asarray(data))

    lengths = array(rng.integers(0, keys + 1, BATCH))
    keep = rng.random((BATCH, keys)) < 0.6
    ids = rng.integers(0, 3, (BATCH, queries)), rng.integers(0, 3, (BATCH, keys))
    return {
        "causal": causal(offset),
        "window(2)": window(2, offset=offset),
        "window(0, 0)": window(0, 0, offset),
        "window(right=1)": window(right=1, offset=offset),
        "window(3, 1)": window(3, 1, offset),
        "window()": window(offset=offset),
        "padding of lengths": padding(lengths),
        "padding of int32 lengths": padding(array(lengths.data.astype(np.int32))),
        "padding of bool": padding(array(keep)),
        "padding of integers": padding(array(keep * rng.integers(-2, 3, keep.shape))),
        "prefix": prefix(lengths, offset),
        "segments": segments(array(ids[0]), array(ids[1].astype(np.int32))),
        "dense [q, k]": dense(array(rng.random((queries, keys)) < 0.5)),
        "dense [b, 1, 1, k]": dense(array(rng.random((BATCH, 1, 1, keys)) < 0.5)),
        "dense [b, h, q, k]": dense(array(rng.random((BATCH, heads, queries, keys)) < 0.5)),
        "dense [h, q, 1]": dense(array(rng.random((heads, queries, 1)) < 0.5)),
        "bias [h, q, k]": bias(array(rng.normal(size=(heads, queries, keys)))),
        "bias [k]": bias(array(rng.normal(size=keys))),
        "alibi": alibi(array(rng.random(heads)), offset),
        "relative": relative(array(rng.normal(size=(8, heads))), 20, offset=offset),
        "relative of earlier keys": relative(
            array(rng.normal(size=(5, heads))), 50, bidirectional=False, offset=offset
        ),
    }
