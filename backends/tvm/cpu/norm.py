"""Layer norm and RMS norm over the last axis, with the addition before them, in one pass.

A row is read from memory once and stays in the first-level cache for the three steps: the sum, the
statistics, the result. May import: tvm, tfgraph.backends.tvm.
"""

from __future__ import annotations

from typing import Any

from tvm.tirx.script import builder as T

from tfgraph.backends.tvm.cpu import emit
from tfgraph.backends.tvm.cpu.emit import hold, splat
from tfgraph.backends.tvm.cpu.rows import UNROLL, Part, each_part, each_row, sum_lanes
from tfgraph.backends.tvm.cpu.vector_math import fma, rsqrt
from tfgraph.backends.tvm.kernels import NormShape
from tfgraph.backends.tvm.target import CpuMachine

Expr = Any


def norm(name: str, shape: NormShape, machine: CpuMachine) -> Any:
    """A PrimFunc `name`, float32, the number of rows m symbolic, and the width where it is None.

    Parameters, in order, those that `shape` asks for: a (m, width), b (m, width), scale (width,),
    bias (width,), shift (width,); the outputs: x (m, width) if `keep_sum`, the norm (m, width).
    Exact to a few ulp for a mean far larger than the spread, and free of overflow to 1e19.
    """
    with emit.function(name) as builder:
        m = emit.symbol("m")
        width = emit.symbol("n") if shape.width is None else shape.width
        rows, vector = (m, width), (width,)
        wanted = {
            "a": rows,
            "b": rows if shape.add else None,
            "scale": vector if shape.scale else None,
            "bias": vector if shape.bias else None,
            "shift": vector if shape.shift else None,
            "sum": rows if shape.keep_sum else None,
            "out": rows,
        }
        arrays = {key: emit.argument(key, size) for key, size in wanted.items() if size}
        with emit.body():
            each_row(m, width, lambda row: _row(shape, width, machine.lanes, arrays, row))
    return builder.get()


def depth(width: int, lanes: int) -> int:
    """How many additions an element passes through: those of its vector of sums, of which the first
    takes the rest of the row, then of the four vectors, and of the lanes."""
    steps, rest = divmod(width, UNROLL * lanes)
    return steps + -(-rest // lanes) - 1 + 2 + lanes.bit_length() - 1


STEPS = {"mean": 2, "sub": 2, "sqrt": 2, "div": 3}
"""Roundings beyond the formula's: 1 / width and the product with it; what is left of the mean, and
of the variance; the square root's inverse and the product with it."""


def _row(
    shape: NormShape, width: Expr | int, lanes: int, arrays: dict[str, Any], row: Expr
) -> None:
    x = arrays.get("sum", arrays["out"])  # without a sum to keep, the output holds it meanwhile
    inverse = _inverse(width)
    sums, squares = _sums(lanes), _sums(lanes)

    def add(u: int, part: Part) -> None:
        value = part.load(arrays["a"], row)
        if shape.shift:
            value = value + part.load(arrays["shift"])
        if shape.add:
            value = value + part.load(arrays["b"], row)
        value = hold(value)
        part.store(x, value, row)
        _add_to(sums[u], value)

    each_part(width, lanes, add)
    mean = splat(0.0, lanes)
    if shape.kind == "layer":
        mean = _spread(sum_lanes(_total(sums)) * inverse, lanes)
    sums = _sums(lanes)

    def square(u: int, part: Part) -> None:
        centred = hold(part.or_else(part.load(x, row) - mean, splat(0.0, lanes)))
        _add_to(sums[u], centred)
        # Divided before it is summed: a sum of squares would overflow sooner than their mean.
        share = centred * T.broadcast(inverse, lanes)
        T.buffer_store(squares[u], fma(centred, share, _value(squares[u])), [T.ramp(0, 1, lanes)])

    each_part(width, lanes, square)
    variance = _spread(sum_lanes(_total(squares)), lanes)
    rest = splat(0.0, lanes)
    if shape.kind == "layer":
        # The mean was rounded; the mean of what is left is the error, and is taken out.
        rest = _spread(sum_lanes(_total(sums)) * inverse, lanes)
        variance = hold(T.max(variance - rest * rest, splat(0.0, lanes)))
    factor = hold(rsqrt(variance + splat(shape.eps, lanes)))

    def finish(u: int, part: Part) -> None:
        value = ((part.load(x, row) - mean) - rest) * factor
        if shape.scale:
            value = value * part.load(arrays["scale"])
        if shape.bias:
            value = value + part.load(arrays["bias"])
        part.store(arrays["out"], value, row)

    each_part(width, lanes, finish)


def _inverse(width: Expr | int) -> Expr:
    """1 / width, rounded to double precision first: as it is where the width is known."""
    if isinstance(width, int):
        return T.float32(1.0 / width)
    return hold(T.cast(T.float64(1) / T.cast(width, "float64"), "float32"))


def _sums(lanes: int) -> list[Any]:
    """One vector of zeros for each of the UNROLL parts."""
    sums = [emit.workspace(lanes, "sums") for _ in range(UNROLL)]
    for total in sums:
        emit.store(total, 0, splat(0.0, lanes))
    return sums


def _value(total: Any) -> Expr:
    return emit.load(total, 0, int(total.shape[0]))


def _add_to(total: Any, value: Expr) -> None:
    emit.store(total, 0, _value(total) + value)


def _total(sums: list[Any]) -> Expr:
    a, b, c, d = (_value(total) for total in sums)
    return (a + b) + (c + d)


def _spread(scalar: Expr, lanes: int) -> Expr:
    return hold(T.broadcast(hold(scalar), lanes))
