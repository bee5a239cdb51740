"""Batched products of two activations, in the tiles of `linear`. May import: tvm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from tfgraph.backends.tvm.cuda.gemm_tile import gemm_tile, write_sums
from tfgraph.backends.tvm.cuda.kernel import Dim, Kernel, address, flat, kernel, let, product
from tfgraph.backends.tvm.cuda.slices import Operand, Tile, chunk_of

TENSOR_TILE = Tile(64, 64, depth=64, warp_rows=32, warp_columns=32)
PLAIN_TILE = Tile(64, 64, depth=16, warp_rows=32, warp_columns=32)


def matmul(
    a_batch: Sequence[Dim],
    b_batch: Sequence[Dim],
    m: Dim,
    n: Dim,
    depth: Dim,
    *,
    dtype: str = "float32",
    tf32: bool = False,
    transpose_b: bool = False,
    skip_zeros: bool = False,
    name: str = "matmul",
) -> Any:
    """out = a @ b over the last two axes in `dtype`, float32 sums; leading axes broadcast.

    Parameters in order: a (*a_batch, m, depth), b (*b_batch, depth, n), or (*b_batch, n, depth)
    with `transpose_b`, out (*batch, m, n), where batch is what a_batch and b_batch broadcast to:
    aligned from the right, equal symbols or numbers, or a literal 1. With `skip_zeros` the terms
    where a is 0 are left out, those where b is NaN or infinite included.
    """
    plain = skip_zeros or dtype == "float32"
    tile = PLAIN_TILE if plain else TENSOR_TILE
    chunk = chunk_of(dtype)
    with kernel(name) as k:
        axes = _broadcast(a_batch, b_batch)
        batch, a_dims, b_dims = k.dims(axes), k.dims(a_batch), k.dims(b_batch)
        a_aligned = isinstance(depth, int) and depth % chunk == 0
        b_aligned = a_aligned if transpose_b else isinstance(n, int) and n % chunk == 0
        m, n, depth = k.dims((m, n, depth))
        b_matrix = (n, depth) if transpose_b else (depth, n)
        a_in = k.buffer("a", (*a_dims, m, depth), dtype)
        b_in = k.buffer("b", (*b_dims, *b_matrix), dtype)
        out_in = k.buffer("out", (*batch, m, n), dtype)
        row_blocks = tirx.ceildiv(m, tile.rows)
        blocks = (product(batch) * row_blocks, tirx.ceildiv(n, tile.columns))
        with k.launch(blocks=blocks, threads=tile.threads) as (block, column_block, thread):
            a = flat(a_in, (product(a_dims), m, depth))
            b = flat(b_in, (product(b_dims), *b_matrix))
            entry = let("entry", tirx.truncdiv(block, row_blocks))
            a_entry = let("a_entry", _entry(k, entry, axes, a_batch))
            b_entry = let("b_entry", _entry(k, entry, axes, b_batch))
            out = flat(out_in, (product(batch), m, n))

            def b_at(column: Any, d: Any) -> Any:
                return address(b, b_entry, *((column, d) if transpose_b else (d, column)))

            gemm_tile(
                tile,
                Operand(lambda row, d: address(a, a_entry, row, d), m, a_aligned),
                Operand(b_at, n, b_aligned, by_depth=not transpose_b),
                lambda row, column, sums: write_sums(out, (entry, row, column), sums),
                depth=depth,
                origin=(tirx.truncmod(block, row_blocks) * tile.rows, column_block * tile.columns),
                thread=thread,
                dtype=dtype,
                tf32=tf32,
                skip_zeros=skip_zeros,
            )
    return k.function


def _broadcast(a: Sequence[Dim], b: Sequence[Dim]) -> list[Dim]:
    """The broadcast of two lists of leading axes."""
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + tuple(a), (1,) * (rank - len(b)) + tuple(b), strict=True)
    return [y if x == 1 else x for x, y in pairs]


def _entry(k: Kernel, entry: Any, axes: Sequence[Dim], own: Sequence[Dim]) -> Any:
    """Which entry of an operand with leading axes `own` belongs to this entry of `axes`."""
    if list(own) == list(axes):
        return entry
    found: Any = tirx.const(0, "int64")
    stride: Any = 1
    for size, own_size in zip(reversed(axes), reversed(own), strict=False):
        if own_size != 1:
            found = found + tirx.truncmod(entry, k.dim(size)) * stride
            stride = stride * k.dim(own_size)
        entry = tirx.truncdiv(entry, k.dim(size))
    return found
