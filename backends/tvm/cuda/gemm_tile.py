"""A tile of a matrix product: the walk over the depth, and three ways to multiply.

On tensor cores a warp makes pieces of 16 x 8, to each of which one `mma` adds: 16-bit operands as
they are, float32 rounded to tf32 on request. On plain cores each thread has 8 x 8 of the result.
Sums are float32 in all of them. May import: tvm.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
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
    load,
    local,
    loop,
    pick,
    remark,
    store,
    when,
)
from tfgraph.backends.tvm.cuda.slices import Operand, Slices, Tile

SHORT = {"float16": "f16", "bfloat16": "bf16", "float32": "f32"}
"""Dtypes, and what the functions of the prelude call them."""
Write = Callable[[Any, Any, Sequence[Any]], None]


def gemm_tile(
    tile: Tile,
    left: Operand,
    right: Operand,
    write: Write,
    *,
    depth: Any,
    origin: tuple[Any, Any],
    thread: Any,
    dtype: str,
    tf32: bool = False,
    skip_zeros: bool = False,
) -> None:
    """The tile at `origin` of left @ right^T, both in `dtype`. `write(row, column, sums)` gets each
    sum, or two of neighbouring columns; those outside of the result too. With `skip_zeros` terms
    where left is 0 are left out, even where right is NaN or infinite; plain cores do that."""
    firsts = let("row0", origin[0]), let("column0", origin[1])
    slices = Slices(tile, (left, right), depth, thread, dtype)
    sums: Sums
    if skip_zeros or (dtype == "float32" and not tf32):
        sums = PlainSums(tile, slices, thread, dtype, right.by_depth, skip_zeros)
    else:
        sums = TensorSums(tile, slices, thread, dtype, right.by_depth)
    steps = let("steps", tirx.ceildiv(depth, tile.depth))
    remark(f"Slices of {tile.depth} of the depth; {tile.stages - 1} are asked for ahead.")
    for step in range(tile.stages - 1):
        slices.fetch(tirx.const(step, str(steps.ty.dtype)), steps, firsts)
    with loop("step", steps, unroll=False) as step:
        remark("Slice `step` is here, for all threads, and all are done with the one before it.")
        call(f"cp_async_wait<{tile.stages - 2}>")
        barrier()
        slices.fetch(let("ahead", step + (tile.stages - 1)), steps, firsts)
        sums.add(step)
    sums.write(firsts, write)


def write_sums(
    out: Any,
    where: Sequence[Any],
    sums: Sequence[Any],
    epilogue: Callable[[Any, Any, Any], Any] = lambda value, row, column: value,
) -> None:
    """out[*where] and, of two sums, the next of its row; what lies outside is left out.
    `epilogue(sum, row, column)` makes the results."""
    *_, m, n = out.shape
    *entry, row, column = where
    if len(sums) == 2 and isinstance(n, tirx.IntImm) and int(n) % 2 == 0:
        with when(both(row < m, column < n)):
            values = [epilogue(value, row, column + i) for i, value in enumerate(sums)]
            call(f"store_pair_{SHORT[str(out.dtype)]}", address(out, *where), *values)
        return
    for i, value in enumerate(sums):
        with when(both(row < m, column + i < n)):
            store(out, [*entry, row, column + i], epilogue(value, row, column + i))


class Sums(ABC):
    """What the threads of a block hold of a tile."""

    def __init__(self, tile: Tile, slices: Slices, thread: Any, dtype: str, by_depth: bool) -> None:
        self.tile, self.slices, self.dtype, self.by_depth = tile, slices, dtype, by_depth
        across = tile.columns // tile.warp_columns
        self.lane = let("lane", tirx.truncmod(thread, WARP_SIZE))
        warp = let("warp", tirx.truncdiv(thread, WARP_SIZE))
        self.warp_row = let("warp_row", tirx.truncdiv(warp, across) * tile.warp_rows)
        self.warp_column = let("warp_column", tirx.truncmod(warp, across) * tile.warp_columns)

    @abstractmethod
    def add(self, step: Any) -> None:
        """Add the products of slice `step`."""

    @abstractmethod
    def write(self, firsts: tuple[Any, Any], write: Write) -> None:
        """Hand over the sums."""


class TensorSums(Sums):
    """Sums on tensor cores; the layouts of fragments are those of `mma` in the PTX ISA."""

    ROWS, COLUMNS = 16, 8  # of a piece

    def __init__(self, tile: Tile, slices: Slices, thread: Any, dtype: str, by_depth: bool) -> None:
        super().__init__(tile, slices, thread, dtype, by_depth)
        self.depth = 2 * slices.chunk  # of one mma: 16, or 8 of tf32
        self.down = tile.warp_rows // self.ROWS
        self.across = tile.warp_columns // self.COLUMNS
        self.sums = local("sums", (self.down * self.across * 4,))
        self.a = local("a", (self.down * 4,), "uint32")
        self.b = local("b", (self.across * 2,), "uint32")
        with loop("i", self.down * self.across * 4, unroll=True) as i:
            store(self.sums, [i], f32(0))

    def add(self, step: Any) -> None:
        """A lane names a row of one of the four matrices that `ldmatrix` reads: of the left side
        rows 0 to 15 of the first half of the depth, then of the second; of the right side 8 columns
        and both halves, then the next 8."""
        left, right = self.slices.place(step)
        data, chunk, (pitch, right_pitch) = self.slices.data, self.slices.chunk, self.slices.pitches
        low, high = tirx.truncmod(self.lane, 16), tirx.truncdiv(self.lane, 16)
        a_at = let("a_at", left + (self.warp_row + low) * pitch + high * chunk)
        if self.by_depth:
            b_at = let("b_at", right + low * right_pitch + self.warp_column + high * chunk)
        else:
            eight = tirx.truncmod(self.lane, 8)
            column = self.warp_column + high * self.COLUMNS + eight
            b_at = right + column * right_pitch + tirx.truncdiv(low, 8) * chunk
            b_at = let("b_at", b_at)
        with loop("d", self.tile.depth // self.depth, unroll=True) as d:
            with loop("i", self.down, unroll=True) as i:
                at = a_at + i * (self.ROWS * pitch) + d * self.depth
                call("ldmatrix_x4", address(self.a, i * 4), address(data, at))
            if self.dtype == "float32" and self.by_depth:
                self._load_by_depth(right, d)
            else:
                with loop("j", self.across // 2, unroll=True) as j:
                    if self.by_depth:
                        at = b_at + d * (self.depth * right_pitch) + j * (2 * self.COLUMNS)
                    else:
                        at = b_at + j * (2 * self.COLUMNS * right_pitch) + d * self.depth
                    read = "ldmatrix_x4_trans" if self.by_depth else "ldmatrix_x4"
                    call(read, address(self.b, j * 4), address(data, at))
            if self.dtype == "float32":
                for fragment, count in ((self.a, self.down * 4), (self.b, self.across * 2)):
                    with loop("i", count, unroll=True) as i:
                        call("round_to_tf32", address(fragment, i))
            name = "mma_tf32" if self.dtype == "float32" else f"mma_{SHORT[self.dtype]}"
            with loop("i", self.down, unroll=True) as i, loop("j", self.across, unroll=True) as j:
                call(
                    name,
                    address(self.sums, (i * self.across + j) * 4),
                    address(self.a, i * 4),
                    address(self.b, j * 2),
                )

    def _load_by_depth(self, right: Any, d: Any) -> None:
        """The right side's fragments of float32, which `ldmatrix` does not transpose."""
        pitch = self.slices.pitches[1]
        row, column = tirx.truncmod(self.lane, 4), tirx.truncdiv(self.lane, 4)
        with loop("j", self.across, unroll=True) as j, loop("half", 2, unroll=True) as half:
            at = right + (d * self.depth + half * 4 + row) * pitch
            at = at + self.warp_column + j * self.COLUMNS + column
            value = tirx.reinterpret("uint32", self.slices.data[at])
            store(self.b, [j * 2 + half], value)

    def write(self, firsts: tuple[Any, Any], write: Write) -> None:
        """A lane has two neighbours of a row, and two eight rows below."""
        with loop("i", self.down, unroll=True) as i, loop("lower", 2, unroll=True) as lower:
            row = firsts[0] + self.warp_row + tirx.truncdiv(self.lane, 4)
            row = let("row", row + (i * self.ROWS + lower * 8))
            with loop("j", self.across, unroll=True) as j:
                column = firsts[1] + self.warp_column + tirx.truncmod(self.lane, 4) * 2
                column = let("column", column + j * self.COLUMNS)
                at = (i * self.across + j) * 4 + lower * 2
                write(row, column, (self.sums[at], self.sums[at + 1]))


class PlainSums(Sums):
    """Sums on plain cores: lanes stand 4 x 8, each takes every 4th row and every 8th column."""

    DOWN, ACROSS = 4, 8

    def __init__(
        self,
        tile: Tile,
        slices: Slices,
        thread: Any,
        dtype: str,
        by_depth: bool,
        skip_zeros: bool,
    ) -> None:
        super().__init__(tile, slices, thread, dtype, by_depth)
        self.skip_zeros = skip_zeros
        self.down, self.across = tile.warp_rows // self.DOWN, tile.warp_columns // self.ACROSS
        self.row = let("row_of_lane", self.warp_row + tirx.truncdiv(self.lane, self.ACROSS))
        self.column = let(
            "column_of_lane", self.warp_column + tirx.truncmod(self.lane, self.ACROSS)
        )
        self.sums = local("sums", (self.down, self.across))
        self.a = local("a", (self.down * slices.chunk,))
        self.b = local("b", (self.across * slices.chunk,))
        with loop("i", self.down, unroll=True) as i, loop("j", self.across, unroll=True) as j:
            store(self.sums, [i, j], f32(0))

    def add(self, step: Any) -> None:
        """Sixteen bytes of the depth at a time, from registers."""
        left, right = self.slices.place(step)
        data, chunk, (pitch, right_pitch) = self.slices.data, self.slices.chunk, self.slices.pitches
        load_16 = f"load_16_{SHORT[self.dtype]}"
        with loop("d", self.tile.depth // chunk, unroll=True) as d:
            with loop("i", self.down, unroll=True) as i:
                at = left + (self.row + i * self.DOWN) * pitch + d * chunk
                call(load_16, address(self.a, i * chunk), address(data, at))
            with loop("j", self.across, unroll=True) as j:
                if self.by_depth:
                    with loop("e", chunk, unroll=True) as e:
                        at = right + (d * chunk + e) * right_pitch + self.column + j * self.ACROSS
                        store(self.b, [j * chunk + e], load(data, at))
                else:
                    at = right + (self.column + j * self.ACROSS) * right_pitch + d * chunk
                    call(load_16, address(self.b, j * chunk), address(data, at))
            with (
                loop("e", chunk, unroll=True) as e,
                loop("i", self.down, unroll=True) as i,
                loop("j", self.across, unroll=True) as j,
            ):
                weight = self.a[i * chunk + e]
                total = self.sums[i, j] + weight * self.b[j * chunk + e]
                if self.skip_zeros:
                    total = pick(weight == f32(0), self.sums[i, j], total)
                store(self.sums, [i, j], total)

    def write(self, firsts: tuple[Any, Any], write: Write) -> None:
        """Eight lanes have neighbours of a row."""
        with loop("i", self.down, unroll=True) as i:
            row = let("row", firsts[0] + self.row + i * self.DOWN)
            with loop("j", self.across, unroll=True) as j:
                column = let("column", firsts[1] + self.column + j * self.ACROSS)
                write(row, column, (self.sums[i, j],))
