"""Tokens and positions as vectors. May import: basic, ops, ir."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tfgraph import ops
from tfgraph.blocks.basic import require_size
from tfgraph.errors import TfgraphError
from tfgraph.ir import DType, Fill, as_dim, rsqrt

if TYPE_CHECKING:
    from tfgraph.ir import DimLike, ExactLike
    from tfgraph.ops import Array, Traced


def embedding(
    ids: Array,
    vocabulary: int,
    width: int,
    *,
    scale: ExactLike | None = None,
    table: Traced | None = None,
    dtype: str | DType = "f32",
    name: str = "embeddings.tokens",
) -> Traced:
    """The rows of a table [vocabulary, width] at integer ids, times `scale` where given.

    The table is a parameter that bears the block's name, or `table` where it is shared. Seeded rows
    are normal with variance 1/width, so that a scale of sqrt(width) gives variance 1 (Vaswani et
    al. 2017, section 3.4).
    """
    if table is None:
        table = token_table(vocabulary, width, dtype=dtype, name=name)
    x = ops.embedding(ids, table)
    return cast("Traced", x if scale is None else ops.mul(x, scale))


def token_table(
    vocabulary: int, width: int, *, dtype: str | DType = "f32", name: str = "embeddings.tokens"
) -> Traced:
    """The parameter [vocabulary, width] of `embedding`, which a tied head shares."""
    require_size(f"{name}: the vocabulary", vocabulary)
    require_size(f"{name}: the width", width)
    builder = ops.current()
    fill = Fill("normal", rsqrt(width))
    return builder.param(builder.unique(name), dtype, vocabulary, width, fill=fill)


def sinusoidal(
    length: DimLike,
    width: int,
    *,
    positions: int,
    halves: bool = False,
    dtype: str | DType = "f32",
    name: str = "embeddings.positions",
) -> Traced:
    """Rows 0 to length - 1 of sin(p / 10000^(2i/width)), cos(...) interleaved: [length, width].

    With `halves` all sines come first, as in Marian (2018). The table [positions, width] is a
    parameter. Vaswani et al. 2017, section 3.5.
    """
    require_size(f"{name}: the number of positions", positions)
    require_size(f"{name}: the width", width)
    builder = ops.current()
    fill = Fill("sinusoidal_halves" if halves else "sinusoidal")
    table = builder.param(builder.unique(name), dtype, positions, width, fill=fill)
    return _rows(table, length, 0, positions)


def learned(
    length: DimLike,
    width: int,
    *,
    positions: int,
    offset: int = 0,
    dtype: str | DType = "f32",
    name: str = "embeddings.positions",
) -> Traced:
    """Rows offset to offset + length - 1 of a learned table [positions, width]: [length, width]."""
    require_size(f"{name}: the number of positions", positions)
    require_size(f"{name}: the width", width)
    builder = ops.current()
    fill = Fill("normal", rsqrt(width))
    table = builder.param(builder.unique(name), dtype, positions, width, fill=fill)
    return _rows(table, length, offset, positions)


def shift_right(ids: Array, start: int) -> Traced:
    """The start token, then all ids but the last: integers [batch, seq], of the same shape.

    What a decoder reads in training, so that the logits at n are for the id at n, which they have
    not seen. Vaswani et al. 2017, section 3.1.
    """
    if len(ids.shape) != 2:
        raise TfgraphError(f"shift_right: expected ids [batch, seq], got {ids.type}")
    batch, length = ids.shape
    first = ops.full(shape=(batch, as_dim(1)), value=start, dtype=ids.dtype)
    joined = ops.concat(first, ids, axis=1)
    return cast("Traced", ops.slice_(joined, axis=1, start=0, stop=length))


def positions_of(ids: Array, padding_id: int) -> Traced:
    """Positions that count real tokens only, from padding_id + 1 on; padding stands at padding_id.

    ids i64[batch, seq] to i64[batch, seq]. Liu et al. 2019 (RoBERTa), as in its implementation.
    """
    real = ops.cast(ops.logical_not(ops.equal(ids, padding_id)), dtype=ids.dtype)
    return cast("Traced", ops.add(ops.mul(ops.cumsum(real, axis=1), real), padding_id))


def positions_kept(keep: Array, offset: int) -> Traced:
    """Positions that count what a mask [batch, seq] keeps, from `offset` on: i64[batch, seq]. What
    it hides stands where the token before it does. Zhang et al. 2022 (OPT), as in its
    implementation."""
    real = ops.cast(ops.logical_not(ops.equal(keep, 0)), dtype=DType.int64)
    before = ops.maximum(ops.sub(ops.cumsum(real, axis=1), 1), 0)
    return cast("Traced", ops.add(before, offset) if offset else before)


def _rows(table: Traced, length: DimLike, offset: int, positions: int) -> Traced:
    length = as_dim(length)
    if length.is_const and int(length) + offset > positions:
        raise TfgraphError(f"{length} positions from {offset} on, but the table has {positions}")
    return cast("Traced", ops.slice_(table, axis=0, start=offset, stop=length + offset))
