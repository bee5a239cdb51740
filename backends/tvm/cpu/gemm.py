"""Linear layers in float32: out = activation(x @ w + bias) * gate, with w packed in panels.

The GEMM runs in parallel over weight panels and chunks of rows, one group of chunks after another.
One block of k of one panel stays in the first-level cache while a chunk of rows streams past it,
and the panel after it is fetched meanwhile. The epilogue runs over the rows just stored, while they
are in the first-level cache, so that its code exists once.
May import: numpy, tvm, tfgraph.backends.tvm.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tfgraph.backends.tvm.cpu.activations import activation as apply_activation
from tfgraph.backends.tvm.cpu.fetch import Fetch, Part
from tfgraph.backends.tvm.cpu.gemm_tile import (
    Tile,
    accumulate,
    emit_row_blocks,
    load_masked,
    pin,
    store_masked,
)
from tfgraph.backends.tvm.cpu.schedule import SCHEDULE

if TYPE_CHECKING:
    from collections.abc import Generator

    from tfgraph.backends.tvm.cpu.schedule import Schedule
    from tfgraph.backends.tvm.kernels import LinearShape

Float32Array: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]

K_BLOCK = 128
"""Products that are summed one after another. The sums of blocks are then added, which keeps the
rounding error of long sums near that of short ones: it grows with K_BLOCK + k / K_BLOCK, not k.
It decides the bits of the results, and so is no part of a schedule."""

GROUP = 128
"""Rows that go through all panels before the next ones do, so that they stay in the second-level
cache from one panel to the next. From so many on their number is even: then each of two threads has
rows of its own, which it wrote itself in the product before this one."""

SLAB = 1024
"""The most k that go through all panels before the next ones do, for the same reason: a group's
rows take half a megabyte."""

FEW = 1 << 16
"""Elements of x that stay in that cache anyway: then all of k is one slab, since threads meet after
each, for some microseconds."""


def gemm(shape: LinearShape, schedule: Schedule) -> Any:
    """A PrimFunc: out = activation(x @ w + bias) * gate, those parts that `shape` asks for.

    Arguments in order: x (m, k), w [panels][k][columns] as `pack_weight` makes it, bias (n,), gate
    (m, n), out (m, n); all float32, m symbolic. A row's result has the same bits whatever m and the
    schedule are, and whichever thread computes it.
    """
    k, n, tile = shape.k, shape.n, schedule.tile
    panels, _, columns = packed_shape(k, n, tile)
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name("gemm")
            T.func_attr({"tirx.noalias": True, SCHEDULE: str(schedule)})
            m = T.int64()
            IRBuilder.name("m", m)
            x = _argument("x", m, k)
            w = _argument("w", panels, k, columns)
            bias = _argument("bias", n) if shape.bias else None
            gate = _argument("gate", m, n) if shape.gate else None
            out = _argument("out", m, n)
            with T.sblock("root"):
                T.reads()
                T.writes()
                chunks = T.ceildiv(m, T.int64(schedule.rows))
                most = pin(_chunks_together(m, chunks), "most")
                with _each_slab(m, k) as (begin, end):
                    # Neighbouring tasks share a panel, and a thread gets neighbouring tasks: the
                    # same ones of each slab, so that it adds to what it wrote itself.
                    with T.parallel(0, panels * chunks) as task:
                        IRBuilder.name("task", task)
                        start = pin(T.floordiv(task, panels * most) * most, "group")
                        together = pin(T.min(most, chunks - start), "together")
                        place = pin(task - start * panels, "place")
                        panel = pin(T.floordiv(place, together), "panel")
                        turn = pin(T.floormod(place, together), "turn")
                        first = pin((start + turn) * schedule.rows, "first")
                        count = pin(T.min(m - first, T.int64(schedule.rows)), "count")
                        part = Part(panel, first, count, begin, end)
                        fetch = Fetch(tile, w, part, schedule.ahead, turn, together)
                        _emit_product(tile, x, w, out, part, fetch)
                        if shape.bias or shape.activation or shape.gate:
                            with T.If(end == k), T.Then():
                                _emit_epilogue(tile, bias, shape.activation, gate, out, part)
    return builder.get()


def _chunks_together(m: Any, chunks: Any) -> Any:
    """How many chunks of rows make a group: as many in each, and two, four, ... groups from GROUP
    rows on, of which each has half to twice as many."""
    pairs = T.max(T.int64(1), T.floordiv(m, T.int64(2 * GROUP)))
    return T.ceildiv(chunks, T.Select(m >= GROUP, 2 * pairs, T.int64(1)))


@contextmanager
def _each_slab(m: Any, k: int) -> Generator[tuple[Any, Any], None, None]:
    """Where each slab of k begins and ends, whole blocks but at the very end."""
    if k <= SLAB:
        yield T.int64(0), T.int64(k)
        return
    slabs = pin(T.Select(m * k <= FEW, T.int64(1), T.int64(-(-k // SLAB))), "slabs")
    length = pin(T.ceildiv(T.int64(-(-k // K_BLOCK)), slabs) * K_BLOCK, "length")
    with T.serial(0, slabs) as slab:
        begin = pin(IRBuilder.name("slab", slab) * length, "begin")
        yield begin, pin(T.min(begin + length, T.int64(k)), "end")


def depth(k: int) -> int:
    """How many roundings a product passes through: those of its block, then of the blocks."""
    return min(k, K_BLOCK) + -(-k // K_BLOCK) - 1


def pack_weight(w: Float32Array, tile: Tile) -> Float32Array:
    """The (k, n) matrix `w` as [panels][k][columns], its last panel padded with zeros."""
    k, n = w.shape
    panels, _, columns = packed_shape(k, n, tile)
    padded = np.zeros((k, panels * columns), np.float32)
    padded[:, :n] = w
    return np.ascontiguousarray(padded.reshape(k, panels, columns).transpose(1, 0, 2))


def packed_shape(k: int, n: int, tile: Tile) -> tuple[int, int, int]:
    """The shape that `pack_weight` gives a (k, n) matrix."""
    return -(-n // tile.columns), k, tile.columns


def _argument(name: str, *shape: Any) -> Any:
    """A float32 buffer among the function's arguments."""
    buffer = T.match_buffer(T.arg(name, T.handle()), shape, "float32", align=64)
    return IRBuilder.name(name, buffer)


def _emit_product(tile: Tile, x: Any, w: Any, out: Any, part: Part, fetch: Fetch) -> None:
    """Emit out[rows, panel] = x[rows] @ w[panel], or add to it what the slab of k gives.

    The sum runs over blocks of k, whose sums are added up in `out`. Blocks of fewer rows than the
    tile's fetch nothing: these wait for memory as it is, and each fetch is one more instruction
    among few.
    """
    panel, first, count, begin, end = part
    lanes, columns, k = tile.lanes, tile.columns, int(x.shape[1])
    whole, rest = divmod(int(out.shape[1]), columns)

    def block_of_k(start: Any) -> None:
        length = min(k, K_BLOCK) if k <= K_BLOCK or not k % K_BLOCK else T.min(K_BLOCK, end - start)

        def emit(rows: int, offset: Any) -> None:
            row = first + offset
            sums = accumulate(
                rows,
                tile.vectors,
                lanes,
                length,
                lambda r, i: x[row + r, start + i],
                lambda i, v: w[panel, start + i, T.ramp(v * lanes, 1, lanes)],
                besides=lambda i: fetch.emit(start + i) if rows == tile.rows else None,
            )
            # The first block doesn't read what it overwrites, which seldom is in a cache.
            with T.If(start == 0):
                with T.Then():
                    save(row, sums, add=False)
                with T.Else():
                    save(row, sums, add=True)

        emit_row_blocks(count, tile.rows, emit)

    def save(row: Any, sums: list[list[Any]], *, add: bool) -> None:
        if not rest:
            save_columns(row, sums, columns, add=add)
            return
        with T.If(panel < whole):
            with T.Then():
                save_columns(row, sums, columns, add=add)
            with T.Else():
                save_columns(row, sums, rest, add=add)

    def save_columns(row: Any, sums: list[list[Any]], width: int, *, add: bool) -> None:
        for r, vectors in enumerate(sums):
            for start, value in zip(range(0, width, lanes), vectors, strict=False):
                column = panel * columns + start
                if start + lanes <= width:
                    place = row + r, T.ramp(column, 1, lanes)
                    T.buffer_store(out, value + out[place] if add else value, list(place))
                else:
                    corner, kept = [row + r, column], width - start
                    value = value + load_masked(out, corner, lanes, kept) if add else value
                    store_masked(out, corner, value, kept)

    if k <= K_BLOCK:
        block_of_k(T.int64(0))
    else:
        with T.serial(0, T.ceildiv(end - begin, T.int64(K_BLOCK))) as block:
            block_of_k(begin + IRBuilder.name("block", block) * K_BLOCK)


def _emit_epilogue(
    tile: Tile, bias: Any, activation: str | None, gate: Any, out: Any, part: Part
) -> None:
    """Emit out = activation(out + bias) * gate for the rows and the panel of a task."""
    panel, first, count, *_ = part
    lanes, n = tile.lanes, int(out.shape[1])
    start = panel * tile.columns
    vectors = T.min(T.int64(tile.vectors), T.ceildiv(n - start, T.int64(lanes)))
    with T.serial(0, count) as r, T.serial(0, vectors) as v:
        IRBuilder.name("row", r)
        IRBuilder.name("vector", v)
        row, column = first + r, start + v * lanes

        def load(buffer: Any, *index: Any) -> Any:
            if n % lanes:
                return load_masked(buffer, [*index, column], lanes, n - column)
            return buffer[(*index, T.ramp(column, 1, lanes))]

        value = load(out, row)
        if bias is not None:
            value = value + load(bias)
        if activation is not None:
            value = apply_activation(activation, value)
        if gate is not None:
            value = value * load(gate, row)
        if n % lanes:
            store_masked(out, [row, column], value, n - column)
        else:
            T.buffer_store(out, value, [row, T.ramp(column, 1, lanes)])
