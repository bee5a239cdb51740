"""Linear layers in float32: out = activation(x @ w + bias) * gate, with w packed in panels.

The GEMM runs in parallel over weight panels and chunks of rows, one group of chunks after another.
One block of k of one panel stays in the second-level cache while a chunk of rows streams past it.
The epilogue runs over the rows just stored, while they are in the first-level cache, so that its
code exists once.
May import: numpy, tvm, tfgraph.backends.tvm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tfgraph.backends.tvm.cpu.activations import activation as apply_activation
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
    from tfgraph.backends.tvm.cpu.schedule import Schedule
    from tfgraph.backends.tvm.kernels import LinearShape

Float32Array: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]

K_BLOCK = 128
"""Products that are summed one after another. The sums of blocks are then added, which keeps the
rounding error of long sums near that of short ones: it grows with K_BLOCK + k / K_BLOCK, not k.
It decides the bits of the results, and so is no part of a schedule."""

GROUP = 256
"""Rows that go through all panels before the next ones do, so that they stay in the second-level
cache from one panel to the next."""

_DEEPEST = 1024
"""Up to this k that is so, where GROUP rows take a megabyte at most, half of that cache. Of deeper
ones it would hold too few to be worth another walk through the weight."""

_LINE = 16  # floats in a cache line


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
                most = pin(_chunks_together(m, k, chunks), "most")
                # Neighbouring tasks share a panel, and a thread gets neighbouring tasks.
                with T.parallel(0, panels * chunks) as task:
                    IRBuilder.name("task", task)
                    start = pin(T.floordiv(task, panels * most) * most, "group")
                    together = pin(T.min(most, chunks - start), "together")
                    place = pin(task - start * panels, "place")
                    panel = pin(T.floordiv(place, together), "panel")
                    chunk = start + T.floormod(place, together)
                    first = pin(chunk * schedule.rows, "first")
                    count = pin(T.min(m - first, T.int64(schedule.rows)), "count")
                    _emit_product(tile, schedule.ahead, x, w, out, panel, first, count)
                    if shape.bias or shape.activation or shape.gate:
                        act = shape.activation
                        _emit_epilogue(tile, bias, act, gate, out, panel, first, count)
    return builder.get()


def _chunks_together(m: Any, k: int, chunks: Any) -> Any:
    """How many chunks of rows make a group: as many in each, so GROUP rows or up to twice that."""
    if k > _DEEPEST:
        return chunks
    groups = T.max(T.int64(1), T.floordiv(m, T.int64(GROUP)))
    return T.ceildiv(chunks, groups)


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


def _emit_product(
    tile: Tile, ahead: int, x: Any, w: Any, out: Any, panel: Any, first: Any, count: Any
) -> None:
    """Emit out[rows, panel] = x[rows] @ w[panel] for the `count` rows from `first` on.

    The sum runs over blocks of k, whose sums are added up in `out`. Rows of the panel are fetched
    `ahead` of those that are multiplied, but not for blocks of fewer rows than the tile's: these
    wait for memory as it is, and each fetch is one more instruction among few.
    """
    lanes, columns, k = tile.lanes, tile.columns, int(x.shape[1])
    whole, rest = divmod(int(out.shape[1]), columns)
    blocks = -(-k // K_BLOCK)

    def block_of_k(block: Any) -> None:
        start = block * K_BLOCK
        length = T.min(T.int64(K_BLOCK), k - start)

        def fetched(i: Any) -> list[Any]:
            return [w[panel, start + i + ahead, column] for column in range(0, columns, _LINE)]

        def emit(rows: int, offset: Any) -> None:
            row = first + offset
            sums = accumulate(
                rows,
                tile.vectors,
                lanes,
                length if blocks > 1 else k,
                lambda r, i: x[row + r, start + i],
                lambda i, v: w[panel, start + i, T.ramp(v * lanes, 1, lanes)],
                ahead=fetched if ahead and rows == tile.rows else None,
            )
            # The first block doesn't read what it overwrites, which seldom is in a cache.
            with T.If(block == 0):
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
                    part = row + r, T.ramp(column, 1, lanes)
                    T.buffer_store(out, value + out[part] if add else value, list(part))
                else:
                    place, count = [row + r, column], width - start
                    value = value + load_masked(out, place, lanes, count) if add else value
                    store_masked(out, place, value, count)

    if blocks > 1:
        with T.serial(0, T.int64(blocks)) as block:
            block_of_k(IRBuilder.name("block", block))
    else:
        block_of_k(T.int64(0))


def _emit_epilogue(
    tile: Tile,
    bias: Any,
    activation: str | None,
    gate: Any,
    out: Any,
    panel: Any,
    first: Any,
    count: Any,
) -> None:
    """Emit out = activation(out + bias) * gate for one panel of `count` rows from `first`."""
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
