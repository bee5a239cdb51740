"""The tiles of flash attention on tensor cores: how a block shares its work, and where it works.

Rows are pairs of a query and one of the heads that share a key/value head: row r is query
r // group and head r % group of the group, so that one read of a key serves the whole group.
May import: tvm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tfgraph.backends.tvm.cuda.attention_mask import Masks
from tfgraph.backends.tvm.cuda.gemm_tile import SHORT
from tfgraph.backends.tvm.cuda.kernel import WARP_SIZE
from tfgraph.backends.tvm.kernels import AttentionShape

M, N, K = 16, 8, 16  # what one `mma` multiplies: 16 x 16 by 16 x 8
CHUNK = 8  # numbers that are copied at once: 16 bytes
LOG2_E = math.log2(math.e)
HIDDEN = -math.inf
"""The score of a masked pair. Its weight is 0, unless no pair of the row is allowed."""
LEAST_TILE_KEYS = 16
"""Keys of a warp in a tile, at least."""


@dataclass(frozen=True)
class Tile:
    """`rows` x `keys` scores at a time, of which a warp takes `warp_rows` x `warp_keys`."""

    rows: int
    keys: int
    warp_rows: int
    warp_keys: int

    @property
    def across(self) -> int:
        """Warps that share rows."""
        return self.keys // self.warp_keys

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.rows // self.warp_rows * self.across * WARP_SIZE

    def shared_bytes(self, shape: AttentionShape) -> int:
        """Shared memory for heads of that shape: queries, keys, values, what masks may need."""
        width, value_width = pitch(shape.width), pitch(shape.value_width)
        tiles = 2 * ((self.rows + self.keys) * width + self.keys * value_width)
        flags = 2 * 4 * self.keys
        spoiled = self.threads * (self.warp_rows // M) * (padded(shape.value_width) // N)
        return tiles + flags + spoiled


def padded(width: int) -> int:
    """A width as tensor cores take it, with columns of zeros behind the last."""
    return -(-width // K) * K


def pitch(width: int) -> int:
    """From row to row in shared memory: 16 bytes more, so that the eight rows that `ldmatrix` reads
    together lie in different banks."""
    return padded(width) + CHUNK


@dataclass(frozen=True)
class Heads:
    """The heads of one batch entry that share a key/value head, as rows."""

    batch: Any
    kv_head: Any
    group: int
    rows: Any
    """How many there are, an int32."""

    def query(self, row: Any) -> Any:
        """The query of a row."""
        return row if self.group == 1 else tirx.truncdiv(row, self.group)

    def head(self, row: Any) -> Any:
        """The query head of a row."""
        if self.group == 1:
            return self.kv_head
        return self.kv_head * self.group + tirx.truncmod(row, self.group)


@dataclass(frozen=True)
class Problem:
    """What a kernel computes, and its arguments. A score is scale * q . k, then
    softcap * tanh(score / softcap), then the biases."""

    shape: AttentionShape
    masks: Masks
    q: Any
    k: Any
    v: Any
    out: Any
    scale: float
    softcap: float | None = None

    @property
    def batch(self) -> Any:
        """Batch entries."""
        return self.q.shape[0]

    @property
    def keys(self) -> Any:
        """Keys of a batch entry."""
        return self.k.shape[1]

    @property
    def group(self) -> int:
        """Query heads that share a key/value head."""
        return self.shape.heads // self.shape.kv_heads

    @property
    def rows(self) -> Any:
        """Rows of a batch entry and key/value head, an int64."""
        return self.q.shape[1] * self.group

    @property
    def short(self) -> str:
        """The dtype as functions of the prelude are called."""
        return SHORT[self.shape.dtype]

    @property
    def plain(self) -> bool:
        """Whether the scale is applied within the exponent of a weight, with nothing in between."""
        return self.softcap is None and not self.masks.biases and self.scale > 0

    @property
    def factor(self) -> float:
        """What scores are multiplied by in exponents of 2."""
        return (self.scale if self.plain else 1.0) * LOG2_E

    def heads(self, batch: Any, kv_head: Any) -> Heads:
        """The rows of one batch entry and key/value head."""
        return Heads(batch, kv_head, self.group, self.rows.astype("int32"))

    def result_row(self, heads: Heads, row: Any) -> Any:
        """Which row of the result, seen as rows of one head, a row is."""
        query = heads.batch * self.q.shape[1] + heads.query(row)
        return query * self.shape.heads + heads.head(row)


@dataclass(frozen=True)
class Task:
    """What a block computes: rows of `heads` from `row0` on, in tiles. With `part` (number, of how
    many) it sees a part of the keys alone."""

    problem: Problem
    tile: Tile
    heads: Heads
    row0: Any
    thread: Any
    part: tuple[Any, Any] | None = None


def product_depth(terms: int) -> float:
    """How many roundings of float32 a term of a sum on tensor cores passes through. They align the
    terms of a step of 16 with the largest and drop what does not fit, up to two units of it; see
    Fasi et al., "Numerical behavior of NVIDIA tensor cores" (2021)."""
    return 2 * (terms + -(-terms // K))


def values_depth(keys: int, tile_keys: int, further: float) -> float:
    """The same of a weighted value: with each tile of keys `further` for the factor by which what
    was added up so far shrinks."""
    return product_depth(keys) + -(-keys // tile_keys) * further


def weights_depth(keys: int, tile_keys: int, further: float) -> float:
    """The same of a weight in the sum of weights: each lane adds up its own, two at a time."""
    return keys / 8 + 2 + -(-keys // tile_keys) * further
