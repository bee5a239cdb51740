"""Generic kernels of ops that move elements. May import: tvm, tfgraph.backends.tvm.generic."""

from __future__ import annotations

from typing import Any

from tvm.tirx.script import builder as T

from tfgraph.backends.tvm.generic.kernel import Kernel, Tensor, constant, emitter
from tfgraph.backends.tvm.generic.loops import Indices, i64

Expr = Any


@emitter("reshape")
def _reshape(kernel: Kernel) -> None:
    x, y = kernel.operands[0].flat(), kernel.result.flat()
    kernel.loops.each(y.shape, lambda i: y.store(i, x.raw[i]))


@emitter("transpose")
def _transpose(kernel: Kernel) -> None:
    (x,), perm = kernel.operands, kernel.attr("perm")
    kernel.fill(lambda i: x.raw[[i[perm.index(axis)] for axis in range(len(perm))]])


@emitter("broadcast_to")
def _broadcast_to(kernel: Kernel) -> None:
    (x,) = kernel.operands
    kernel.fill(x.raw.at)


@emitter("concat")
def _concat(kernel: Kernel) -> None:
    axis = kernel.attr("axis") % kernel.result.type.rank
    start: Expr = i64(0)
    for part in kernel.operands:
        _copy_to(kernel, part, axis, start)
        start = start + part.shape[axis]


def _copy_to(kernel: Kernel, part: Tensor, axis: int, start: Expr) -> None:
    def copy(i: Indices) -> None:
        kernel.result.store((*i[:axis], start + i[axis], *i[axis + 1 :]), part.raw[i])

    kernel.loops.each(part.shape, copy)


@emitter("slice")
def _slice(kernel: Kernel) -> None:
    (x,) = kernel.operands
    axis, start = kernel.attr("axis") % x.type.rank, kernel.attr("start")

    def place(i: Indices) -> Indices:
        return (*i[:axis], start + i[axis], *i[axis + 1 :])

    if axis < x.type.rank - 1:
        kernel.move(x, place)
    else:
        kernel.fill(lambda i: x.raw[place(i)])


@emitter("take")
def _take(kernel: Kernel) -> None:
    """An index out of range reads the nearest slice, as in `embedding`."""
    x, indices = kernel.operands
    axis = kernel.attr("axis") % x.type.rank
    end = axis + indices.type.rank

    def place(i: Indices) -> Indices:
        found = T.cast(indices[i[axis:end]], "int64")
        inside = T.max(T.min(found, x.shape[axis] - 1), i64(0))
        return (*i[:axis], inside, *i[end:])

    if axis < x.type.rank - 1:
        kernel.move(x, place)
    else:
        kernel.fill(lambda i: x.raw[place(i)])


@emitter("take_at")
def _take_at(kernel: Kernel) -> None:
    """An index out of range reads the nearest place on its axis, as in `embedding`."""
    x, *indices = kernel.operands
    shared = kernel.result.type.rank - (x.type.rank - len(indices))

    def value(i: Indices) -> Expr:
        found = [
            T.max(T.min(T.cast(given.at(i[:shared]), "int64"), x.shape[axis] - 1), i64(0))
            for axis, given in enumerate(indices)
        ]
        return x.raw[(*found, *i[shared:])]

    kernel.fill(value)


@emitter("iota")
def _iota(kernel: Kernel) -> None:
    kernel.fill(lambda i: i[0])


@emitter("full")
def _full(kernel: Kernel) -> None:
    value = constant(kernel.attr("value"), kernel.result.type.dtype)
    kernel.fill(lambda i: value)
