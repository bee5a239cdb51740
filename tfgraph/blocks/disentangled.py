"""Disentangled attention: what the content of a token and its distance from another have to do with
each other, added to the scores. He et al. 2020 (DeBERTa), section 3.1; buckets: as in v2.

May import: basic, positions, ops, ir.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log
from typing import TYPE_CHECKING, cast

from tfgraph import ops
from tfgraph.blocks.basic import labelled, linear, require_size
from tfgraph.blocks.positions import counted
from tfgraph.errors import TfgraphError
from tfgraph.ir import DType, Fill, exact, rsqrt

if TYPE_CHECKING:
    from tfgraph.ir import Exact
    from tfgraph.ops import Array, Traced

TERMS = ("c2p", "p2c")
_HAIR = 1e-9  # a logarithm that should be whole may come out above it by so much


@dataclass(frozen=True)
class Disentangled:
    """Vectors of distances, `table` [2 * span, width], for sequences of up to `longest` tokens.

    Row span + b is for the bucket b of a distance, between -span and span - 1. Unless `buckets`, a
    distance is its own bucket; else the span is `buckets`, distances up to buckets // 2 have their
    own, and others up to `furthest` share them, ever more in each.

    `terms`: "c2p", the query's content with the distance as a key, and "p2c", the distance as a
    query with the key's content. With `shared`, distances go through the projections of Q and K,
    else through `distance_q` and `distance_k`.
    """

    table: Traced
    longest: int
    buckets: int | None
    furthest: int
    terms: tuple[str, ...] = TERMS
    shared: bool = True
    rows: dict[str, Traced] = field(default_factory=lambda: dict[str, "Traced"](), init=False)

    def __post_init__(self) -> None:
        require_size("disentangled: longest", self.longest)
        if not self.terms or not set(self.terms) <= set(TERMS):
            raise TfgraphError(f"disentangled: terms are {self.terms}, expected some of {TERMS}")
        distances = ops.sub(counted(2 * self.longest), self.longest - 1)
        for term in self.terms:  # to the query they are j - i, the table is for i - j
            buckets = self._bucket(distances)
            rows = ops.add(ops.neg(buckets) if term == "c2p" else buckets, self.span)
            rows = ops.minimum(ops.maximum(rows, 0), 2 * self.span - 1)
            rows = ops.cast(rows, dtype=DType.int64)
            self.rows[term] = labelled(rows, f"positions.{term}")

    @property
    def span(self) -> int:
        """Half of the rows of the table."""
        return int(self.table.shape[0]) // 2

    def scores(self, q: Array, k: Array, scale: Exact, *, bias: bool) -> Array:
        """[batch, heads, s, s] for Q and K [batch, heads, s, d], to be added to scores under that
        `scale`. Inside the scope of an attention, whose projections have a bias or not."""
        total: Array | None = None
        for term in self.terms:
            content, other = (q, "k") if term == "c2p" else (k, "q")
            width = int(content.shape[1] * content.shape[3])
            vectors = linear(
                self.table,
                width,
                bias=bias if self.shared or term == "p2c" else True,
                name=f"{other}_of_distances",
                of=other if self.shared else f"distance_{other}",
            )
            length = content.shape[2]
            rows = ops.slice_(
                self.rows[term], axis=0, start=self.longest - length, stop=self.longest + length
            )
            part = _by_distance(content, vectors, rows)
            if term == "p2c":
                part = ops.transpose(part, perm=(0, 1, 3, 2))
            total = part if total is None else ops.add(total, part)
        return ops.mul(cast("Array", total), scale)

    def _bucket(self, distances: Array) -> Array:
        """distances in f64: up to buckets // 2 as they are, beyond it by their logarithm."""
        if self.buckets is None:
            return distances
        middle = self.buckets // 2
        size = ops.abs_(distances)
        turns = ops.log(ops.mul(ops.maximum(size, middle), exact(1 / middle)))
        steps = ops.mul(turns, exact((middle - 1) / log((self.furthest - 1) / middle)))
        grown = ops.add(ops.neg(ops.floor(ops.neg(ops.sub(steps, exact(_HAIR))))), middle)
        signed = ops.where(ops.less(distances, 0), ops.neg(grown), grown)
        return ops.where(ops.less(middle, size), signed, distances)


def _by_distance(content: Array, vectors: Array, rows: Array) -> Array:
    """out[b, h, i, j] = content[b, h, i] . the vector of the distance j - i: content [batch, heads,
    s, d], vectors [n, heads*d], rows i64[2s] of these for the distances -(s - 1) .. s.

    All products are [s, 2s], of which row i has distance j - i at column s - 1 + j - i. Read as
    rows of 2s - 1 from column s - 1 on, they have it at column j. Dai et al. 2019, appendix B.
    """
    batch, heads, length, size = content.shape
    each = ops.reshape(ops.embedding(rows, vectors), shape=(2 * length, heads, size))
    products = ops.matmul(content, ops.transpose(each, perm=(1, 2, 0)))
    flat = ops.reshape(products, shape=(batch, heads, 2 * length * length))
    start = length - 1
    flat = ops.slice_(flat, axis=2, start=start, stop=start + length * (2 * length - 1))
    shifted = ops.reshape(flat, shape=(batch, heads, length, 2 * length - 1))
    return ops.slice_(shifted, axis=3, start=0, stop=length)


def distance_table(
    rows: int, width: int, *, dtype: str | DType = "f32", name: str = "positions.table"
) -> Traced:
    """The parameter [rows, width] of vectors for distances, which the layers of a stack share."""
    require_size(f"{name}: the number of rows", rows)
    builder = ops.current()
    return builder.param(
        builder.unique(name), dtype, rows, width, fill=Fill("normal", rsqrt(width))
    )
