"""`linear` in float16 and bfloat16, its epilogue included: kernels by the number of rows.

Up to four rows, as when a token is generated, are bound by the reading of the weight: a warp makes
one column, each lane a part of the depth. More rows go to tensor cores, in tiles that grow with
them. The weight is stored by columns, [out_features, pitch]. May import: tvm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from tfgraph.backends.tvm.cuda.activations import activation as activate
from tfgraph.backends.tvm.cuda.kernel import (
    WARP_SIZE,
    Dim,
    address,
    both,
    branch,
    call,
    f32,
    flat,
    kernel,
    let,
    local,
    loop,
    product,
    reduce_lanes,
    remark,
    store,
    when,
)
from tfgraph.backends.tvm.cuda.tensor_gemm import (
    CHUNK,
    SHORT,
    Operand,
    Tile,
    tensor_tile,
    write_pair,
)

FEW = 4
"""Rows that one warp takes at once, where there are no more."""
TILES = (
    (16, Tile(16, 64, depth=64, warp_rows=16, warp_columns=16)),
    (256, Tile(64, 64, depth=64, warp_rows=32, warp_columns=32)),
    (None, Tile(128, 128, depth=32, warp_rows=64, warp_columns=32)),
)
"""Up to so many rows, a tile."""
WARPS = 4  # of a block where there are few rows


def linear(
    rows: Sequence[Dim],
    in_features: int,
    out_features: int,
    *,
    dtype: str,
    bias: bool = False,
    activation: str | None = None,
    gate: bool = False,
    name: str = "linear",
) -> Any:
    """out = activation(x @ weight^T + bias) * gate in `dtype`, "float16" or "bfloat16".

    Parameters in order: x (*rows, in_features), weight (out_features, pitch) where the pitch is
    in_features and up to 7 zeros that make it a multiple of 8, bias (out_features) if asked for,
    gate (*rows, out_features) if asked for, out (*rows, out_features). All sums are in float32;
    the result is rounded once.
    """
    pitch = -(-in_features // CHUNK) * CHUNK
    with kernel(name) as k:
        dims = k.dims(rows)
        x_in = k.buffer("x", (*dims, in_features), dtype)
        weight = k.buffer("weight", (out_features, pitch), dtype)
        bias_in = k.buffer("bias", (out_features,), dtype) if bias else None
        gate_in = k.buffer("gate", (*dims, out_features), dtype) if gate else None
        out_in = k.buffer("out", (*dims, out_features), dtype)
        m = product(dims)

        def epilogue(value: Any, row: Any, column: Any) -> Any:
            if bias_in is not None:
                value = let("y", value + bias_in[column].astype("float32"))
            if activation is not None:
                value = activate(activation, value)
            if gate_in is not None:
                gated = flat(gate_in, (m, out_features))[row, column]
                value = value * gated.astype("float32")
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
                        y = epilogue(sums[row], row, column)
                        store(out, [row, column], y.astype(dtype))

        def tiled(tile: Tile) -> None:
            blocks = (tirx.ceildiv(m, tile.rows), -(-out_features // tile.columns))
            with k.launch(blocks=blocks, threads=tile.threads) as (row_block, column_block, thread):
                x, out = flat(x_in, (m, in_features)), flat(out_in, (m, out_features))

                def write(row: Any, column: Any, *pair: Any) -> None:
                    last = out_features - 1
                    y = [
                        epilogue(value, row, tirx.min(column + i, last))
                        for i, value in enumerate(pair)
                    ]
                    write_pair(out, row, column, y)

                tensor_tile(
                    tile,
                    Operand(lambda r, d: address(x, r, d), m, in_features % CHUNK == 0),
                    Operand(lambda c, d: address(weight, c, d), out_features, aligned=True),
                    write,
                    depth=in_features,
                    origin=(row_block * tile.rows, column_block * tile.columns),
                    thread=thread,
                    dtype=dtype,
                )

        def by_rows(tiles: Sequence[tuple[int | None, Tile]]) -> None:
            (most, tile), *larger = tiles
            if most is None:
                tiled(tile)
            else:
                branch(m <= most, lambda: tiled(tile), lambda: by_rows(larger))

        with k.host():
            branch(m <= FEW, few_rows, lambda: by_rows(TILES))
    return k.function


def _dots(x: Any, weight: Any, column: Any, lane: Any, sizes: tuple[Any, int]) -> Any:
    """A lane's share of the products of `FEW` rows of x with one column."""
    m, depth = sizes
    sums = local("sums", (FEW,))
    taken = local("taken", (CHUNK,))
    with loop("row", FEW, unroll=True) as row:
        store(sums, [row], f32(0))
    dtype = SHORT[str(weight.dtype)]
    with loop("step", -(-depth // (CHUNK * WARP_SIZE))) as step:
        d = let("d", (step * WARP_SIZE + lane) * CHUNK)
        with when(d < depth):
            weights = local("weights", (CHUNK,))
            call(f"load_8_{dtype}", address(weights, 0), address(weight, column, d))
            with loop("row", FEW, unroll=True) as row, when(row < m):
                if depth % CHUNK == 0:
                    call(f"load_8_{dtype}", address(taken, 0), address(x, row, d))
                else:
                    with loop("e", CHUNK, unroll=True) as e:
                        inside = tirx.if_then_else(
                            d + e < depth, x[row, d + e].astype("float32"), f32(0)
                        )
                        store(taken, [e], inside)
                with loop("e", CHUNK, unroll=True) as e:
                    store(sums, [row], sums[row] + taken[e] * weights[e])
    return sums
