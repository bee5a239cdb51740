"""The inner loops of matrix products: a tile of rows x columns, accumulated in registers.

Every element adds its k products in ascending order of k by fused multiply-adds, whatever tile it
falls into: so a row of a product has the same bits in every batch and on every thread. May import:
tvm, tfgraph.backends.tvm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tfgraph.backends.tvm.cpu.emit import hold, workspace
from tfgraph.backends.tvm.cpu.vector_math import fma

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.backends.tvm.target import CpuMachine

TILES = {32: ((8, 3), (6, 4)), 16: ((4, 3), (6, 2))}
"""Tiles by the number of vector registers, as rows and vectors: 8 x 48 and 6 x 64 floats with
AVX-512, 4 x 24 and 6 x 16 with AVX2. They nearly fill the registers, beside the vectors of a right
factor and the broadcast of a left one, and are as fast as each other; so their width decides."""


@dataclass(frozen=True)
class Tile:
    """A register tile: `rows` rows by `vectors` vectors of `lanes` floats."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        """Its width."""
        return self.vectors * self.lanes

    def __str__(self) -> str:
        return f"{self.rows} x {self.columns}"


def tiles_of(machine: CpuMachine) -> list[Tile]:
    """The tiles that fit a CPU's registers."""
    return [Tile(rows, vectors, machine.lanes) for rows, vectors in TILES[machine.registers]]


def tile_for(machine: CpuMachine, n: int | str) -> Tile:
    """The tile that pads `n` columns least, the first of those; of a symbolic width the first."""
    tiles = tiles_of(machine)
    return tiles[0] if isinstance(n, str) else min(tiles, key=lambda tile: -n % tile.columns)


def accumulate(
    rows: int,
    vectors: int,
    lanes: int,
    k: Any,
    left: Callable[[int, Any], Any],
    right: Callable[[Any, int], Any],
    *,
    skip_zeros: bool = False,
    besides: Callable[[Any], None] | None = None,
) -> list[list[Any]]:
    """Emit the sum over i < k of left(r, i) * right(i, v); the sums by row and vector.

    `left` gives a scalar, `right` a vector of `lanes` floats. With `skip_zeros` the terms whose
    left factor is 0 are left out. `besides` emits what else is done at each i.
    """
    # One buffer a row, each under 1 KiB: LLVM keeps them in registers. A larger one would become
    # a heap allocation, and every sum would go through memory.
    buffers = [workspace(vectors * lanes, "sums") for _ in range(rows)]
    parts = [T.ramp(v * lanes, 1, lanes) for v in range(vectors)]
    zero = T.broadcast(T.float32(0), lanes)
    for buffer in buffers:
        for part in parts:
            T.buffer_store(buffer, zero, [part])
    with T.serial(0, T.cast(k, "int64")) as i:
        IRBuilder.name("i", i)
        if besides is not None:
            besides(i)
        for r, buffer in enumerate(buffers):
            factor = T.broadcast(left(r, i), lanes)
            for v, part in enumerate(parts):
                total = fma(factor, right(i, v), buffer[part])
                if skip_zeros:  # asked with ==, as != is false of NaN here
                    total = T.Select(factor == zero, buffer[part], total)
                T.buffer_store(buffer, total, [part])
    return [[buffer[part] for part in parts] for buffer in buffers]


def emit_row_blocks(count: Any, largest: int, emit: Callable[[int, Any], None]) -> None:
    """Cover `count` rows: emit(rows, first) for as many blocks of `largest` rows as fit, then for
    at most one block of each smaller power of 2."""
    blocks = T.floordiv(count, T.int64(largest))
    with T.serial(0, blocks) as block:
        emit(largest, IRBuilder.name("rows", block) * largest)
    rest = pin(count - blocks * largest, "rest")
    for rows in (r for r in (8, 4, 2, 1) if r < largest):
        with T.If(T.bitwise_and(rest, T.int64(rows)) != 0), T.Then():
            # The bits above have been done.
            emit(rows, count - T.bitwise_and(rest, T.int64(2 * rows - 1)))


def pin(value: Any, name: str) -> Any:
    """An int64 computed once, here. Passes inline a plain binding into every index that uses it."""
    return hold(T.cast(value, "int64"), name)


def load_masked(buffer: Any, indices: list[Any], lanes: int, count: Any) -> Any:
    """`lanes` floats from `indices` on, of which those past `count` are 0 and not read."""
    mask = T.ramp(0, 1, lanes) < T.broadcast(T.cast(count, "int32"), lanes)
    address = T.address_of(buffer[tuple(indices)])
    zero = T.broadcast(T.float32(0), lanes)
    return T.call_llvm_intrin(f"float32x{lanes}", "llvm.masked.load", address, mask, zero)


def store_masked(buffer: Any, indices: list[Any], value: Any, count: Any) -> None:
    """Store the first `count` lanes of `value` from `indices` on."""
    lanes = int(value.ty.dtype.lanes)
    mask = T.ramp(0, 1, lanes) < T.broadcast(T.cast(count, "int32"), lanes)
    address = T.address_of(buffer[tuple(indices)])
    T.evaluate(T.call_llvm_intrin("void", "llvm.masked.store", value, address, mask))
