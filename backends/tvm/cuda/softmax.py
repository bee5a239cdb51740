"""Softmax over the last axis, of any width, known or not.

A block takes one row. Each thread strides over it three times: for the largest value, for the sum
of exponentials, for the result. May import: tvm.
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
    local,
    loop,
    pick,
    product,
    store,
    when,
)

THREADS = 128


def softmax(rows: Sequence[Dim], width: Dim, *, name: str = "softmax") -> Any:
    """out = exp(x - max(x)) / sum(exp(x - max(x))) over the last axis, float32.

    Parameters in order: x (*rows, width), out (*rows, width). A row of -inf alone, one that is
    masked fully, becomes zeros.
    """
    with kernel(name) as k:
        dims, columns = k.dims(rows), k.dim(width)
        x_in = k.buffer("x", (*dims, columns))
        out_in = k.buffer("out", (*dims, columns))
        count = product(dims)
        with k.launch(blocks=(count,), threads=THREADS) as (row, thread):
            x, out = flat(x_in, (count, columns)), flat(out_in, (count, columns))
            reduce = BlockReduction(thread, THREADS)
            largest, total = local("largest", (1,)), local("total", (1,))

            @contextmanager
            def own_columns() -> Generator[Any]:
                with loop("i", tirx.ceildiv(columns, THREADS)) as i:
                    column = i * THREADS + thread
                    with when(column < columns):
                        yield column

            store(largest, [0], f32(LOWEST))
            with own_columns() as column:
                store(largest, [0], tirx.max(largest[0], x[row, column]))
            store(largest, [0], reduce(largest[0], tirx.max))

            store(total, [0], f32(0))
            with own_columns() as column:
                store(total, [0], total[0] + tirx.exp(x[row, column] - largest[0]))
            store(total, [0], reduce(total[0], lambda a, b: a + b))

            with own_columns() as column:
                share = tirx.exp(x[row, column] - largest[0]) / total[0]
                store(out, [row, column], pick(total[0] == f32(0), f32(0), share))
    return k.function
