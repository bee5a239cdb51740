"""Matrix products on tensor cores: 16-bit operands, float32 sums, one rounding at the end.

A block makes a tile of the result. It walks the depth in slices of both operands, which lie in
shared memory in a ring of `stages`: while one slice is multiplied, the next are under way. A warp
makes a part of the tile, in pieces of 16 x 8 to which one `mma` adds 16 of the depth. May import:
tvm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tfgraph.backends.tvm.cuda.kernel import (
    WARP_SIZE,
    address,
    barrier,
    both,
    call,
    f32,
    let,
    local,
    loop,
    remark,
    shared,
    store,
    when,
)

M, N, K = 16, 8, 16  # what one `mma` multiplies: 16 x 16 by 16 x 8
CHUNK = 8  # numbers that are copied at once: 16 bytes
SHORT = {"float16": "f16", "bfloat16": "bf16"}
"""Dtypes of tensor cores, and what the functions of the prelude call them."""


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
    def warps(self) -> int:
        """Warps of a block."""
        return (self.rows // self.warp_rows) * (self.columns // self.warp_columns)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.warps * WARP_SIZE

    @property
    def pitch(self) -> int:
        """From row to row of a slice: 16 bytes more than its depth, so that the eight rows that
        `ldmatrix` reads together lie in different banks."""
        return self.depth + CHUNK

    @property
    def stage(self) -> int:
        """Numbers of one slice of both operands."""
        return (self.rows + self.columns) * self.pitch


@dataclass(frozen=True)
class Operand:
    """One side of a product, rows of `depth`: the address of an element, the number of rows, and
    whether every row starts at a multiple of 16 bytes."""

    at: Callable[[Any, Any], Any]
    rows: Any
    aligned: bool


def tensor_tile(
    tile: Tile,
    left: Operand,
    right: Operand,
    write: Callable[[Any, Any, Any, Any], None],
    *,
    depth: Any,
    origin: tuple[Any, Any],
    thread: Any,
    dtype: str,
) -> None:
    """The tile at `origin` of left @ right^T. `write(row, column, first, second)` gets each pair of
    neighbouring sums of a row; what lies outside of the result it gets too."""
    work = _Work(tile, left, right, depth, origin, thread, dtype)
    steps = let("steps", tirx.ceildiv(depth, tile.depth))
    remark(f"Slices of {tile.depth} of the depth; {tile.stages - 1} are asked for ahead.")
    for step in range(tile.stages - 1):
        work.fetch(tirx.const(step, "int32"), steps)
    with loop("step", steps) as step:
        remark("Slice `step` is here, for all threads, and all are done with the one before it.")
        call(f"cp_async_wait<{tile.stages - 2}>")
        barrier()
        work.fetch(let("ahead", step + (tile.stages - 1)), steps)
        work.multiply(step)
    work.write(write)


class _Work:
    """What a thread holds, and the steps that build it up."""

    def __init__(
        self,
        tile: Tile,
        left: Operand,
        right: Operand,
        depth: Any,
        origin: tuple[Any, Any],
        thread: Any,
        dtype: str,
    ) -> None:
        self.tile, self.left, self.right = tile, left, right
        self.depth, self.dtype, self.thread = depth, dtype, thread
        self.row0, self.column0 = let("row0", origin[0]), let("column0", origin[1])
        self.slices = shared("slices", (tile.stages * tile.stage,), dtype, dynamic=True)
        across = tile.columns // tile.warp_columns
        self.lane = let("lane", tirx.truncmod(thread, WARP_SIZE))
        warp = let("warp", tirx.truncdiv(thread, WARP_SIZE))
        self.warp_row = let("warp_row", tirx.truncdiv(warp, across) * tile.warp_rows)
        self.warp_column = let("warp_column", tirx.truncmod(warp, across) * tile.warp_columns)
        self.down, self.across = tile.warp_rows // M, tile.warp_columns // N
        self.sums = local("sums", (self.down * self.across * 4,))
        self.a = local("a", (self.down * 4,), "uint32")
        self.b = local("b", (self.across * 2,), "uint32")
        with loop("i", self.down * self.across * 4, unroll=True) as i:
            store(self.sums, [i], f32(0))

    def fetch(self, step: Any, steps: Any) -> None:
        """Ask for slice `step` of both operands, unless it lies behind the last."""
        tile = self.tile
        with when(step < steps):
            place = let("place", tirx.truncmod(step, tile.stages) * tile.stage)
            depth0 = let("depth0", step * tile.depth)
            self._copy(self.left, self.row0, tile.rows, place, depth0)
            self._copy(
                self.right, self.column0, tile.columns, place + tile.rows * tile.pitch, depth0
            )
        call("cp_async_commit")

    def _copy(self, operand: Operand, first: Any, count: int, place: Any, depth0: Any) -> None:
        """`count` rows of a slice, 16 bytes a thread at a time; zeros outside of the operand."""
        tile = self.tile
        per_row = tile.depth // CHUNK
        chunks = count * per_row
        with loop("load", -(-chunks // tile.threads), unroll=True) as load:
            row = let("row", load * (tile.threads // per_row) + tirx.truncdiv(self.thread, per_row))
            d = let("d", tirx.truncmod(self.thread, per_row) * CHUNK)
            left = self.depth - (depth0 + d)
            inside = first + row < operand.rows
            if operand.aligned:
                copy, taken = "cp_async_16", tirx.Select(both(inside, left > 0), 16, 0)
            else:
                some = tirx.max(tirx.min(left, CHUNK), 0) * 2
                copy, taken = "copy_16", tirx.Select(inside, some, 0)
            to = address(self.slices, place + row * tile.pitch + d)
            if chunks % tile.threads:
                with when(row < count):
                    call(copy, to, operand.at(first + row, depth0 + d), taken.astype("int32"))
            else:
                call(copy, to, operand.at(first + row, depth0 + d), taken.astype("int32"))

    def multiply(self, step: Any) -> None:
        """Add the products of slice `step`."""
        tile = self.tile
        place = tirx.truncmod(step, tile.stages) * tile.stage
        # Lanes 0 to 7 give the rows of the first 8 x 8 matrix, and so on; see ldmatrix in ptx.cuh.
        a_row = self.warp_row + tirx.truncmod(self.lane, 16)
        a_at = let("a_at", place + a_row * tile.pitch + tirx.truncdiv(self.lane, 16) * 8)
        b_row = tile.rows + self.warp_column + tirx.truncdiv(self.lane, 16) * 8
        b_row = b_row + tirx.truncmod(self.lane, 8)
        b_d = tirx.truncmod(tirx.truncdiv(self.lane, 8), 2) * 8
        b_at = let("b_at", place + b_row * tile.pitch + b_d)
        with loop("d", tile.depth // K, unroll=True) as d:
            with loop("i", self.down, unroll=True) as i:
                at = a_at + i * (M * tile.pitch) + d * K
                call("ldmatrix_x4", address(self.a, i * 4), address(self.slices, at))
            with loop("j", self.across // 2, unroll=True) as j:
                at = b_at + j * (2 * N * tile.pitch) + d * K
                call("ldmatrix_x4", address(self.b, j * 4), address(self.slices, at))
            with loop("i", self.down, unroll=True) as i, loop("j", self.across, unroll=True) as j:
                call(
                    f"mma_{SHORT[self.dtype]}",
                    address(self.sums, (i * self.across + j) * 4),
                    address(self.a, i * 4),
                    address(self.b, j * 2),
                )

    def write(self, write: Callable[[Any, Any, Any, Any], None]) -> None:
        """Hand over the sums: a lane has two neighbours of a row, and two eight rows below."""
        with loop("i", self.down, unroll=True) as i, loop("lower", 2, unroll=True) as lower:
            row = self.row0 + self.warp_row + tirx.truncdiv(self.lane, 4)
            row = let("row", row + (i * M + lower * 8))
            with loop("j", self.across, unroll=True) as j:
                column = self.column0 + self.warp_column + tirx.truncmod(self.lane, 4) * 2
                column = let("column", column + j * N)
                at = (i * self.across + j) * 4 + lower * 2
                write(row, column, self.sums[at], self.sums[at + 1])


def write_pair(out: Any, row: Any, column: Any, values: Sequence[Any]) -> None:
    """out[row, column] and the next, of a matrix in 16 bits; what lies outside is left out."""
    m, n = out.shape
    first, second = values
    even = isinstance(n, int) or hasattr(n, "value")
    if even and int(n) % 2 == 0:
        with when(both(row < m, column < n)):
            call(f"store_pair_{SHORT[str(out.dtype)]}", address(out, row, column), first, second)
    else:
        with when(both(row < m, column < n)):
            store(out, [row, column], first.astype(out.dtype))
        with when(both(row < m, column + 1 < n)):
            store(out, [row, column + 1], second.astype(out.dtype))
