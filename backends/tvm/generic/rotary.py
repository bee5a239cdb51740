"""The generic kernel of rotary positions: a pair of elements at a time, in one pass over x.

May import: tvm, tfgraph.backends.tvm.generic.
"""

from __future__ import annotations

from tfgraph.backends.tvm.generic.kernel import Kernel, emitter
from tfgraph.backends.tvm.generic.loops import Indices, i64


@emitter("rotary")
def _rotary(kernel: Kernel) -> None:
    """(a cos - b sin, b cos + a sin) of each pair, and what is behind them as it is."""
    x, cos, sin = kernel.operands
    batch, length, width = x.shape
    heads, half = i64(kernel.attr("heads")), cos.shape[-1]
    x, y = (t.view((batch, length, heads, width // heads)) for t in (x, kernel.result))

    def turn(at: Indices) -> None:
        *head, i = at
        pair = (2 * i, 2 * i + 1) if kernel.attr("interleaved") else (i, half + i)
        row = (at[1], i) if cos.type.rank == 2 else (at[0], at[1], i)
        a, b, c, s = x[(*head, pair[0])], x[(*head, pair[1])], cos[row], sin[row]
        y.store((*head, pair[0]), a * c - b * s)
        y.store((*head, pair[1]), b * c + a * s)

    kernel.loops.each((batch, length, heads, half), turn)
    left = x.type.shape[-1] - 2 * kernel.attr("heads") * cos.type.shape[-1]
    if left.is_const and not int(left):
        return

    def copy(at: Indices) -> None:
        behind = (*at[:3], 2 * half + at[3])
        y.store(behind, x[behind])

    kernel.loops.each((batch, length, heads, width // heads - 2 * half), copy)
