"""Softmax over the last axis, of any width, known or not.

A block takes one row. Each thread strides over it three times: for the largest value, for the sum
of exponentials, for the result; sixteen bytes at a time where the row is known to be made of such.
May import: tvm.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import tirx

from tfgraph.backends.tvm.cuda.kernel import (
    LOWEST,
    BlockReduction,
    Dim,
    f32,
    flat,
    kernel,
    let,
    local,
    loop,
    pick,
    product,
    reduction_depth,
    store,
    when,
)
from tfgraph.backends.tvm.cuda.vectors import load_vector, store_vector, vector_of

THREADS = 128


def depth(width: int, chunk: int) -> int:
    """How many additions a weight passes through: those of its thread, which takes `chunk`
    neighbours at a time, then over the block."""
    return -(-width // (chunk * THREADS)) * chunk - 1 + reduction_depth(THREADS)


def softmax(
    rows: Sequence[Dim], width: Dim, *, dtype: str = "float32", name: str = "softmax"
) -> Any:
    """out = exp(x - max(x)) / sum(exp(x - max(x))) over the last axis, in float32.

    Parameters in order: x (*rows, width), out (*rows, width), both of `dtype`. A row of -inf
    alone, one that is masked fully, becomes zeros.
    """
    with kernel(name) as k:
        dims, columns = k.dims(rows), k.dim(width)
        x_in = k.buffer("x", (*dims, columns), dtype)
        out_in = k.buffer("out", (*dims, columns), dtype)
        count = product(dims)
        chunk = vector_of(dtype, width) if isinstance(width, int) else 1
        with k.launch(blocks=(count,), threads=THREADS) as (block, thread):
            row = let("row", block)
            x, out = flat(x_in, (count, columns)), flat(out_in, (count, columns))
            reduce = BlockReduction(thread, THREADS)

            @contextmanager
            def own_columns() -> Generator[tuple[Any, Any]]:
                """The first of this thread's next columns, and what stands there."""
                with loop("i", tirx.ceildiv(columns, chunk * THREADS)) as i:
                    column = let("column", (i * THREADS + thread) * chunk)
                    with when(column < columns):
                        yield column, load_vector("own", chunk, x, row, column)

            own_largest, own_total = local("own_largest", (1,)), local("own_total", (1,))
            store(own_largest, [0], f32(LOWEST))
            with own_columns() as (_, own), loop("e", chunk, unroll=True) as e:
                store(own_largest, [0], tirx.max(own_largest[0], own[e]))
            largest = reduce("largest", own_largest[0], tirx.max)

            store(own_total, [0], f32(0))
            with own_columns() as (_, own), loop("e", chunk, unroll=True) as e:
                store(own_total, [0], own_total[0] + tirx.exp(own[e] - largest))
            total = reduce("total", own_total[0], lambda a, b: a + b)

            with own_columns() as (column, own):
                with loop("e", chunk, unroll=True) as e:
                    share = tirx.exp(own[e] - largest) / total
                    store(own, [e], pick(total == f32(0), f32(0), share))
                store_vector(out, (row, column), own, chunk)
    return k.function
