"""The product of two activations, with broadcast batch dimensions: any matmul that no rule fused.

Neither operand can be packed ahead, so the right one is read where it lies, in the same register
tiles as in `gemm`, in parallel over batch, columns and rows. May import: tvm, tfgraph.backends.tvm,
errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tfgraph.backends.tvm.cpu.gemm_tile import (
    Tile,
    accumulate,
    emit_row_blocks,
    load_masked,
    pin,
    store_masked,
)
from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CHUNK_ROWS = 64


def matmul(
    a: Sequence[int | str],
    b: Sequence[int | str],
    tile: Tile,
    *,
    skip_zeros: bool = False,
) -> Any:
    """A PrimFunc: out[..., i, j] = sum over l of a[..., i, l] * b[..., l, j], all float32.

    The shapes `a` (..., m, k) and `b` (..., k, n) give a fixed dimension as a number and a symbolic
    one by a name; equal names are equal dimensions. Batch dimensions broadcast as in NumPy, where
    only a literal 1 does. With `skip_zeros` the terms where a is 0 are left out, whatever b is.
    Arguments in order: a, b, out.
    """
    if min(len(a), len(b)) < 2 or a[-1] != b[-2]:
        raise TfgraphError(f"matmul: shapes {tuple(a)} and {tuple(b)} do not multiply")
    batch = broadcast_shape(a[:-2], b[:-2])
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name("weighted_sum" if skip_zeros else "matmul")
            T.func_attr({"tirx.noalias": True})
            symbols: dict[str, Any] = {}

            def argument(name: str, shape: Sequence[int | str]) -> Any:
                for dim in shape:
                    if isinstance(dim, str) and dim not in symbols:
                        symbols[dim] = T.int64()
                        IRBuilder.name(f"d{len(symbols)}", symbols[dim])
                dims = [size(dim) for dim in shape]
                buffer = T.match_buffer(T.arg(name, T.handle()), dims, "float32", align=64)
                return IRBuilder.name(name, buffer)

            def size(dim: int | str) -> Any:
                return symbols[dim] if isinstance(dim, str) else T.int64(dim)

            left, right = argument("a", a), argument("b", b)
            out = argument("out", [*batch, a[-2], b[-1]])
            m, n = size(a[-2]), size(b[-1])
            with T.sblock("root"):
                T.reads()
                T.writes()
                chunks = T.ceildiv(m, T.int64(CHUNK_ROWS))
                panels = T.ceildiv(n, T.int64(tile.columns))
                tasks = chunks * panels
                for dim in batch:
                    tasks = tasks * size(dim)
                with T.parallel(0, tasks) as task:
                    IRBuilder.name("task", task)
                    first = pin(T.floormod(task, chunks) * CHUNK_ROWS, "first")
                    panel = T.floormod(T.floordiv(task, chunks), panels)
                    column = pin(panel * tile.columns, "column")
                    place = pin(T.floordiv(task, chunks * panels), "place")
                    index: list[Any] = []
                    for dim in reversed(batch):
                        index.insert(0, pin(T.floormod(place, size(dim)), "index"))
                        place = pin(T.floordiv(place, size(dim)), "place")
                    _emit_chunk(
                        tile,
                        _Matrix(left, _operand_index(index, a[:-2])),
                        _Matrix(right, _operand_index(index, b[:-2])),
                        _Matrix(out, index),
                        first,
                        column,
                        skip_zeros,
                    )
    return builder.get()


def broadcast_shape(a: Sequence[int | str], b: Sequence[int | str]) -> list[int | str]:
    """The common shape of two lists of batch dimensions, aligned at the right."""
    rank = max(len(a), len(b))
    pairs = zip([1] * (rank - len(a)) + list(a), [1] * (rank - len(b)) + list(b), strict=True)
    shape: list[int | str] = []
    for x, y in pairs:
        if x != y and 1 not in (x, y):
            raise TfgraphError(f"matmul: batch dimensions {tuple(a)} and {tuple(b)} differ")
        shape.append(y if x == 1 else x)
    return shape


def _operand_index(index: list[Any], dims: Sequence[int | str]) -> list[Any]:
    """The batch index into an operand with these batch dimensions: 0 where it is broadcast."""
    kept = index[len(index) - len(dims) :]
    return [T.int64(0) if dim == 1 else i for i, dim in zip(kept, dims, strict=True)]


class _Matrix:
    """One matrix of a batch: a buffer and the batch index."""

    def __init__(self, buffer: Any, index: list[Any]) -> None:
        self.buffer = buffer
        self.index = index

    def __getitem__(self, place: tuple[Any, Any]) -> Any:
        return self.buffer[(*self.index, *place)]

    def at(self, row: Any, column: Any) -> list[Any]:
        return [*self.index, row, column]


def _emit_chunk(
    tile: Tile,
    left: _Matrix,
    right: _Matrix,
    out: _Matrix,
    first: Any,
    column: Any,
    skip_zeros: bool,
) -> None:
    """Emit out[rows, columns] = left[rows] @ right[:, columns] for one chunk and one tile width."""
    lanes = tile.lanes
    m, n = out.buffer.shape[-2:]
    count = pin(T.min(m - first, T.int64(CHUNK_ROWS)), "count")

    def product(row: Any, rows: int, vectors: int, load: Callable[[Any, int], Any]) -> Any:
        k = left.buffer.shape[-1]
        return accumulate(
            rows, vectors, lanes, k, lambda r, i: left[row + r, i], load, skip_zeros=skip_zeros
        )

    def whole(rows: int, offset: Any) -> None:
        row = first + offset
        parts = [T.ramp(column + v * lanes, 1, lanes) for v in range(tile.vectors)]
        sums = product(row, rows, tile.vectors, lambda i, v: right[i, parts[v]])
        for r, values in enumerate(sums):
            for part, value in zip(parts, values, strict=True):
                T.buffer_store(out.buffer, value, out.at(row + r, part))

    def edge(rows: int, offset: Any) -> None:
        row = first + offset
        with T.serial(0, T.ceildiv(n - column, T.int64(lanes))) as v:
            start = pin(column + v * lanes, "start")
            rest = pin(n - start, "rest")

            def load(i: Any, _: int) -> Any:
                return load_masked(right.buffer, right.at(i, start), lanes, rest)

            for r, (value,) in enumerate(product(row, rows, 1, load)):
                store_masked(out.buffer, out.at(row + r, start), value, rest)

    with T.If(column + tile.columns <= n):
        with T.Then():
            emit_row_blocks(count, tile.rows, whole)
        with T.Else():
            emit_row_blocks(count, tile.rows, edge)
