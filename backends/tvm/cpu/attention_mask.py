"""Masks and biases of the attention kernel: what a tile may skip, and what each pair may see.

A `MaskPlan` is the AND of masks plus the sum of biases. The kernel works on tiles of queries by
keys and asks each mask three questions: may any pair of this tile attend (else it is skipped), may
every pair attend (else its scores are selected one by one), and which queries may see this key.
Masks that depend on the key alone cost less still: `Padding` ends the walk over the keys early, and
`KeyList` walks a list of the allowed keys, made once for all layers by `compact_keys`, so that
hidden keys and values are never read.

To add a mask: subclass `Mask` (or `Bias`), say which arrays it reads and answer the questions. May import: tvm,
tfgraph.backends.tvm.cpu.emit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tfgraph.backends.tvm.cpu.emit import gather, i64, truth

Expr = Any
Offset = int | str
"""Position of query 0 among the keys: a number, or the name of an int64 argument of the kernel."""


@dataclass(frozen=True)
class Parameter:
    """An array argument: `shape` names `batch`, `s` (queries), `t` (keys), or gives numbers."""

    name: str
    shape: tuple[str | int, ...]
    dtype: str


@dataclass(frozen=True)
class Operands:
    """A mask's own arrays in the kernel, in the order of its `parameters`, and the scalars."""

    buffers: Sequence[Any]
    scalars: Mapping[str, Expr]

    def offset(self, offset: Offset) -> Expr:
        """The offset as an int64 expression."""
        return tirx.const(offset, "int64") if isinstance(offset, int) else self.scalars[offset]


@dataclass(frozen=True)
class Tile:
    """Queries first_query..last_query (the last one within s) by keys first_key..last_key."""

    batch: Expr
    first_query: Expr
    last_query: Expr
    first_key: Expr
    last_key: Expr


@dataclass(frozen=True)
class Lanes:
    """Queries in the lanes of a vector by one key.

    Lane l holds query first_query + l // heads of head first_head + l % heads. Lanes past the last
    query repeat it in loads.
    """

    batch: Expr
    first_head: Expr
    first_query: Expr  # int64
    last_query: Expr  # int64, s - 1
    key: Expr  # int64
    lanes: int
    heads: int

    @property
    def queries(self) -> Expr:
        """int32 query positions."""
        first = tirx.Cast("int32", self.first_query)
        if self.heads == 1:
            return tirx.Ramp(first, 1, self.lanes)
        lane = tirx.Ramp(tirx.const(0, "int32"), 1, self.lanes)
        return self.spread(first) + tirx.floordiv(lane, self.spread(tirx.const(self.heads, "int32")))

    def gather(self, element: Callable[[Expr, Expr], Expr]) -> Expr:
        """element(i, h) for each lane's query i and head h."""

        def of_lane(lane: Expr) -> Expr:
            query = self.first_query + tirx.floordiv(lane, i64(self.heads))
            head = self.first_head + tirx.floormod(lane, i64(self.heads))
            return element(tirx.Min(query, self.last_query), head)

        return gather(self.lanes, of_lane)

    def gather_head(self, element: Callable[[Expr], Expr]) -> Expr:
        """element(h) for each lane's head h."""
        if self.heads == 1:
            return self.spread(element(self.first_head))
        return self.gather(lambda _, head: element(head))

    def spread(self, scalar: Expr) -> Expr:
        """The scalar in every lane."""
        return tirx.Broadcast(scalar, self.lanes)

    def below(self, bound: Expr) -> Expr:
        """Whether each lane's key position is at most its query's position plus `bound`."""
        return self.spread(tirx.Cast("int32", self.key - bound)) <= self.queries


class Mask:
    """May query i attend to key j? Subclasses are frozen dataclasses."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The arrays it reads."""
        return ()

    @property
    def offsets(self) -> tuple[Offset, ...]:
        """The offsets it uses."""
        return ()

    def may(self, tile: Tile, operands: Operands) -> Expr:
        """False only where no pair of the tile may attend."""
        return tirx.const(True, "bool")

    def must(self, tile: Tile, operands: Operands) -> Expr:
        """True only where every pair of the tile may attend."""
        return tirx.const(False, "bool")

    def allowed(self, pair: Lanes, operands: Operands) -> Expr:
        """bool, one a lane."""
        raise NotImplementedError


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


class Bias:
    """A float32 number added to the scaled score of query i and key j."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The arrays it reads."""
        return ()

    @property
    def offsets(self) -> tuple[Offset, ...]:
        """The offsets it uses."""
        return ()

    def value(self, pair: Lanes, operands: Operands) -> Expr:
        """float32, one a lane."""
        raise NotImplementedError


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


def all_of(conditions: Sequence[Expr]) -> Expr:
    """The AND of bool expressions; True if there is none."""
    result = conditions[0] if conditions else tirx.const(True, "bool")
    for condition in conditions[1:]:
        result = tirx.And(result, condition)
    return result


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
