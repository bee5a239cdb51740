"""The operands of a matrix product on their way through shared memory.

A block walks the depth of a product in slices. They lie in a ring with room for several, so that
the next are copied while one is multiplied. May import: tvm.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.runtime import DataType

from tfgraph.backends.tvm.cuda.kernel import (
    WARP_SIZE,
    address,
    both,
    call,
    let,
    loop,
    shared,
    when,
)

COPY_BYTES = 16
"""What a thread copies at once."""


def chunk_of(dtype: str) -> int:
    """How many numbers a thread copies at once."""
    return COPY_BYTES // int(DataType(dtype).itemsize)


def copy_chunk(to: Any, source: Any, inside: Any, left: Any, dtype: str, *, aligned: bool) -> None:
    """Ask for 16 bytes: of the run at `source` `left` numbers are left, and none unless `inside`.
    What is missing is zeros. `aligned`: runs start and end at multiples of 16 bytes; else each
    number is copied by itself, at once."""
    chunk = chunk_of(dtype)
    if aligned:
        taken = tirx.Select(both(inside, left > 0), COPY_BYTES, 0)
        call("cp_async_16", to, source, taken)
        return
    size = COPY_BYTES // chunk
    some = tirx.max(tirx.min(left, chunk), 0).astype("int32") * size
    call(f"copy_16_{8 * size}", to, source, tirx.Select(inside, some, 0))


@dataclass(frozen=True)
class Tile:
    """How a block shares its work: `rows` x `columns` of the result, `warp_rows` x `warp_columns`
    of them a warp, `depth` of the operands a slice, `stages` slices in shared memory."""

    rows: int
    columns: int
    depth: int
    warp_rows: int
    warp_columns: int
    stages: int = 3

    @property
    def threads(self) -> int:
        """Threads of a block."""
        warps = (self.rows // self.warp_rows) * (self.columns // self.warp_columns)
        return warps * WARP_SIZE


@dataclass(frozen=True)
class Operand:
    """One side of a product: `at(row, d)` is the address of an element.

    `rows` is the number of rows. `aligned`: each run of neighbours starts at a multiple of 16
    bytes. Neighbours in memory are those of the depth, or of the rows if `by_depth`.
    """

    at: Callable[[Any, Any], Any]
    rows: Any
    aligned: bool
    by_depth: bool = False


class Slices:
    """The ring of a block, for both operands of a product."""

    def __init__(
        self, tile: Tile, operands: tuple[Operand, Operand], depth: Any, thread: Any, dtype: str
    ) -> None:
        self._tile, self._operands, self._depth, self._thread = tile, operands, depth, thread
        self.chunk, self._dtype = chunk_of(dtype), dtype
        self.pitches = [
            self._pitch(operand, count)
            for operand, count in zip(operands, (tile.rows, tile.columns), strict=True)
        ]
        sizes = [
            pitch * (tile.depth if operand.by_depth else count)
            for operand, count, pitch in zip(
                operands, (tile.rows, tile.columns), self.pitches, strict=True
            )
        ]
        self._right, self._stage = sizes[0], sum(sizes)
        self.data = shared("slices", (tile.stages * self._stage,), dtype, dynamic=True)

    def _pitch(self, operand: Operand, count: int) -> int:
        """From one run of a slice to the next: 16 bytes more than a run, so that eight runs, read
        together at the same place, lie in different banks."""
        return (count if operand.by_depth else self._tile.depth) + self.chunk

    def place(self, step: Any) -> tuple[Any, Any]:
        """Where both operands of slice `step` start."""
        start = let("start", tirx.truncmod(step, self._tile.stages) * self._stage)
        return start, start + self._right

    def fetch(self, step: Any, steps: Any, firsts: tuple[Any, Any]) -> None:
        """Ask for slice `step` of the rows that begin at these, unless it lies behind the last."""
        with when(step < steps):
            depth0 = let("depth0", step * self._tile.depth)
            counts = self._tile.rows, self._tile.columns
            for operand, first, count, place, pitch in zip(
                self._operands, firsts, counts, self.place(step), self.pitches, strict=True
            ):
                self._copy(operand, first, count, place, pitch, depth0)
        call("cp_async_commit")

    def _copy(
        self, operand: Operand, first: Any, count: int, place: Any, pitch: int, depth0: Any
    ) -> None:
        """One operand's part of a slice, a chunk a thread at a time; zeros outside of it."""
        tile, chunk, threads = self._tile, self.chunk, self._tile.threads
        runs, length = (tile.depth, count) if operand.by_depth else (count, tile.depth)
        per_run = length // chunk
        copies = runs * per_run
        with loop("load", -(-copies // threads), unroll=True) as load:
            run = let("run", load * (threads // per_run) + tirx.truncdiv(self._thread, per_run))
            along = let("along", tirx.truncmod(self._thread, per_run) * chunk)
            r, d = (along, run) if operand.by_depth else (run, along)
            row, d = first + r, depth0 + d
            inside, left = row < operand.rows, self._depth - d
            if operand.by_depth:
                inside, left = d < self._depth, operand.rows - row
            to = address(self.data, place + run * pitch + along)
            with ExitStack() as stack:
                if copies % threads:
                    stack.enter_context(when(run < runs))
                source = operand.at(row, d)
                copy_chunk(to, source, inside, left, self._dtype, aligned=operand.aligned)
