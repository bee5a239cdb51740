"""What a mask or bias means to an attention kernel, of whatever target.

A kernel walks tiles of queries by keys and asks each mask: which keys can any of these queries see
(`first_key`, `end_key`), may any pair of this tile attend (`may`), may every pair (`must`). A mask
by position says only where its keys begin and end, see `Positional`; others leave these questions
open. Which pair may attend (`allowed`) and what a bias adds to it (`value`), each target writes in
its own way, in its attention_mask.py.

To add a mask or bias: describe it here, let the `attention` emitter make it, and register how
each target writes it; a `Positional` one needs no more than its description. May import: tvm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import tirx

Expr = Any
Offset = int | str
"""Position of query 0 among the keys: a number, or the name of an int64 argument of the kernel."""

_TRUE, _FALSE = tirx.const(True, "bool"), tirx.const(False, "bool")


@dataclass(frozen=True)
class Parameter:
    """An array argument: `shape` names batch, heads, queries, keys or distances (of which there are
    queries + keys - 1), or gives numbers."""

    name: str
    shape: tuple[str | int, ...]
    dtype: str


@dataclass(frozen=True)
class Operands:
    """A term's own arrays in the kernel, in the order of its `parameters`, the scalars of the plan,
    and how many queries there are."""

    buffers: Sequence[Any]
    scalars: Mapping[str, Expr]
    queries: Expr

    def offset(self, offset: Offset) -> Expr:
        """The offset as a number or an int64 variable."""
        return offset if isinstance(offset, int) else self.scalars[offset]


@dataclass(frozen=True)
class Rows:
    """The queries first_query .. last_query of one batch entry, all of which exist."""

    batch: Expr
    first_query: Expr
    last_query: Expr


@dataclass(frozen=True)
class Tile(Rows):
    """These queries by the keys first_key .. last_key, some of which may lie behind the last."""

    first_key: Expr
    last_key: Expr


class Term:
    """A part of a plan. Subclasses are frozen dataclasses."""

    offset: Offset = 0
    """Where query 0 stands; 0 where the term does not ask."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The arrays it reads."""
        return ()


class Mask(Term):
    """May query i attend to key j?"""

    key_only: ClassVar[bool] = False
    """Whether the answer is the same for all queries of a batch entry."""

    def first_key(self, rows: Rows, operands: Operands) -> Expr | None:
        """None of the queries sees a key before this one; None: no such bound."""
        return None

    def end_key(self, rows: Rows, operands: Operands) -> Expr | None:
        """None of the queries sees this key or a later one; None: no such bound."""
        return None

    def may(self, tile: Tile, operands: Operands) -> Expr:
        """False only where no pair of the tile may attend."""
        return _TRUE

    def must(self, tile: Tile, operands: Operands) -> Expr:
        """True only where every pair of the tile may attend."""
        return _FALSE


class Bias(Term):
    """A float32 number added to the scaled score of query i and key j."""


class Positional(Mask):
    """j < length, or i + low <= j <= i + high: of these, what a subclass has."""

    def length(self, batch: Expr, operands: Operands) -> Expr | None:
        """Every query sees the keys before this one, an int64; None: not on that account."""
        return None

    def band(self, operands: Operands) -> tuple[Expr | None, Expr | None] | None:
        """(low, high), either open if None; None: no query sees a key on that account."""
        return None

    def first_key(self, rows: Rows, operands: Operands) -> Expr | None:
        low, _ = self.band(operands) or (None, None)
        if low is None or self.length(rows.batch, operands) is not None:
            return None
        return rows.first_query + low

    def end_key(self, rows: Rows, operands: Operands) -> Expr | None:
        length, band = self.length(rows.batch, operands), self.band(operands)
        if band is None:
            return length
        if band[1] is None:
            return None
        end = rows.last_query + band[1] + 1
        return end if length is None else tirx.max(length, end)

    def may(self, tile: Tile, operands: Operands) -> Expr:
        return self.holds(
            tile.batch,
            operands,
            before=lambda length: tile.first_key < length,
            since=lambda low: tile.last_key >= tile.first_query + low,
            until=lambda high: tile.first_key <= tile.last_query + high,
        )

    def must(self, tile: Tile, operands: Operands) -> Expr:
        return self.holds(
            tile.batch,
            operands,
            before=lambda length: tile.last_key < length,
            since=lambda low: tile.first_key >= tile.last_query + low,
            until=lambda high: tile.last_key <= tile.first_query + high,
        )

    def holds(
        self,
        batch: Expr,
        operands: Operands,
        *,
        before: Callable[[Expr], Expr],
        since: Callable[[Expr], Expr],
        until: Callable[[Expr], Expr],
    ) -> Expr:
        """before(length), or since(low) and until(high): of these, what the mask has."""
        length, band = self.length(batch, operands), self.band(operands)
        ways = [] if length is None else [before(length)]
        if band is not None:
            low, high = band
            sides = [] if low is None else [since(low)]
            sides += [] if high is None else [until(high)]
            ways.append(tirx.all(_TRUE, *sides))
        return tirx.any(_FALSE, *ways)


@dataclass(frozen=True)
class Causal(Positional):
    """Key j <= i + offset."""

    offset: Offset = 0

    def band(self, operands: Operands) -> tuple[None, Expr]:
        return None, operands.offset(self.offset)


@dataclass(frozen=True)
class Window(Positional):
    """i + offset - left <= j <= i + offset + right; None leaves that side open."""

    left: int | None
    right: int | None
    offset: Offset = 0

    def band(self, operands: Operands) -> tuple[Expr | None, Expr | None]:
        offset = operands.offset(self.offset)
        low = None if self.left is None else offset - self.left
        return low, None if self.right is None else offset + self.right


@dataclass(frozen=True)
class Prefix(Positional):
    """Prefix language model: j < prefix[batch], or j <= i + offset."""

    offset: Offset = 0
    dtype: str = "int64"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("prefix", ("batch",), self.dtype),)

    def length(self, batch: Expr, operands: Operands) -> Expr:
        return operands.buffers[0][batch].astype("int64")

    def band(self, operands: Operands) -> tuple[None, Expr]:
        return None, operands.offset(self.offset)


@dataclass(frozen=True)
class Padding(Positional):
    """j < lengths[batch]."""

    key_only: ClassVar[bool] = True
    dtype: str = "int64"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("lengths", ("batch",), self.dtype),)

    def length(self, batch: Expr, operands: Operands) -> Expr:
        return operands.buffers[0][batch].astype("int64")


@dataclass(frozen=True)
class Segments(Mask):
    """query_segments[batch, i] == key_segments[batch, j], whose dtypes may differ."""

    dtype: str = "int64"
    key_dtype: str = "int64"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (
            Parameter("query_segments", ("batch", "queries"), self.dtype),
            Parameter("key_segments", ("batch", "keys"), self.key_dtype),
        )


@dataclass(frozen=True)
class Broadcast:
    """An array [batch | 1, heads | 1, queries | 1, keys]; a False field means a dimension of 1."""

    per_batch: bool = True
    per_head: bool = True
    per_query: bool = True

    @property
    def shape(self) -> tuple[str | int, ...]:
        """Names of the dimensions, or 1."""
        return tuple(self.index("batch", "heads", "queries", "keys", shared=1))

    def index(
        self, batch: Expr, head: Expr, query: Expr, key: Expr, *, shared: int = 0
    ) -> tuple[Expr, ...]:
        """Where the element of this pair stands; `shared` along dimensions of 1."""
        return (
            batch if self.per_batch else shared,
            head if self.per_head else shared,
            query if self.per_query else shared,
            key,
        )


@dataclass(frozen=True)
class Dense(Broadcast, Mask):
    """mask[batch | 0, head | 0, i | 0, j] is nonzero."""

    dtype: str = "bool"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("mask", self.shape, self.dtype),)


@dataclass(frozen=True)
class DenseBias(Broadcast, Bias):
    """bias[batch | 0, head | 0, i | 0, j]."""

    dtype: str = "float32"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("bias", self.shape, self.dtype),)


@dataclass(frozen=True)
class Alibi(Bias):
    """-slopes[head] * (i + offset - j). Press et al., arXiv 2108.12409."""

    offset: Offset = 0
    dtype: str = "float32"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("slopes", ("heads",), self.dtype),)


@dataclass(frozen=True)
class ByDistance(Bias):
    """bias[head, j - i + queries - 1]: a number for each distance between a key and a query."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("by_distance", ("heads", "distances"), "float32"),)


def nonzero(value: Expr) -> Expr:
    """Whether an element of a mask, a bool or integer, allows."""
    dtype = str(value.ty.dtype)
    return value if dtype == "bool" else tirx.NE(value, tirx.const(0, dtype))
