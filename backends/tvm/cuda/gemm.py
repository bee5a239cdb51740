"""Matrix products, added up in float32: `linear` with its epilogue, and batched `matmul`.

A block of 256 threads makes a 64 x 64 tile of the result. It walks the depth in steps of 16: both
operands' slices go to shared memory, each thread adds 4 x 4 products in registers. Every size may
be anything: loads outside are zero, stores outside are left out. May import: tvm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

from tfgraph.backends.tvm.cuda.activations import activation as activate
from tfgraph.backends.tvm.cuda.kernel import (
    Dim,
    Kernel,
    SharedTile,
    barrier,
    both,
    f32,
    flat,
    guarded,
    kernel,
    let,
    load,
    local,
    loop,
    pick,
    product,
    remark,
    split,
    store,
    when,
)

TILE = 64
DEPTH = 16
THREADS = 256
GROUPS = 16  # of 16 lanes
PER_THREAD = 4  # rows and columns of the tile that one thread owns: 16 x 16 threads, 4 x 4 each


def linear(
    rows: Sequence[Dim],
    in_features: int,
    out_features: int,
    *,
    bias: bool = False,
    activation: str | None = None,
    gate: bool = False,
    dtype: str = "float32",
    name: str = "linear",
) -> Any:
    """out = activation(x @ weight + bias) * gate, all of `dtype`.

    Parameters in order: x (*rows, in_features), weight (in_features, out_features),
    bias (out_features) if asked for, gate (*rows, out_features) if asked for,
    out (*rows, out_features). `activation` is a name in `activations`.
    """
    with kernel(name) as k:
        dims = k.dims(rows)
        x_in = k.buffer("x", (*dims, in_features), dtype)
        weight = k.buffer("weight", (in_features, out_features), dtype)
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

        with k.launch(
            blocks=(tirx.ceildiv(m, TILE), -(-out_features // TILE)), threads=THREADS
        ) as (row_block, column_block, thread):
            x = flat(x_in, (m, in_features))
            out = flat(out_in, (m, out_features))
            _tile(
                left=lambda row, depth: load(x, row, depth),
                right=lambda depth, column: load(weight, depth, column),
                write=lambda row, column, value: store(
                    out, [row, column], epilogue(value, row, column)
                ),
                sizes=(m, out_features, in_features),
                origin=(row_block * TILE, column_block * TILE),
                thread=thread,
            )
    return k.function


def matmul(
    a_batch: Sequence[Dim],
    b_batch: Sequence[Dim],
    m: Dim,
    n: Dim,
    depth: Dim,
    *,
    transpose_b: bool = False,
    skip_zeros: bool = False,
    dtype: str = "float32",
    name: str = "matmul",
) -> Any:
    """out = a @ b over the last two axes, all of `dtype`; leading axes broadcast.

    Parameters in order: a (*a_batch, m, depth), b (*b_batch, depth, n), or (*b_batch, n, depth)
    with `transpose_b`, out (*batch, m, n), where batch is what a_batch and b_batch broadcast to:
    aligned from the right, equal symbols or numbers, or a literal 1. With `skip_zeros` the terms
    where a is 0 are left out, those where b is NaN or infinite included.
    """
    with kernel(name) as k:
        axes = _broadcast(a_batch, b_batch)
        batch, a_dims, b_dims = k.dims(axes), k.dims(a_batch), k.dims(b_batch)
        m, n, depth = k.dims((m, n, depth))
        b_matrix = (n, depth) if transpose_b else (depth, n)
        a_in = k.buffer("a", (*a_dims, m, depth), dtype)
        b_in = k.buffer("b", (*b_dims, *b_matrix), dtype)
        out_in = k.buffer("out", (*batch, m, n), dtype)
        row_blocks = tirx.ceildiv(m, TILE)
        blocks = (product(batch) * row_blocks, tirx.ceildiv(n, TILE))
        with k.launch(blocks=blocks, threads=THREADS) as (block, column_block, thread):
            a = flat(a_in, (product(a_dims), m, depth))
            b = flat(b_in, (product(b_dims), *b_matrix))
            out = flat(out_in, (product(batch), m, n))
            entry = let("entry", tirx.truncdiv(block, row_blocks))
            a_entry = let("a_entry", _entry(k, entry, axes, a_batch))
            b_entry = let("b_entry", _entry(k, entry, axes, b_batch))
            _tile(
                left=lambda row, d: load(a, a_entry, row, d),
                right=lambda d, c: load(b, b_entry, *((c, d) if transpose_b else (d, c))),
                write=lambda row, column, value: store(out, [entry, row, column], value),
                sizes=(m, n, depth),
                origin=(tirx.truncmod(block, row_blocks) * TILE, column_block * TILE),
                thread=thread,
                right_is_transposed=transpose_b,
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


def _tile(
    *,
    left: Callable[[Any, Any], Any],
    right: Callable[[Any, Any], Any],
    write: Callable[[Any, Any, Any], None],
    sizes: tuple[Any, Any, Any],
    origin: tuple[Any, Any],
    thread: Any,
    right_is_transposed: bool = False,
    skip_zeros: bool = False,
) -> None:
    """One 64 x 64 tile of left @ right at `origin`; sizes are (m, n, depth)."""
    m, n, depth = sizes
    row0, column0 = let("row0", origin[0]), let("column0", origin[1])
    # One column more than needed, so that a column's entries lie in different banks.
    left_tile = SharedTile("left_tile", DEPTH, TILE + 1)
    right_tile = SharedTile("right_tile", DEPTH, TILE + 1)
    sums = local("sums", (PER_THREAD, PER_THREAD))
    remark(f"A thread's rows are those of its group, its columns each {GROUPS}th from its lane on.")
    group = let("group", tirx.truncdiv(thread, GROUPS))
    lane = let("lane", tirx.truncmod(thread, GROUPS))
    with loop("i", PER_THREAD, unroll=True) as i, loop("j", PER_THREAD, unroll=True) as j:
        store(sums, [i, j], f32(0))

    with loop("step", tirx.ceildiv(depth, DEPTH)) as step:
        depth0 = let("depth0", step.astype("int64") * DEPTH)
        remark("Neighbouring threads read neighbouring addresses.")
        with loop("load", TILE * DEPTH // THREADS, unroll=True) as load:
            row, d = split(thread, load, DEPTH, THREADS, ("row", "left_d"))
            inside = both(row0 + row < m, *_below(depth0 + d, depth, DEPTH))
            left_tile.set(d, row, guarded(inside, left(row0 + row, depth0 + d), f32(0)))
            if right_is_transposed:
                column, d = split(thread, load, DEPTH, THREADS, ("column", "right_d"))
            else:
                d, column = split(thread, load, TILE, THREADS, ("right_d", "column"))
            inside = [*_below(depth0 + d, depth, DEPTH), *_below(column0 + column, n, TILE)]
            value = right(depth0 + d, column0 + column)
            right_tile.set(d, column, guarded(both(*inside), value, f32(0)) if inside else value)
        barrier()
        with (
            loop("d", DEPTH, unroll=True) as d,
            loop("i", PER_THREAD, unroll=True) as i,
            loop("j", PER_THREAD, unroll=True) as j,
        ):
            weight = left_tile[d, group * PER_THREAD + i]
            total = sums[i, j] + weight * right_tile[d, j * GROUPS + lane]
            if skip_zeros:
                total = pick(weight == f32(0), sums[i, j], total)
            store(sums, [i, j], total)
        barrier()

    with loop("i", PER_THREAD, unroll=True) as i, loop("j", PER_THREAD, unroll=True) as j:
        row = let("row", row0 + (group * PER_THREAD + i))
        column = let("column", column0 + (j * GROUPS + lane))
        with when(both(row < m, *_below(column, n, TILE))):
            write(row, column, sums[i, j])


def _below(index: Any, size: Any, tile: int) -> list[Any]:
    """The condition index < size, unless whole tiles make up the size."""
    return [] if isinstance(size, int) and size % tile == 0 else [index < size]
