"""Softmax over the last axis, for graphs whose attention was not fused.

May import: tvm, tfgraph.backends.tvm.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tfgraph.backends.tvm.cpu import emit
from tfgraph.backends.tvm.cpu.emit import hold, splat
from tfgraph.backends.tvm.cpu.rows import Part, each_part, each_row, max_lanes, sum_lanes
from tfgraph.backends.tvm.cpu.vector_math import exp
from tfgraph.backends.tvm.target import CpuMachine

Expr = Any


def softmax(name: str, machine: CpuMachine, width: int | None = None) -> Any:
    """A PrimFunc `name`: out[i] = exp(x[i] - max x[i]) / sum of the same, float32.

    Parameters: x (m, width), out (m, width); m is symbolic, and so is the width if None. A row of
    -inf alone gives zeros; a row with NaN or +inf gives NaN.
    """
    with emit.function(name) as builder:
        m = emit.symbol("m")
        n = emit.symbol("n") if width is None else width
        x, out = emit.argument("x", (m, n)), emit.argument("out", (m, n))
        with emit.body():
            each_row(m, n, lambda row: _row(x, out, n, machine.lanes, row))
    return builder.get()


def depth(width: int, lanes: int) -> int:
    """How many additions a weight passes through: those of its lane, then of the lanes."""
    return -(-width // lanes) - 1 + lanes.bit_length() - 1


def _row(x: Any, out: Any, width: Expr | int, lanes: int, row: Expr) -> None:
    high, total = emit.workspace(lanes, "high"), emit.workspace(lanes, "total")
    lowest = splat(-math.inf, lanes)
    emit.store(high, 0, lowest)
    emit.store(total, 0, splat(0.0, lanes))

    def take_max(_: int, part: Part) -> None:
        value = part.or_else(part.load(x, row), lowest)
        emit.store(high, 0, T.max(emit.load(high, 0, lanes), value))

    each_part(width, lanes, take_max)
    top = hold(max_lanes(emit.load(high, 0, lanes)))
    # -inf - -inf would be NaN; against 0 a row of -inf has weights of 0.
    top = tirx.Select(top == T.float32(-math.inf), T.float32(0), top)
    top = hold(T.broadcast(top, lanes))

    def weigh(_: int, part: Part) -> None:
        weight = hold(part.or_else(exp(part.load(x, row) - top), splat(0.0, lanes)))
        part.store(out, weight, row)
        emit.store(total, 0, emit.load(total, 0, lanes) + weight)

    each_part(width, lanes, weigh)
    divisor = hold(sum_lanes(emit.load(total, 0, lanes)))
    divisor = hold(tirx.Select(divisor == T.float32(0), T.float32(1), divisor))
    divisor = T.broadcast(divisor, lanes)

    def divide(_: int, part: Part) -> None:
        part.store(out, part.load(out, row) / divisor, row)

    each_part(width, lanes, divide)
