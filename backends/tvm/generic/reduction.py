"""Generic kernels of ops along an axis. May import: tvm, tfgraph.backends.tvm.generic.

Every element is reduced in an order of its own that depends on nothing but the axis: neither the
number of threads nor other rows change its bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tfgraph.backends.tvm.generic.elementwise import extremum, is_float
from tfgraph.backends.tvm.generic.kernel import Kernel, Tensor, emitter
from tfgraph.backends.tvm.generic.loops import Indices, Loops, i64
from tfgraph.backends.tvm.narrow import NARROW

Expr = Any
Combine = Callable[[Expr, Expr], Expr]

COLUMNS = 64
"""Elements of the last axis that are reduced side by side, where another axis is reduced."""


def depth(n: int, lanes: int) -> int:
    """How many additions an element along the last axis passes through, see `fold`."""
    return -(-n // lanes) - 1 + lanes.bit_length() - 1


def add(a: Expr, b: Expr) -> Expr:
    """a + b."""
    return a + b


@emitter("sum", "mean", "max", "empty")
def _reduce(kernel: Kernel) -> None:
    (x,), op = kernel.operands, kernel.node.op
    axis, y = kernel.attr("axis") % x.type.rank, kernel.result
    count = x.shape[axis]
    kept = op == "empty" or kernel.attr("keepdims")

    def value(i: Indices, k: Expr) -> Expr:
        element = x[(*i[:axis], k, *i[axis + kept :])]
        return tirx.EQ(element, T.float32(-math.inf)) if op == "empty" else element

    def finish(total: Expr) -> Expr:
        return total / T.cast(count, y.dtype) if op == "mean" else total

    combine = {"max": extremum(kernel.loops, "maximum"), "empty": tirx.And}.get(op, add)
    start = {"max": _lowest, "empty": _true}.get(op, _zero)(y.dtype)
    if op == "empty" or axis == x.type.rank - 1:
        lanes = 1 if op == "empty" else kernel.loops.lanes
        _rows(kernel, count, value, combine, start, finish, lanes)
    else:
        _columns(kernel, count, value, combine, start, finish)


@emitter("matmul", "weighted_sum")
def _matmul(kernel: Kernel) -> None:
    a, b = kernel.operands

    def value(i: Indices, k: Expr) -> Expr:
        weight = a.at((*i[:-1], k))
        term = weight * b.at((*i[:-2], k, i[-1]))
        if kernel.node.op == "matmul":
            return term
        return T.Select(tirx.EQ(weight, T.float32(0)), T.float32(0), term)

    _columns(kernel, a.shape[-1], value, add, T.float32(0), lambda total: total)


def _rows(
    kernel: Kernel,
    count: Expr,
    value: Callable[[Indices, Expr], Expr],
    combine: Combine,
    start: Expr,
    finish: Callable[[Expr], Expr],
    lanes: int,
) -> None:
    """y[i] = finish(value(i, 0) + value(i, 1) + ...), the sum in `lanes` parts (see `fold`)."""
    loops, y = kernel.loops, kernel.result

    def row(i: Indices) -> None:
        y.store(i, finish(fold(loops, count, lambda k: value(i, k), combine, start, lanes)))

    loops.each(y.shape, row, count)


def _columns(
    kernel: Kernel,
    count: Expr,
    value: Callable[[Indices, Expr], Expr],
    combine: Combine,
    start: Expr,
    finish: Callable[[Expr], Expr],
) -> None:
    """The same where the values of a k are contiguous along the last axis of y."""
    loops, y = kernel.loops, kernel.result
    if loops.lanes == 1 or not y.shape:
        _rows(kernel, count, value, combine, start, finish, 1)
        return

    def tile(at: Callable[[Expr], Indices], size: Expr) -> None:
        totals = fold_columns(loops, size, count, lambda j, k: value(at(j), k), combine, start)
        with loop(size) as j:
            y.store(at(j), finish(totals[j]))

    _each_tile(kernel, y.shape, tile, count)


def _each_tile(
    kernel: Kernel,
    shape: Sequence[Expr],
    body: Callable[[Callable[[Expr], Indices], Expr], None],
    count: Expr,
) -> None:
    """`body(at, size)` for each run of up to COLUMNS elements along the last axis of `shape`:
    at(j) are the indices of its element j < size, each of which reads `count` elements."""
    loops, width = kernel.loops, shape[-1]

    def tile(i: Indices) -> None:
        first = loops.hold(i[-1] * COLUMNS)
        body(lambda j: (*i[:-1], first + j), loops.hold(T.min(width - first, i64(COLUMNS))))

    tiles = T.truncdiv(width + (COLUMNS - 1), i64(COLUMNS))
    loops.each((*shape[:-1], tiles), tile, count * COLUMNS)


def fold_columns(
    loops: Loops,
    size: Expr,
    count: Expr,
    value: Callable[[Expr, Expr], Expr],
    combine: Combine,
    start: Expr,
) -> Any:
    """Cells of which cell j < size holds start + value(j, 0) + ... + value(j, count - 1), where
    `combine` is +."""
    totals = loops.cells(str(start.ty.dtype), COLUMNS)
    with loop(size) as j:
        T.buffer_store(totals, start, [j])
    with loop(count) as k:
        with loop(size) as j:
            T.buffer_store(totals, combine(totals[j], value(j, k)), [j])
    return totals


def fold(
    loops: Loops,
    count: Expr,
    value: Callable[[Expr], Expr],
    combine: Combine,
    start: Expr,
    lanes: int,
) -> Expr:
    """start + value(0) + ... + value(count - 1), where `combine` is +, in `lanes` partial sums.

    Value k goes to sum k % lanes: more sums round less than one. With several, `value` is asked
    for vectors too: its k is then a ramp.
    """
    totals = loops.cells(str(start.ty.dtype), lanes)

    def take(lane: Expr, k: Expr) -> None:
        T.buffer_store(totals, combine(totals[lane], value(k)), [lane])

    with loop(i64(lanes)) as lane:
        T.buffer_store(totals, start, [lane])
    if lanes == 1:
        with loop(count) as k:
            take(i64(0), k)
        return totals[0]
    with loop(T.truncdiv(count, i64(lanes))) as step:
        take(T.ramp(i64(0), 1, lanes), T.ramp(step * lanes, 1, lanes))
    rest = T.truncmod(count, i64(lanes))
    with loop(rest) as lane:
        take(lane, count - rest + lane)
    while lanes > 1:
        lanes //= 2
        with loop(i64(lanes)) as lane:
            T.buffer_store(totals, combine(totals[lane], totals[lane + lanes]), [lane])
    return totals[0]


@emitter("softmax")
def _softmax(kernel: Kernel) -> None:
    axis = kernel.attr("axis") % kernel.result.type.rank
    if axis == kernel.result.type.rank - 1 or kernel.loops.lanes == 1:
        _softmax_rows(kernel, axis)
    else:
        _softmax_columns(kernel, axis)


# -inf - -inf would be NaN: against 0, a row of -inf has weights of 0, whose sum is taken for 1.


def _finite(high: Expr) -> Expr:
    return tirx.Select(high == T.float32(-math.inf), T.float32(0), high)


def _divisor(total: Expr) -> Expr:
    return tirx.Select(total == T.float32(0), T.float32(1), total)


def _softmax_rows(kernel: Kernel, axis: int) -> None:
    (x,), y, loops = kernel.operands, kernel.result, kernel.loops
    count, exp = x.shape[axis], loops.functions["exp"]
    maximum = extremum(loops, "maximum")
    # A weight of 16 bits would be rounded when it is kept, and again when it is divided.
    keeps = y.type.dtype.value not in NARROW

    def row(at: Callable[[Expr], Indices]) -> None:
        lowest = T.float32(-math.inf)
        high = loops.hold(fold(loops, count, lambda k: x[at(k)], maximum, lowest, loops.lanes))
        high = loops.hold(_finite(high))

        def weight(k: Expr) -> Expr:
            score = x[at(k)]
            lanes = int(score.ty.dtype.lanes)
            return loops.hold(exp(score - (T.broadcast(high, lanes) if lanes > 1 else high)))

        def weigh(k: Expr) -> Expr:
            found = weight(k)
            if keeps:
                y.store(at(k), found)
            return found

        total = loops.hold(fold(loops, count, weigh, add, T.float32(0), loops.lanes))
        total = loops.hold(_divisor(total))
        with loop(count) as k:
            y.store(at(k), (y[at(k)] if keeps else weight(k)) / total)

    _each_line(kernel, x, axis, row)


def _softmax_columns(kernel: Kernel, axis: int) -> None:
    (x,), y, loops = kernel.operands, kernel.result, kernel.loops
    count, exp = x.shape[axis], loops.functions["exp"]
    maximum, lowest = extremum(loops, "maximum"), T.float32(-math.inf)

    def tile(at: Callable[[Expr], Indices], size: Expr) -> None:
        def element(j: Expr, k: Expr) -> Indices:
            return (*at(j)[:axis], k, *at(j)[axis:])

        high = fold_columns(loops, size, count, lambda j, k: x[element(j, k)], maximum, lowest)
        with loop(size) as j:
            T.buffer_store(high, _finite(high[j]), [j])

        def weigh(j: Expr, k: Expr) -> Expr:
            weight = loops.hold(exp(x[element(j, k)] - high[j]))
            y.store(element(j, k), weight)
            return weight

        total = fold_columns(loops, size, count, weigh, add, T.float32(0))
        with loop(size) as j:
            T.buffer_store(total, _divisor(total[j]), [j])
        with loop(count) as k:
            with loop(size) as j:
                y.store(element(j, k), y[element(j, k)] / total[j])

    _each_tile(kernel, (*x.shape[:axis], *x.shape[axis + 1 :]), tile, count)


@emitter("cumsum")
def _cumsum(kernel: Kernel) -> None:
    (x,), y, loops = kernel.operands, kernel.result, kernel.loops
    axis = kernel.attr("axis") % x.type.rank

    def line(at: Callable[[Expr], Indices]) -> None:
        total = loops.cells(y.dtype)
        T.buffer_store(total, tirx.const(0, y.dtype), [0])
        with loop(x.shape[axis]) as k:
            T.buffer_store(total, total[0] + x[at(k)], [0])
            y.store(at(k), total[0])

    _each_line(kernel, x, axis, line)


@emitter("topk")
def _topk(kernel: Kernel) -> None:
    """Insertion into the sorted list of the best so far, which is the result itself."""
    (x,), (values, order), loops = kernel.operands, kernel.results, kernel.loops
    k = i64(kernel.attr("k"))

    def line(at: Callable[[Expr], Indices]) -> None:
        place = loops.cells("int64")
        with loop(x.shape[-1]) as j:
            candidate = loops.hold(x[at(j)])
            T.buffer_store(place, T.min(j, k), [0])
            before = T.max(place[0] - 1, i64(0))
            with T.While(tirx.And(place[0] > 0, _above(candidate, values[at(before)]))):
                with T.If(place[0] < k):
                    with T.Then():
                        values.store(at(place[0]), values[at(before)])
                        order.store(at(place[0]), order[at(before)])
                T.buffer_store(place, place[0] - 1, [0])
            with T.If(place[0] < k):
                with T.Then():
                    values.store(at(place[0]), candidate)
                    order.store(at(place[0]), j)

    _each_line(kernel, x, x.type.rank - 1, line)


def _above(a: Expr, b: Expr) -> Expr:
    """Whether a comes before b in descending order, NaN first; not so if they are equal."""
    if not is_float(a):
        return a > b
    return tirx.Or(a > b, tirx.And(T.isnan(a), tirx.Not(T.isnan(b))))


def _each_line(
    kernel: Kernel, x: Tensor, axis: int, body: Callable[[Callable[[Expr], Indices]], None]
) -> None:
    """`body(at)` for each line of x along `axis`, where at(k) are the indices of its element k."""
    others = (*x.shape[:axis], *x.shape[axis + 1 :])
    kernel.loops.each(
        others, lambda i: body(lambda k: (*i[:axis], k, *i[axis:])), work=x.shape[axis]
    )


def _true(dtype: str) -> Expr:
    return tirx.const(True, dtype)


def _zero(dtype: str) -> Expr:
    return tirx.const(0, dtype)


def _lowest(dtype: str) -> Expr:
    return T.float32(-math.inf) if dtype == "float32" else tirx.min_value(dtype)


def loop(count: Expr) -> Any:
    """for k in range(count)."""
    return T.serial(i64(0), count)
