"""What the attention kernel asks of a mask or bias, and what it tells it: the base classes.

May import: tvm, tfgraph.backends.tvm.cpu.emit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tfgraph.backends.tvm.cpu.emit import gather, i64

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
        return self.spread(first) + tirx.floordiv(
            lane, self.spread(tirx.const(self.heads, "int32"))
        )

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


class Mask(ABC):
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

    @abstractmethod
    def allowed(self, pair: Lanes, operands: Operands) -> Expr:
        """bool, one a lane."""


class Bias(ABC):
    """A float32 number added to the scaled score of query i and key j."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The arrays it reads."""
        return ()

    @property
    def offsets(self) -> tuple[Offset, ...]:
        """The offsets it uses."""
        return ()

    @abstractmethod
    def value(self, pair: Lanes, operands: Operands) -> Expr:
        """float32, one a lane."""


def all_of(conditions: Sequence[Expr]) -> Expr:
    """The AND of bool expressions; True if there is none."""
    result = conditions[0] if conditions else tirx.const(True, "bool")
    for condition in conditions[1:]:
        result = tirx.And(result, condition)
    return result
