"""Fetching weights into the second-level cache before they are multiplied.

A CPU fetches ahead by itself along a page at most, and so a product would wait for each panel of a
weight anew, then multiply it many times without reading memory at all. May import: tvm, gemm_tile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tfgraph.backends.tvm.cpu.gemm_tile import pin

if TYPE_CHECKING:
    from tfgraph.backends.tvm.cpu.gemm_tile import Tile

LINE = 16
"""Floats in a cache line."""

_FRACTION = 16
"""Bits behind the point of a number of lines."""


class Part(NamedTuple):
    """What one task computes: `count` rows from `first` on of one panel, of the products of `begin`
    to `end` among k."""

    panel: Any
    first: Any
    count: Any
    begin: Any
    end: Any


class Fetch:
    """What one task fetches while it multiplies: rows of its panel, `ahead` of those that it
    multiplies, and its share of the next panel, in even steps. It is the task `turn` of those that
    have a panel `together`."""

    def __init__(
        self, tile: Tile, w: Any, part: Part, ahead: int, turn: Any, together: Any
    ) -> None:
        self._w, self._panel, self._begin, self._ahead = w, part.panel, part.begin, ahead
        self._columns = range(0, tile.columns, LINE)
        lines = len(self._columns) << _FRACTION
        walks = together * T.max(T.int64(1), T.floordiv(part.count, T.int64(tile.rows)))
        self._step = pin(T.floordiv(T.int64(lines), walks), "step")
        self._place = IRBuilder.name("place", T.alloc_buffer((1,), "int64"))
        share = T.floordiv(turn * (part.end - part.begin) * lines, together)
        T.buffer_store(self._place, share, [0])

    def emit(self, row: Any) -> None:
        """Fetch what belongs to this row of the panel."""
        T.buffer_store(self._place, self._place[0] + self._step, [0])
        line = T.shift_right(self._place[0], T.int64(_FRACTION))
        prefetch(self._w[self._panel + 1, self._begin, line * LINE])
        for column in self._columns if self._ahead else ():
            prefetch(self._w[self._panel, row + self._ahead, column])


def prefetch(element: Any) -> None:
    """Start to bring a cache line into the second-level cache: a hint, also past an array's end."""
    read, second_level, data = T.int32(0), T.int32(2), T.int32(1)
    how = read, second_level, data
    T.evaluate(T.call_llvm_intrin("void", "llvm.prefetch.p0", T.address_of(element), *how))
