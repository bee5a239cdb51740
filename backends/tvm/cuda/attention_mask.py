"""How the CUDA attention kernel writes masks and biases: for one query and one key.

Tiles of keys that no row may see are never read. Masks that depend on the key alone (`key_only`)
are asked once a key, and hidden keys and values are never read.
May import: tvm, attention_mask, attention_plan, kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import singledispatch
from itertools import count
from typing import Any, ClassVar

from tvm import tirx

from tfgraph.backends.tvm.attention_mask import (
    Alibi,
    Bias,
    ByDistance,
    Dense,
    DenseBias,
    Mask,
    Operands,
    Parameter,
    Positional,
    Rows,
    Segments,
    Tile,
    nonzero,
)
from tfgraph.backends.tvm.attention_plan import BoundPlan, MaskPlan
from tfgraph.backends.tvm.cuda.kernel import Kernel, both, f32, guarded, load
from tfgraph.backends.tvm.narrow import widened
from tfgraph.errors import TfgraphError

Expr = Any


@dataclass(frozen=True)
class Pair:
    """One query and one key; `inside` says whether both exist."""

    batch: Expr
    head: Expr
    query: Expr
    key: Expr
    inside: Expr


@dataclass(frozen=True)
class KeyMask(Mask):
    """keep[batch, j] is nonzero."""

    key_only: ClassVar[bool] = True
    dtype: str = "int64"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("keep", ("batch", "keys"), self.dtype),)


@singledispatch
def allowed(mask: Mask, pair: Pair, operands: Operands) -> Expr:
    """Whether the pair may attend; for `key_only` masks pair.query and pair.head are None."""
    raise TfgraphError(f"the CUDA attention kernel does not know the mask {mask}")


@allowed.register
def _positional(mask: Positional, pair: Pair, operands: Operands) -> Expr:
    return mask.holds(
        pair.batch,
        operands,
        before=lambda length: pair.key < length,
        since=lambda low: pair.key >= pair.query + low,
        until=lambda high: pair.key <= pair.query + high,
    )


@allowed.register
def _key_mask(mask: KeyMask, pair: Pair, operands: Operands) -> Expr:
    return _if_inside(pair, nonzero(operands.buffers[0][pair.batch, pair.key]))


@allowed.register
def _segments(mask: Segments, pair: Pair, operands: Operands) -> Expr:
    queries, keys = operands.buffers
    query, key = queries[pair.batch, pair.query], keys[pair.batch, pair.key]
    return _if_inside(pair, tirx.EQ(query.astype("int64"), key.astype("int64")))


@allowed.register
def _dense(mask: Dense, pair: Pair, operands: Operands) -> Expr:
    return _if_inside(pair, nonzero(_element(mask, pair, operands)))


@singledispatch
def value(bias: Bias, pair: Pair, operands: Operands) -> Expr:
    """What is added to the score of the pair; anything where it is not inside."""
    raise TfgraphError(f"the CUDA attention kernel does not know the bias {bias}")


@value.register
def _dense_bias(bias: DenseBias, pair: Pair, operands: Operands) -> Expr:
    return guarded(pair.inside, widened(_element(bias, pair, operands)), f32(0))


@value.register
def _alibi(bias: Alibi, pair: Pair, operands: Operands) -> Expr:
    distance = pair.key - pair.query - operands.offset(bias.offset)
    return load(operands.buffers[0], pair.head) * distance.astype("float32")


@value.register
def _by_distance(bias: ByDistance, pair: Pair, operands: Operands) -> Expr:
    place = pair.key - pair.query + (operands.queries - 1)
    return guarded(pair.inside, operands.buffers[0][pair.head, place], f32(0))


class Masks(BoundPlan):
    """A plan whose arguments are declared in a kernel: the answers of all its terms together."""

    def __init__(self, kernel: Kernel, plan: MaskPlan, sizes: Mapping[str, Any]) -> None:
        """Declare the arguments; `sizes` has batch, heads, queries and keys."""
        numbers = count()

        def array(name: str, shape: Any, dtype: str) -> Any:
            return kernel.buffer(f"{name}{next(numbers)}", shape, dtype)

        super().__init__(plan, sizes, array, kernel.scalar)
        self._keys = sizes["keys"]
        self._by_key = [(mask, own) for mask, own in self.masks if mask.key_only]
        self._by_pair = [(mask, own) for mask, own in self.masks if not mask.key_only]

    @property
    def selects_pairs(self) -> bool:
        """Whether any mask may hide a key from one query and show it to another."""
        return bool(self._by_pair)

    @property
    def reads_pairs(self) -> bool:
        """Whether `pair_allowed` or `biased` look at the pair."""
        return bool(self._by_pair or self.biases)

    @property
    def reads_keys(self) -> bool:
        """Whether `key_allowed` says more than `key_range`."""
        return any(not isinstance(mask, Positional) for mask, _ in self._by_key)

    def key_range(self, rows: Rows) -> tuple[Expr, Expr]:
        """No row sees a key outside first .. end - 1; end may be less than first."""
        first: Expr = tirx.const(0, "int64")
        end: Expr = self._keys
        for mask, own in self.masks:
            low, high = mask.first_key(rows, own), mask.end_key(rows, own)
            first = first if low is None else tirx.max(first, low)
            end = end if high is None else tirx.min(end, high)
        return first, end

    def key_allowed(self, pair: Pair) -> Expr:
        """Whether the key-only masks allow the key."""
        return both(pair.inside, *(allowed(mask, pair, own) for mask, own in self._by_key))

    def may(self, tile: Tile) -> list[Expr]:
        """Conditions that all hold unless the other masks hide every pair."""
        return [mask.may(tile, own) for mask, own in self._by_pair]

    def must(self, tile: Tile) -> Expr:
        """True only where the other masks allow every pair; for plans that select pairs."""
        return both(*(mask.must(tile, own) for mask, own in self._by_pair))

    def pair_allowed(self, pair: Pair) -> list[Expr]:
        """The conditions that the other masks put on the pair."""
        return [allowed(mask, pair, own) for mask, own in self._by_pair]

    def biased(self, score: Expr, pair: Pair) -> Expr:
        """The score with all biases added."""
        for bias, own in self.biases:
            score = score + value(bias, pair, own)
        return score


def _if_inside(pair: Pair, condition: Expr) -> Expr:
    """The condition, whose memory is read only where the pair is inside; else false."""
    return guarded(pair.inside, condition, tirx.const(False, "bool"))


def _element(term: Dense | DenseBias, pair: Pair, operands: Operands) -> Expr:
    return operands.buffers[0][term.index(pair.batch, pair.head, pair.query, pair.key)]
