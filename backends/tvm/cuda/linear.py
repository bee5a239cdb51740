"""`linear` and its epilogue: kernels by the number of rows.

Up to four rows, as when a token is generated, are bound by the reading of the weight: a warp makes
one column, each lane a part of the depth. More rows are multiplied in tiles, which grow with them.
The weight is stored by columns, [out_features, pitch]. May import: tvm.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tvm import tirx

from tfgraph.backends.tvm.cuda.activations import activation as activate
from tfgraph.backends.tvm.cuda.gemm_tile import SHORT, gemm_tile, write_sums
from tfgraph.backends.tvm.cuda.kernel import (
    WARP_SIZE,
    Dim,
    address,
    both,
    call,
    f32,
    flat,
    guarded,
    kernel,
    let,
    load,
    local,
    loop,
    product,
    reduce_lanes,
    remark,
    store,
    when,
)
from tfgraph.backends.tvm.cuda.slices import Operand, Tile, chunk_of

FEW = 4
"""Rows that one warp takes at once, where there are no more."""
WARPS = 4
"""Warps of a block where there are few rows."""
TENSOR_TILES = (
    (16, Tile(16, 64, depth=64, warp_rows=16, warp_columns=16)),
    (256, Tile(64, 64, depth=64, warp_rows=32, warp_columns=32)),
    (None, Tile(128, 128, depth=32, warp_rows=64, warp_columns=32)),
)
"""Up to so many rows, a tile; of tensor cores."""
PLAIN_TILES = (
    (256, Tile(64, 64, depth=16, warp_rows=32, warp_columns=32)),
    (None, Tile(128, 128, depth=16, warp_rows=32, warp_columns=64)),
)
"""The same of plain cores, and of tf32."""


def tiles_for(dtype: str) -> tuple[tuple[int | None, Tile], ...]:
    """The tiles of a dtype, by the number of rows."""
    return PLAIN_TILES if dtype == "float32" else TENSOR_TILES


def linear_pitch(in_features: int, dtype: str) -> int:
    """From column to column of a weight as `linear` reads it: a multiple of 16 bytes."""
    chunk = chunk_of(dtype)
    return -(-in_features // chunk) * chunk


def linear(
    rows: Sequence[Dim],
    in_features: int,
    out_features: int,
    *,
    dtype: str = "float32",
    tf32: bool = False,
    bias: bool = False,
    activation: str | None = None,
    gate: bool = False,
    name: str = "linear",
) -> Any:
    """out = activation(x @ weight^T + bias) * gate in `dtype`: float32, float16 or bfloat16.

    Parameters in order: x (*rows, in_features), weight (out_features, linear_pitch(in_features)),
    filled up with zeros, bias (out_features) if asked for, gate (*rows, out_features) if asked
    for, out (*rows, out_features). Sums and the epilogue are in float32, rounded once; with `tf32`
    factors in float32 are rounded to tf32 first. `activation` is a name in `activations`.
    """
    with kernel(name) as k:
        dims = k.dims(rows)
        x_in = k.buffer("x", (*dims, in_features), dtype)
        weight = k.buffer("weight", (out_features, linear_pitch(in_features, dtype)), dtype)
        bias_in = k.buffer("bias", (out_features,), dtype) if bias else None
        gate_in = k.buffer("gate", (*dims, out_features), dtype) if gate else None
        out_in = k.buffer("out", (*dims, out_features), dtype)
        m = product(dims)

        def epilogue(value: Any, row: Any, column: Any) -> Any:
            if bias_in is not None:
                value = let("y", value + load(bias_in, column))
            if activation is not None:
                value = activate(activation, value)
            if gate_in is not None:
                value = value * load(flat(gate_in, (m, out_features)), row, column)
            return value

        def few_rows() -> None:
            blocks = (-(-out_features // WARPS),)
            with k.launch(blocks=blocks, threads=WARPS * WARP_SIZE) as (block, thread):
                remark(f"Up to {FEW} rows: a warp a column, its lanes share the depth.")
                x, out = flat(x_in, (m, in_features)), flat(out_in, (m, out_features))
                column = let("column", block * WARPS + tirx.truncdiv(thread, WARP_SIZE))
                lane = let("lane", tirx.truncmod(thread, WARP_SIZE))
                with when(column < out_features):
                    sums = _dots(x, weight, column, lane, (m, in_features))
                    with loop("row", FEW, unroll=True) as row:
                        reduce_lanes(sums, row, lambda a, b: a + b, WARP_SIZE)
                    with loop("row", FEW, unroll=True) as row, when(both(lane == row, row < m)):
                        store(out, [row, column], epilogue(sums[row], row, column))

        def tiled(tile: Tile) -> None:
            blocks = (tirx.ceildiv(m, tile.rows), -(-out_features // tile.columns))
            with k.launch(blocks=blocks, threads=tile.threads) as (row_block, column_block, thread):
                x, out = flat(x_in, (m, in_features)), flat(out_in, (m, out_features))
                aligned = in_features == linear_pitch(in_features, dtype)
                gemm_tile(
                    tile,
                    Operand(lambda row, d: address(x, row, d), m, aligned),
                    Operand(lambda column, d: address(weight, column, d), out_features, True),
                    lambda row, column, sums: write_sums(out, (row, column), sums, epilogue),
                    depth=in_features,
                    origin=(row_block * tile.rows, column_block * tile.columns),
                    thread=thread,
                    dtype=dtype,
                    tf32=tf32,
                )

        k.choose(
            (m <= FEW, few_rows),
            *(
                (None if most is None else m <= most, partial(tiled, tile))
                for most, tile in tiles_for(dtype)
            ),
        )
    return k.function


def _dots(x: Any, weight: Any, column: Any, lane: Any, sizes: tuple[Any, int]) -> Any:
    """A lane's share of the products of `FEW` rows of x with one column."""
    m, depth = sizes
    dtype = str(weight.dtype)
    load_16, chunk = f"load_16_{SHORT[dtype]}", chunk_of(dtype)
    sums, weights = local("sums", (FEW,)), local("weights", (chunk,))
    factors = local("factors", (chunk,))
    with loop("row", FEW, unroll=True) as row:
        store(sums, [row], f32(0))
    with loop("step", -(-depth // (chunk * WARP_SIZE))) as step:
        d = let("d", (step * WARP_SIZE + lane) * chunk)
        with when(d < depth):
            call(load_16, address(weights, 0), address(weight, column, d))
            with loop("row", FEW, unroll=True) as row, when(row < m):
                if depth % chunk == 0:
                    call(load_16, address(factors, 0), address(x, row, d))
                else:
                    with loop("e", chunk, unroll=True) as e:
                        store(factors, [e], guarded(d + e < depth, load(x, row, d + e), f32(0)))
                with loop("e", chunk, unroll=True) as e:
                    store(sums, [row], sums[row] + factors[e] * weights[e])
    return sums
