"""What stands on top of a stack: poolers, language model and pointer heads, classifiers.

May import: basic, ops, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tfgraph import ops
from tfgraph.blocks.basic import Norm, activated, labelled, linear, require_size, width_of
from tfgraph.errors import TfgraphError
from tfgraph.ir import DType, Exact, Fill, exact, rsqrt

if TYPE_CHECKING:
    from tfgraph.ir import Dim, ExactLike, Mask
    from tfgraph.ops import Array, Traced


def first_token(x: Array) -> Traced:
    """The vector of the first position: [batch, seq, width] to [batch, width]."""
    batch, _, width = _rows(x)
    return cast("Traced", ops.reshape(ops.slice_(x, axis=1, start=0, stop=1), shape=(batch, width)))


def pooler(x: Array, *, activation: str = "tanh", name: str = "pooler") -> Traced:
    """activation(linear(first token)): [batch, seq, width] to [batch, width].

    Devlin et al. 2018.
    """
    builder = ops.current()
    name = builder.unique(name)
    with builder.scope(name):
        y = linear(first_token(x), width_of(x), name="dense")
    return labelled(ops.activation(activation)(y), name)


def end_token(x: Array, ids: Array, token: int | None = None) -> Traced:
    """The vector of the end of a text, [batch, seq, width] to [batch, width]: at the first `token`
    of ids i64[batch, seq], or unless it is given at the first of the largest ids. Where there is no
    such token, the first position. Radford et al. 2021 (CLIP), as in its implementation."""
    if len(x.shape) != 3 or ids.shape != x.shape[:2]:
        raise TfgraphError(f"expected [batch, seq, width] and ids [batch, seq], got {x.type}")
    ranks = ids if token is None else ops.equal(ids, token)
    return _first_highest(x, ops.cast(ranks, dtype=DType.float32))


def last_token(x: Array, kept: Array | None = None) -> Traced:
    """The vector of the last position that is `kept`, bool [batch, seq], else of the last of all:
    [batch, seq, width] to [batch, width]. Where none is kept, the first position. Radford et al.
    2018, as in implementations."""
    _, length, _ = _rows(x)
    numbers = ops.cast(ops.iota(length=length), dtype=DType.float32)
    if kept is None:
        kept = ops.full(shape=x.shape[:2], value=1)
    return _first_highest(x, ops.mul(ops.cast(kept, dtype=DType.float32), numbers))


def mean_token(x: Array, mask: Mask | None = None) -> Traced:
    """The mean of the vectors whose keys the mask shows, of all without one: [batch, seq, width] to
    [batch, width]; zeros where it shows none. Reimers and Gurevych 2019."""
    batch, length, width = _rows(x)
    scores: Array = ops.full(shape=(batch, 1, length), value=0, dtype=x.dtype)
    shares = ops.softmax(scores if mask is None else ops.mask(scores, mask))
    return cast("Traced", ops.reshape(ops.weighted_sum(shares, x), shape=(batch, width)))


def _rows(x: Array) -> tuple[Dim, Dim, Dim]:
    """batch, seq and width of a sequence."""
    if len(x.shape) != 3:
        raise TfgraphError(f"expected [batch, seq, width], got {x.type}")
    batch, length, width = x.shape
    return batch, length, width


def _first_highest(x: Array, ranks: Array) -> Traced:
    """The vector of the first position of the highest rank, f32 [batch, seq]."""
    batch, length, width = _rows(x)
    _, where = ops.topk(ranks, k=1)
    there = ops.cast(ops.equal(ops.iota(length=length), where), dtype=x.dtype)
    row = ops.weighted_sum(ops.reshape(there, shape=(batch, 1, length)), x)
    return cast("Traced", ops.reshape(row, shape=(batch, width)))


def vocabulary_transform(
    x: Array,
    width: int,
    *,
    bias: bool = True,
    activation: str = "gelu",
    kind: str | Norm = "layer_norm",
    eps: ExactLike = 1e-5,
    name: str = "transform",
) -> Traced:
    """norm(activation(linear(x))), which stands before the masked language model's head: x
    [..., in] to [..., width]. Devlin et al. 2018, as in the implementation."""
    builder = ops.current()
    name = builder.unique(name)
    with builder.scope(name):
        y = activated(linear(x, width, bias=bias, name="dense"), activation)
        y = (Norm(kind, eps) if isinstance(kind, str) else kind)(y, "norm")
    return labelled(y, name)


def lm_head(
    x: Array,
    vocabulary: int,
    *,
    table: Traced | None = None,
    bias: bool = False,
    scale: ExactLike | None = None,
    softcap: ExactLike | None = None,
    name: str = "lm_head",
) -> Traced:
    """Logits [..., vocabulary]. With `table` [vocabulary, width], that of the tokens, the head is
    tied to it: x table^T (Press and Wolf 2017); else it has a `weight` of its own. Logits are
    multiplied by `scale` (Raffel et al. 2020), then those with a `softcap` c become
    c tanh(logit / c) (Gemma 2, 2024)."""
    require_size(f"{name}: the vocabulary", vocabulary)
    builder = ops.current()
    name = builder.unique(name)
    with builder.scope(name):
        if table is None:
            size = width_of(x)
            weight: Array = builder.param(
                "weight", x.dtype, size, vocabulary, fill=Fill("normal", rsqrt(size))
            )
        else:
            weight = ops.transpose(table, perm=(1, 0))
        logits = ops.linear(x, weight, builder.param("bias", x.dtype, vocabulary) if bias else None)
        if scale is not None:
            logits = ops.mul(logits, scale)
        if softcap is not None:
            cap = exact(softcap)
            if cap.calls or cap.factor <= 0:
                raise TfgraphError(f"{name}: softcap is {cap}, expected a positive rational")
            logits = ops.mul(ops.tanh(ops.mul(logits, Exact(1 / cap.factor))), cap)
    return labelled(logits, name)


def pointer_head(
    x: Array,
    memory: Array,
    *,
    width: int | None = None,
    mask: Mask | None = None,
    name: str = "pointer",
) -> Traced:
    """Probabilities of the positions of memory: softmax_j(v . tanh(memory_j W1 + x_i W2)).

    x [batch, s, ...] and memory [batch, t, ...] to [batch, s, t]; `width` is that inside, by
    default that of x. Vinyals et al. 2015, section 2.3.
    """
    width = width_of(x) if width is None else width
    builder = ops.current()
    name = builder.unique(name)
    with builder.scope(name):
        keys = linear(memory, width, bias=False, name="memory")
        queries = linear(x, width, bias=False, name="query")
        (batch, s, _), (_, t, _) = queries.shape, keys.shape
        sums = ops.add(
            ops.reshape(keys, shape=(batch, 1, t, width)),
            ops.reshape(queries, shape=(batch, s, 1, width)),
        )
        scores = linear(ops.tanh(sums), 1, bias=False, name="score")
        scores = labelled(ops.reshape(scores, shape=(batch, s, t)), "scores")
        if mask is not None:
            scores = labelled(ops.mask(scores, mask), "masked_scores")
        y = ops.softmax(scores)
    return labelled(y, name)


def classifier(
    x: Array,
    labels: int,
    *,
    activation: str | None = None,
    bias: bool = True,
    name: str = "classifier",
) -> Traced:
    """Logits of a row's class: [..., width] to [..., labels], after a dense layer with
    `activation` where one is given (Sanh et al. 2019)."""
    require_size(f"{name}: the number of labels", labels)
    builder = ops.current()
    name = builder.unique(name)
    with builder.scope(name):
        if activation is not None:
            x = activated(linear(x, width_of(x), name="dense"), activation)
        y = linear(x, labels, bias=bias, name="out")
    return labelled(y, name)


def span_ends(logits: Array) -> tuple[Traced, Traced]:
    """Logits [..., 2] of each token as those of where a span starts and of where it ends: [...]
    each. Devlin et al. 2018, section 4.2."""
    parts = (ops.slice_(logits, axis=-1, start=i, stop=i + 1) for i in range(2))
    start, end = (ops.reshape(part, shape=logits.shape[:-1]) for part in parts)
    return cast("Traced", start), cast("Traced", end)
