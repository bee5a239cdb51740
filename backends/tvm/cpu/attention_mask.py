"""Masks and biases of the attention kernel: what a tile may skip, and what each pair may see.

A `MaskPlan` is the AND of masks plus the sum of biases. The kernel works on tiles of queries by
keys and asks each mask three questions: may any pair of this tile attend (else it is skipped), may
every pair attend (else its scores are selected one by one), and which queries may see this key.
Masks that depend on the key alone cost less still: `Padding` ends the walk over the keys early, and
`KeyList` walks a list of the allowed keys, made once for all layers by `compact_keys`, so that
hidden keys and values are never read.

To add a mask: subclass `Mask` (or `Bias`), say which arrays it reads and answer the questions.
May import: tvm, tfgraph.backends.tvm.cpu.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tfgraph.backends.tvm.cpu.attention_terms import (
    Bias,
    Lanes,
    Mask,
    Offset,
    Operands,
    Parameter,
    Tile,
    all_of,
)
from tfgraph.backends.tvm.cpu.emit import truth
from tfgraph.errors import TfgraphError

Expr = Any


@dataclass(frozen=True)
class Causal(Mask):
    """Key j <= i + offset."""

    offset: Offset = 0

    @property
    def offsets(self) -> tuple[Offset, ...]:
        return (self.offset,)

    def may(self, tile: Tile, operands: Operands) -> Expr:
        return tile.first_key <= tile.last_query + operands.offset(self.offset)

    def must(self, tile: Tile, operands: Operands) -> Expr:
        return tile.last_key <= tile.first_query + operands.offset(self.offset)

    def allowed(self, pair: Lanes, operands: Operands) -> Expr:
        return pair.below(operands.offset(self.offset))


@dataclass(frozen=True)
class Window(Mask):
    """i + offset - left <= j <= i + offset + right; None leaves that side open."""

    left: int | None
    right: int | None
    offset: Offset = 0

    @property
    def offsets(self) -> tuple[Offset, ...]:
        return (self.offset,)

    def may(self, tile: Tile, operands: Operands) -> Expr:
        return self._both(
            operands,
            lambda low: tile.last_key >= tile.first_query + low,
            lambda high: tile.first_key <= tile.last_query + high,
        )

    def must(self, tile: Tile, operands: Operands) -> Expr:
        return self._both(
            operands,
            lambda low: tile.first_key >= tile.last_query + low,
            lambda high: tile.last_key <= tile.first_query + high,
        )

    def allowed(self, pair: Lanes, operands: Operands) -> Expr:
        return self._both(
            operands,
            lambda low: tirx.Not(pair.below(low - 1)),
            lambda high: pair.below(high),
        )

    def _both(self, operands: Operands, left: Any, right: Any) -> Expr:
        offset = operands.offset(self.offset)
        sides = []
        if self.left is not None:
            sides.append(left(offset - self.left))
        if self.right is not None:
            sides.append(right(offset + self.right))
        return all_of(sides)


@dataclass(frozen=True)
class Prefix(Mask):
    """Prefix language model: j < lengths[batch], or j <= i + offset."""

    offset: Offset = 0
    dtype: str = "int64"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("prefix", ("batch",), self.dtype),)

    @property
    def offsets(self) -> tuple[Offset, ...]:
        return (self.offset,)

    def may(self, tile: Tile, operands: Operands) -> Expr:
        seen = Causal(self.offset).may(tile, operands)
        return tirx.Or(tile.first_key < _length(tile, operands), seen)

    def must(self, tile: Tile, operands: Operands) -> Expr:
        seen = Causal(self.offset).must(tile, operands)
        return tirx.Or(tile.last_key < _length(tile, operands), seen)

    def allowed(self, pair: Lanes, operands: Operands) -> Expr:
        seen = Causal(self.offset).allowed(pair, operands)
        return tirx.Or(pair.spread(pair.key < _length(pair, operands)), seen)


@dataclass(frozen=True)
class Padding(Mask):
    """j < lengths[batch]."""

    dtype: str = "int64"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("lengths", ("batch",), self.dtype),)

    def may(self, tile: Tile, operands: Operands) -> Expr:
        return tile.first_key < _length(tile, operands)

    def must(self, tile: Tile, operands: Operands) -> Expr:
        return tile.last_key < _length(tile, operands)

    def allowed(self, pair: Lanes, operands: Operands) -> Expr:
        return pair.spread(pair.key < _length(pair, operands))


@dataclass(frozen=True)
class KeyList(Mask):
    """j is one of keys[batch, 0:count[batch]], ascending: what `compact_keys` makes."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("keys", ("batch", "t"), "int32"), Parameter("count", ("batch",), "int32"))

    def must(self, tile: Tile, operands: Operands) -> Expr:
        return tirx.const(True, "bool")  # the kernel walks the list: it meets no other key

    def allowed(self, pair: Lanes, operands: Operands) -> Expr:
        """Every key on the list."""
        return pair.spread(tirx.const(True, "bool"))


@dataclass(frozen=True)
class Segments(Mask):
    """query_segments[batch, i] == key_segments[batch, j]."""

    dtype: str = "int64"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (
            Parameter("query_segments", ("batch", "s"), self.dtype),
            Parameter("key_segments", ("batch", "t"), self.dtype),
        )

    def allowed(self, pair: Lanes, operands: Operands) -> Expr:
        queries, keys = operands.buffers
        segment = pair.gather(lambda i, _: queries[pair.batch, i])
        return segment == pair.spread(keys[pair.batch, pair.key])


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

    def allowed(self, pair: Lanes, operands: Operands) -> Expr:
        kept = _dense_value(self, pair, operands, lambda kept: tirx.Cast("int32", truth(kept)))
        return tirx.NE(kept, pair.spread(tirx.const(0, "int32")))


@dataclass(frozen=True)
class DenseBias(Bias):
    """bias[batch | 0, head | 0, i | 0, j]; a False field means a dimension of 1."""

    per_batch: bool = True
    per_head: bool = True
    per_query: bool = True

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("bias", _dense_shape(self), "float32"),)

    def value(self, pair: Lanes, operands: Operands) -> Expr:
        return _dense_value(self, pair, operands)


@dataclass(frozen=True)
class Alibi(Bias):
    """-slopes[head] * (i + offset - j). Press et al., arXiv 2108.12409."""

    offset: Offset = 0

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("slopes", ("heads",), "float32"),)

    @property
    def offsets(self) -> tuple[Offset, ...]:
        return (self.offset,)

    def value(self, pair: Lanes, operands: Operands) -> Expr:
        reach = tirx.Cast("int32", operands.offset(self.offset) - pair.key)
        distance = tirx.Cast(f"float32x{pair.lanes}", pair.queries + pair.spread(reach))
        slopes = operands.buffers[0]
        return distance * pair.gather_head(lambda head: 0 - slopes[head])


@dataclass(frozen=True)
class MaskPlan:
    """All `masks` must allow a pair; all `biases` are added to its score."""

    masks: tuple[Mask, ...] = ()
    biases: tuple[Bias, ...] = ()

    def __post_init__(self) -> None:
        if sum(isinstance(mask, KeyList) for mask in self.masks) > 1:
            raise TfgraphError(
                "attention: the kernel can walk one list of keys, not several",
                hint="combine the key masks first, or pass all but one as Dense",
            )

    @property
    def terms(self) -> tuple[Mask | Bias, ...]:
        """The masks, then the biases: the order of their arguments."""
        return (*self.masks, *self.biases)

    @property
    def key_list(self) -> KeyList | None:
        """The list of keys to walk, if there is one."""
        return next((mask for mask in self.masks if isinstance(mask, KeyList)), None)

    @property
    def pairwise(self) -> tuple[Mask, ...]:
        """The masks that tiles must ask; padding alone only shortens the walk."""
        ends_walk = (KeyList,) if self.key_list else (KeyList, Padding)
        return tuple(mask for mask in self.masks if not isinstance(mask, ends_walk))

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The arrays of all masks, then of all biases, each in the order given."""
        return tuple(parameter for term in self.terms for parameter in term.parameters)

    @property
    def scalars(self) -> tuple[str, ...]:
        """Names of the int64 arguments, each once, in order of first use."""
        names = [o for term in self.terms for o in term.offsets if isinstance(o, str)]
        return tuple(dict.fromkeys(names))


def _length(place: Tile | Lanes, operands: Operands) -> Expr:
    return tirx.Cast("int64", operands.buffers[0][place.batch])


def _dense_shape(term: Dense | DenseBias) -> tuple[str | int, ...]:
    return (
        "batch" if term.per_batch else 1,
        "heads" if term.per_head else 1,
        "s" if term.per_query else 1,
        "t",
    )


def _dense_value(
    term: Dense | DenseBias,
    pair: Lanes,
    operands: Operands,
    convert: Callable[[Expr], Expr] = lambda element: element,
) -> Expr:
    buffer, batch = operands.buffers[0], pair.batch if term.per_batch else 0

    def element(query: Expr | int, head: Expr) -> Expr:
        return convert(buffer[batch, head if term.per_head else 0, query, pair.key])

    if term.per_query:
        return pair.gather(element)
    if term.per_head:
        return pair.gather_head(lambda head: element(0, head))
    return pair.spread(element(0, pair.first_head))
