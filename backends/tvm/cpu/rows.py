"""What kernels over the last axis share: rows taken vector by vector, and rows dealt to threads.

May import: tvm, tfgraph.backends.tvm.cpu.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tfgraph.backends.tvm.cpu.emit import hold, i64, loop, store, workspace
from tfgraph.backends.tvm.cpu.gemm_tile import load_masked, store_masked

Expr = Any

UNROLL = 4
"""Vectors a loop step takes, each with a sum of its own, so that additions need not wait."""

_TASK_ELEMENTS = 8192
"""Elements a task takes at least: some microseconds of work, more than a thread costs to start."""


@dataclass(frozen=True)
class Part:
    """The vector of columns start .. start + lanes - 1, of which the first `count` exist."""

    start: Expr
    count: Expr | int
    lanes: int

    @property
    def whole(self) -> bool:
        """Whether all of its columns are known to exist."""
        return isinstance(self.count, int) and self.count == self.lanes

    def load(self, buffer: Any, *row: Expr) -> Expr:
        """The elements of buffer[row], 0 for those that do not exist."""
        if self.whole:
            return buffer[(*row, T.ramp(self.start, 1, self.lanes))]
        return load_masked(buffer, [*row, self.start], self.lanes, self._count)

    def store(self, buffer: Any, value: Expr, *row: Expr) -> None:
        """Set those elements of buffer[row] that exist."""
        if self.whole:
            T.buffer_store(buffer, value, [*row, T.ramp(self.start, 1, self.lanes)])
        else:
            store_masked(buffer, [*row, self.start], value, self._count)

    def or_else(self, value: Expr, other: Expr) -> Expr:
        """`value`, but `other` in lanes that do not exist."""
        if self.whole:
            return value
        lane = T.ramp(i64(0), 1, self.lanes)
        return tirx.Select(lane < T.broadcast(self._count, self.lanes), value, other)

    @property
    def _count(self) -> Expr:
        return i64(self.count) if isinstance(self.count, int) else self.count


def each_part(width: Expr | int, lanes: int, emit: Callable[[int, Part], None]) -> None:
    """`emit(u, part)` for each part of a row; u < UNROLL differs within a step of the loop, and is
    0 behind it. So a sum for each u adds up in one order, whether the width is known or not."""
    step = UNROLL * lanes
    size = i64(width) if isinstance(width, int) else width
    done = T.floordiv(size, i64(step)) * step
    if not isinstance(width, int) or width >= step:
        with loop(T.floordiv(size, i64(step))) as i:
            for u in range(UNROLL):
                emit(u, Part(i * step + u * lanes, lanes, lanes))
    if isinstance(width, int):
        first, rest = width // step * step, width % step
        for u in range(-(-rest // lanes)):
            emit(0, Part(i64(first + u * lanes), min(lanes, rest - u * lanes), lanes))
    else:
        with loop(T.ceildiv(size - done, i64(lanes))) as i:
            start = hold(done + i * lanes)
            emit(0, Part(start, size - start, lanes))


def each_row(rows: Expr, width: Expr | int, emit: Callable[[Expr], None]) -> None:
    """`emit(row)` for each row: in this thread where there are few, else dealt to all threads."""
    size = i64(width) if isinstance(width, int) else width
    chunk = hold(T.max(T.ceildiv(i64(_TASK_ELEMENTS), size), i64(1)))
    with T.If(rows <= chunk):
        with T.Then():
            with loop(rows) as row:
                emit(row)
        with T.Else():
            with T.parallel(i64(0), T.ceildiv(rows, chunk)) as task:
                first = hold(task * chunk)
                with loop(T.min(chunk, rows - first)) as i:
                    emit(hold(first + i))


def sum_lanes(vector: Expr) -> Expr:
    """The sum of all lanes, halves first: the same tree for every row."""
    return _fold_lanes(vector, lambda a, b: a + b)


def max_lanes(vector: Expr) -> Expr:
    """The largest lane."""
    return _fold_lanes(vector, T.max)


def _fold_lanes(vector: Expr, combine: Callable[[Expr, Expr], Expr]) -> Expr:
    lanes = int(vector.ty.dtype.lanes)
    while lanes > 2:
        lanes //= 2
        vector = hold(vector)
        dtype = f"float32x{lanes}"
        vector = combine(T.vectorlow(dtype, vector), T.vectorhigh(dtype, vector))
    pair = workspace(2, "pair")
    store(pair, 0, vector)
    return combine(pair[0], pair[1])
