"""Masks and biases of the attention kernel: what a tile of keys may skip, what each pair may see.

A plan (mask_plan.py) is the AND of masks plus the sum of biases; the names are those of the CPU
kernel's masks. The kernel walks tiles of keys for a tile of query rows and asks each mask:

- which keys can any of these rows see (`first_key`, `end_key`): other tiles are never read;
- does it hide single pairs of this tile (`cuts`): if none does, no weight needs selecting;
- may this pair attend (`allowed`).

Masks that depend on the key alone (`key_only`) are asked once a key, and hidden keys and values are
never read. To add a mask: subclass `Mask` (or `Bias`), and answer. May import: tvm, kernel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import tirx

from tfgraph.backends.tvm.cuda.kernel import both, either, f32, guarded

Expr = Any
Offset = int | str
"""Position of query 0 among the keys: a number, or the name of an int64 argument of the kernel."""

_NEVER = False
_ALWAYS = True


@dataclass(frozen=True)
class Parameter:
    """An array argument: `shape` names batch, heads, queries or keys, or gives numbers."""

    name: str
    shape: tuple[str | int, ...]
    dtype: str


@dataclass(frozen=True)
class Rows:
    """The query rows first_row .. last_row of one batch entry."""

    batch: Expr
    first_row: Expr
    last_row: Expr


@dataclass(frozen=True)
class Tile(Rows):
    """These rows by the keys first_key .. last_key, some of which may lie behind the last."""

    first_key: Expr
    last_key: Expr


@dataclass(frozen=True)
class Pair:
    """One query row and one key; `inside` says whether both exist."""

    batch: Expr
    head: Expr
    row: Expr
    key: Expr
    inside: Expr


@dataclass(frozen=True)
class Operands:
    """A term's own arrays in the kernel, in the order of its `parameters`, and the scalars."""

    buffers: Sequence[Any]
    scalars: Mapping[str, Expr]

    def offset(self, offset: Offset) -> Expr:
        """The offset as a number or an int64 variable."""
        return offset if isinstance(offset, int) else self.scalars[offset]


class Term:
    """A part of a plan."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The arrays it reads."""
        return ()

    @property
    def offsets(self) -> tuple[Offset, ...]:
        """The offsets it uses."""
        return ()


class Mask(Term, ABC):
    """May a query attend to a key? Subclasses are frozen dataclasses."""

    key_only: ClassVar[bool] = False
    """Whether the answer is the same for all queries of a batch entry."""

    def first_key(self, rows: Rows, operands: Operands) -> Expr | None:
        """None of the rows sees a key before this one; None: no such bound."""
        return None

    def end_key(self, rows: Rows, operands: Operands) -> Expr | None:
        """None of the rows sees this key or a later one; None: no such bound."""
        return None

    def cuts(self, tile: Tile, operands: Operands) -> Expr:
        """False only where every pair of the tile may attend."""
        return tirx.const(_ALWAYS, "bool")

    @abstractmethod
    def allowed(self, pair: Pair, operands: Operands) -> Expr:
        """Whether the pair may attend; for `key_only` masks pair.row and pair.head are None."""


@dataclass(frozen=True)
class Causal(Mask):
    """Key j <= i + offset."""

    offset: Offset = 0

    @property
    def offsets(self) -> tuple[Offset, ...]:
        return (self.offset,)

    def end_key(self, rows: Rows, operands: Operands) -> Expr:
        return rows.last_row + operands.offset(self.offset) + 1

    def cuts(self, tile: Tile, operands: Operands) -> Expr:
        return tile.last_key > tile.first_row + operands.offset(self.offset)

    def allowed(self, pair: Pair, operands: Operands) -> Expr:
        return pair.key <= pair.row + operands.offset(self.offset)


@dataclass(frozen=True)
class Window(Mask):
    """i + offset - left <= j <= i + offset + right; None leaves that side open, not both."""

    left: int | None
    right: int | None
    offset: Offset = 0

    @property
    def offsets(self) -> tuple[Offset, ...]:
        return (self.offset,)

    def first_key(self, rows: Rows, operands: Operands) -> Expr | None:
        if self.left is None:
            return None
        return rows.first_row + operands.offset(self.offset) - self.left

    def end_key(self, rows: Rows, operands: Operands) -> Expr | None:
        if self.right is None:
            return None
        return rows.last_row + operands.offset(self.offset) + self.right + 1

    def cuts(self, tile: Tile, operands: Operands) -> Expr:
        offset, sides = operands.offset(self.offset), []
        if self.left is not None:
            sides.append(tile.first_key < tile.last_row + offset - self.left)
        if self.right is not None:
            sides.append(tile.last_key > tile.first_row + offset + self.right)
        return either(*sides)

    def allowed(self, pair: Pair, operands: Operands) -> Expr:
        position, sides = pair.row + operands.offset(self.offset), []
        if self.left is not None:
            sides.append(pair.key >= position - self.left)
        if self.right is not None:
            sides.append(pair.key <= position + self.right)
        return both(*sides)


@dataclass(frozen=True)
class Prefix(Mask):
    """j < prefix[batch], or j <= i + offset."""

    offset: Offset = 0
    dtype: str = "int64"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("prefix", ("batch",), self.dtype),)

    @property
    def offsets(self) -> tuple[Offset, ...]:
        return (self.offset,)

    def end_key(self, rows: Rows, operands: Operands) -> Expr:
        causal = Causal(self.offset).end_key(rows, operands)
        return tirx.max(self._length(rows.batch, operands), causal)

    def cuts(self, tile: Tile, operands: Operands) -> Expr:
        causal = Causal(self.offset).cuts(tile, operands)
        return both(tile.last_key >= self._length(tile.batch, operands), causal)

    def allowed(self, pair: Pair, operands: Operands) -> Expr:
        causal = Causal(self.offset).allowed(pair, operands)
        return either(pair.key < self._length(pair.batch, operands), causal)

    def _length(self, batch: Expr, operands: Operands) -> Expr:
        return operands.buffers[0][batch].astype("int64")


@dataclass(frozen=True)
class Padding(Mask):
    """j < lengths[batch]."""

    key_only: ClassVar[bool] = True
    dtype: str = "int64"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("lengths", ("batch",), self.dtype),)

    def end_key(self, rows: Rows, operands: Operands) -> Expr:
        return operands.buffers[0][rows.batch].astype("int64")

    def allowed(self, pair: Pair, operands: Operands) -> Expr:
        return pair.key < operands.buffers[0][pair.batch].astype("int64")


@dataclass(frozen=True)
class KeyMask(Mask):
    """keep[batch, j] is nonzero."""

    key_only: ClassVar[bool] = True
    dtype: str = "int64"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("keep", ("batch", "keys"), self.dtype),)

    def allowed(self, pair: Pair, operands: Operands) -> Expr:
        kept = _is_set(operands.buffers[0][pair.batch, pair.key], self.dtype)
        return guarded(pair.inside, kept, tirx.const(_NEVER, "bool"))


@dataclass(frozen=True)
class Segments(Mask):
    """query_segments[batch, i] == key_segments[batch, j]."""

    dtype: str = "int64"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (
            Parameter("query_segments", ("batch", "queries"), self.dtype),
            Parameter("key_segments", ("batch", "keys"), self.dtype),
        )

    def allowed(self, pair: Pair, operands: Operands) -> Expr:
        queries, keys = operands.buffers
        same = tirx.EQ(queries[pair.batch, pair.row], keys[pair.batch, pair.key])
        return guarded(pair.inside, same, tirx.const(_NEVER, "bool"))


@dataclass(frozen=True)
class Dense(Mask):
    """mask[batch | 0, head | 0, i | 0, j] is nonzero; a False field means a dimension of 1."""

    per_batch: bool = True
    per_head: bool = True
    per_query: bool = True
    dtype: str = "bool"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("mask", _dense_shape(self), self.dtype),)

    def allowed(self, pair: Pair, operands: Operands) -> Expr:
        kept = _is_set(operands.buffers[0][_dense_index(self, pair)], self.dtype)
        return guarded(pair.inside, kept, tirx.const(_NEVER, "bool"))


class Bias(Term, ABC):
    """A float32 number added to the scaled score of query i and key j."""

    @abstractmethod
    def value(self, pair: Pair, operands: Operands) -> Expr:
        """The number; anything where the pair is not inside."""


@dataclass(frozen=True)
class DenseBias(Bias):
    """bias[batch | 0, head | 0, i | 0, j]; a False field means a dimension of 1."""

    per_batch: bool = True
    per_head: bool = True
    per_query: bool = True

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("bias", _dense_shape(self), "float32"),)

    def value(self, pair: Pair, operands: Operands) -> Expr:
        return guarded(pair.inside, operands.buffers[0][_dense_index(self, pair)], f32(0))


@dataclass(frozen=True)
class Alibi(Bias):
    """slopes[head] * (j - i - offset). Press et al., arXiv 2108.12409."""

    offset: Offset = 0

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("slopes", ("heads",), "float32"),)

    @property
    def offsets(self) -> tuple[Offset, ...]:
        return (self.offset,)

    def value(self, pair: Pair, operands: Operands) -> Expr:
        distance = pair.key - pair.row - operands.offset(self.offset)
        return operands.buffers[0][pair.head] * distance.astype("float32")


def _is_set(value: Expr, dtype: str) -> Expr:
    return value if dtype == "bool" else tirx.NE(value, tirx.const(0, dtype))


def _dense_shape(term: Dense | DenseBias) -> tuple[str | int, ...]:
    return (
        "batch" if term.per_batch else 1,
        "heads" if term.per_head else 1,
        "queries" if term.per_query else 1,
        "keys",
    )


def _dense_index(term: Dense | DenseBias, pair: Pair) -> tuple[Expr, ...]:
    return (
        pair.batch if term.per_batch else 0,
        pair.head if term.per_head else 0,
        pair.row if term.per_query else 0,
        pair.key,
    )
