"""How the CPU's attention kernel writes masks and biases: for a vector of queries by one key.

Masks that depend on the key alone cost less: a `Padding` ends the walk over the keys early, and a
`KeyList` is itself what is walked: a list of the allowed keys, made once for all layers by
`compact_keys`, so that hidden keys and values are never read.
May import: tvm, attention_mask, attention_plan, tfgraph.backends.tvm.cpu.emit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tfgraph.backends.tvm.attention_mask import (
    Alibi,
    Bias,
    ByDistance,
    Dense,
    DenseBias,
    Mask,
    Operands,
    Padding,
    Parameter,
    Positional,
    Segments,
    Tile,
    nonzero,
)
from tfgraph.backends.tvm.attention_plan import BoundPlan, MaskPlan
from tfgraph.backends.tvm.cpu.emit import argument, gather, hold, i64, loop, scalar_argument
from tfgraph.errors import TfgraphError

Expr = Any


@dataclass(frozen=True)
class Lanes:
    """Queries of one head in the lanes of a vector, `first_query` and those behind it, by one key.
    Lanes past the last query repeat it in loads."""

    batch: Expr
    head: Expr
    first_query: Expr  # int64
    last_query: Expr  # int64, s - 1
    key: Expr  # int64
    lanes: int

    @property
    def queries(self) -> Expr:
        """int32 query positions."""
        return tirx.Ramp(tirx.Cast("int32", self.first_query), 1, self.lanes)

    def gather(self, element: Callable[[Expr], Expr]) -> Expr:
        """element(i) for each lane's query i."""
        return gather(
            self.lanes,
            lambda lane: element(tirx.Min(self.first_query + lane, self.last_query)),
        )

    def spread(self, scalar: Expr) -> Expr:
        """The scalar in every lane."""
        return tirx.Broadcast(scalar, self.lanes)

    def below(self, bound: Expr) -> Expr:
        """Whether each lane's key position is at most its query's position plus `bound`."""
        first = tirx.Max(self.key - bound, i64(-(2**31)))  # a bound may be as far as it likes
        return self.spread(tirx.Cast("int32", tirx.Min(first, i64(2**31 - 1)))) <= self.queries


@dataclass(frozen=True)
class KeyList(Mask):
    """j is one of keys[batch, 0:count[batch]], ascending: what `compact_keys` makes.

    The kernel walks the list, and so meets no other key.
    """

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (
            Parameter("keys", ("batch", "keys"), "int32"),
            Parameter("count", ("batch",), "int32"),
        )


@singledispatch
def allowed(mask: Mask, pair: Lanes, operands: Operands) -> Expr:
    """Whether each lane's query may attend to the key; bool, one a lane."""
    raise TfgraphError(f"the CPU attention kernel does not know the mask {mask}")


@allowed.register
def _positional(mask: Positional, pair: Lanes, operands: Operands) -> Expr:
    return mask.holds(
        pair.batch,
        operands,
        before=lambda length: pair.spread(pair.key < length),
        since=lambda low: tirx.Not(pair.below(low - 1)),
        until=pair.below,
    )


@allowed.register
def _segments(mask: Segments, pair: Lanes, operands: Operands) -> Expr:
    queries, keys = operands.buffers
    segment = pair.gather(lambda i: queries[pair.batch, i].astype("int64"))
    return segment == pair.spread(keys[pair.batch, pair.key].astype("int64"))


@allowed.register
def _dense(mask: Dense, pair: Lanes, operands: Operands) -> Expr:
    kept = _element(mask, pair, operands, lambda kept: tirx.Cast("int32", nonzero(kept)))
    return tirx.NE(kept, pair.spread(tirx.const(0, "int32")))


@singledispatch
def value(bias: Bias, pair: Lanes, operands: Operands) -> Expr:
    """What is added to the score of each lane's query and the key; float32, one a lane."""
    raise TfgraphError(f"the CPU attention kernel does not know the bias {bias}")


@value.register
def _dense_bias(bias: DenseBias, pair: Lanes, operands: Operands) -> Expr:
    return _element(bias, pair, operands, lambda element: element)


@value.register
def _alibi(bias: Alibi, pair: Lanes, operands: Operands) -> Expr:
    reach = tirx.Cast("int32", operands.offset(bias.offset) - pair.key)
    distance = tirx.Cast(f"float32x{pair.lanes}", pair.queries + pair.spread(reach))
    return distance * pair.spread(0 - operands.buffers[0][pair.head])


@value.register
def _by_distance(bias: ByDistance, pair: Lanes, operands: Operands) -> Expr:
    buffer, last = operands.buffers[0], pair.key + (operands.queries - 1)
    return pair.gather(lambda query: buffer[pair.head, last - query])


class Masks(BoundPlan):
    """A plan whose arguments are declared in a kernel: how it walks the keys, and what they see."""

    def __init__(self, plan: MaskPlan, sizes: Mapping[str, Any]) -> None:
        """Declare the arguments; `sizes` has batch, heads, queries and keys.

        Raises TfgraphError for two lists of keys.
        """
        super().__init__(plan, sizes, argument, scalar_argument)
        self._keys = sizes["keys"]
        lists = [operands for mask, operands in self.masks if isinstance(mask, KeyList)]
        if len(lists) > 1:
            raise TfgraphError(
                "attention: the kernel can walk one list of keys, not several",
                hint="combine the key masks first, or pass all but one as Dense",
            )
        self._list = lists[0] if lists else None
        # Padding ends a walk over all keys, and then has no more to say; so has a list.
        ends_walk = (KeyList,) if lists else (KeyList, Padding)
        self.by_pair = [(m, own) for m, own in self.masks if not isinstance(m, ends_walk)]

    def walk_length(self, batch: Expr) -> Expr:
        """How many keys to walk: the list's, or those before the padding, or all."""
        if self._list:
            return self._list.buffers[1][batch].astype("int64")
        length: Expr = self._keys
        for mask, own in self.masks:
            if isinstance(mask, Padding):
                length = tirx.max(tirx.min(length, mask.length(batch, own)), i64(0))
        return length

    def key(self, batch: Expr, position: Expr) -> Expr:
        """The key at this position of the walk."""
        return self._list.buffers[0][batch, position].astype("int64") if self._list else position

    def ask(self, tile: Tile) -> tuple[Expr, Expr]:
        """(may, must): false only where no pair of the tile may attend, true only where all may."""
        asked = [
            _ask_segments(tile, own)
            if isinstance(mask, Segments)
            else (mask.may(tile, own), mask.must(tile, own))
            for mask, own in self.by_pair
        ]
        return tirx.all(*(may for may, _ in asked)), tirx.all(*(must for _, must in asked))

    def allowed(self, pair: Lanes) -> Expr:
        """Whether each lane's query may attend to the key."""
        return tirx.all(*(allowed(mask, pair, own) for mask, own in self.by_pair))

    def values(self, pair: Lanes) -> Iterator[Expr]:
        """What each bias adds to the scores."""
        return (value(bias, pair, own) for bias, own in self.biases)


def _ask_segments(tile: Tile, operands: Operands) -> tuple[Expr, Expr]:
    """No pair where the ranges of the segment ids are apart, all pairs where they are one id."""
    queries, keys = operands.buffers
    q_low, q_high = _range(queries, tile.batch, tile.first_query, tile.last_query)
    k_low, k_high = _range(keys, tile.batch, tile.first_key, tile.last_key)
    may = tirx.all(q_low <= k_high, k_low <= q_high)
    return may, tirx.all(q_low == q_high, k_low == k_high, q_low == k_low)


def _range(ids: Any, batch: Expr, first: Expr, last: Expr) -> tuple[Expr, Expr]:
    """The lowest and the highest of ids[batch, first .. last], as int64."""
    low, high = (T.alloc_buffer((1,), "int64") for _ in range(2))
    for bound in (low, high):
        T.buffer_store(bound, ids[batch, first].astype("int64"), [0])
    with loop(last - first) as i:
        value = hold(ids[batch, first + i + 1].astype("int64"))
        T.buffer_store(low, tirx.min(low[0], value), [0])
        T.buffer_store(high, tirx.max(high[0], value), [0])
    return low[0], high[0]


def _element(
    term: Dense | DenseBias, pair: Lanes, operands: Operands, convert: Callable[[Expr], Expr]
) -> Expr:
    """convert(the array's element) for each lane; loaded once where all lanes share it."""

    def element(query: Expr | int) -> Expr:
        return convert(operands.buffers[0][term.index(pair.batch, pair.head, query, pair.key)])

    return pair.gather(element) if term.per_query else pair.spread(element(0))
