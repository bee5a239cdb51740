"""The generic kernel of rotary positions: a pair of elements at a time, in one pass over x.

May import: tvm, tfgraph.backends.tvm.generic.
"""

from __future__ import annotations

from typing import Any

from tfgraph.backends.tvm.generic.kernel import Kernel, emitter
from tfgraph.backends.tvm.generic.loops import Indices, i64

Expr = Any


@emitter("rotary")
def _rotary(kernel: Kernel) -> None:
    """(a cos - b sin, b cos + a sin) of each pair, and what is behind them as it is.

    With the attribute `start`, which lowering adds, x stands in columns from there on.
    """
    (x, cos, sin), y = kernel.operands, kernel.result
    (batch, length, width), half = y.shape, cos.shape[-1]
    heads = i64(kernel.attr("heads"))
    start = i64(kernel.attr("start") if "start" in kernel.node.attrs else 0)
    size = width // heads

    def turn(at: Indices) -> None:
        b, row, h, i = at
        first, second = (2 * i, 2 * i + 1) if kernel.attr("interleaved") else (i, half + i)
        place = (row, i) if cos.type.rank == 2 else (b, row, i)
        p, q, c, s = read(b, row, h, first), read(b, row, h, second), cos[place], sin[place]
        y.store((b, row, h * size + first), p * c - q * s)
        y.store((b, row, h * size + second), q * c + p * s)

    def read(b: Expr, row: Expr, h: Expr, i: Expr) -> Expr:
        return x[(b, row, start + h * size + i)]

    def copy(at: Indices) -> None:
        b, row, h, i = at
        element = x.raw[(b, row, start + h * size + 2 * half + i)]
        y.store((b, row, h * size + 2 * half + i), element)

    kernel.loops.each((batch, length, heads, half), turn)
    left = y.type.shape[-1] - 2 * kernel.attr("heads") * cos.type.shape[-1]
    if not left.is_const or int(left):
        kernel.loops.each((batch, length, heads, size - 2 * half), copy)
