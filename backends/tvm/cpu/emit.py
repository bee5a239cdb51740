"""Small helpers for writing kernels with TVM's IRBuilder. May import: tvm."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

Expr = Any
Buffer = Any


@contextmanager
def function(name: str) -> Generator[IRBuilder, None, None]:
    """Open a PrimFunc of this name: declare arguments, then a `body`; `get()` it afterwards."""
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name(name)
            T.func_attr({"tirx.noalias": True})
            yield builder


@contextmanager
def body() -> Generator[None, None, None]:
    """The root block, which `call_tir` requires."""
    with T.sblock("root"):
        T.reads()
        T.writes()
        yield


def symbol(name: str) -> Expr:
    """A size known at run time; buffers that share it bind it."""
    return tirx.Var(name, "int64")


def argument(name: str, shape: Sequence[Any], dtype: str = "float32") -> Buffer:
    """An array argument."""
    return T.arg(name, T.buffer(tuple(shape), dtype, buffer_name=name))


def scalar_argument(name: str) -> Expr:
    """An int64 argument."""
    return T.arg(name, tirx.Var(name, "int64"))


def workspace(size: int, name: str) -> Buffer:
    """A float32 buffer: in registers up to 1 KiB if every index is static, else in memory."""
    return IRBuilder.name(name, T.alloc_buffer((size,), "float32"))


def hold(value: Expr, name: str = "r") -> Expr:
    """`value`, computed once and kept in a register, to be used any number of times.

    It is stored in a buffer of its own, which LLVM keeps in a register. A `Let` or `Bind` would
    not do: TVM puts pure values back where they are used, expressions grow exponentially, and its
    index analysis takes seconds.
    """
    scalar, lanes = value.ty.dtype.with_lanes(1), int(value.ty.dtype.lanes)
    buffer = IRBuilder.name(name, T.alloc_buffer((lanes,), str(scalar)))
    index = T.ramp(0, 1, lanes) if lanes > 1 else 0
    T.buffer_store(buffer, value, [index])
    return buffer[index]


def loop(count: Expr | int) -> Any:
    """for i in range(count), i an int64."""
    return T.serial(i64(0), i64(count) if isinstance(count, int) else count)


def load(buffer: Buffer, start: Expr | int, lanes: int) -> Expr:
    """buffer[start : start + lanes] of a one-dimensional buffer."""
    return buffer[T.ramp(start, 1, lanes)]


def store(buffer: Buffer, start: Expr | int, value: Expr) -> None:
    """Set buffer[start : start + lanes of value]."""
    T.buffer_store(buffer, value, [T.ramp(start, 1, int(value.ty.dtype.lanes))])


def gather(lanes: int, element: Callable[[Expr], Expr]) -> Expr:
    """The vector (element(0), element(1), ...), its elements loaded one by one."""
    buffer = IRBuilder.name("lanes", T.alloc_buffer((lanes,), str(element(i64(0)).ty.dtype)))
    with loop(lanes) as lane:
        T.buffer_store(buffer, element(lane), [lane])
    return buffer[T.ramp(0, 1, lanes)]


def transpose(rows: Sequence[Expr]) -> list[Expr]:
    """The columns of a square of as many vectors as each has lanes.

    At each step, rows `step` apart exchange the halves of their blocks of 2 * step lanes.
    """
    vectors = [hold(row) for row in rows]
    size, step = len(rows), len(rows) // 2
    while step:
        low = [lane if not lane & step else size + lane - step for lane in range(size)]
        high = [lane + step if not lane & step else size + lane for lane in range(size)]
        for i in (i for i in range(size) if not i & step):
            pair = [vectors[i], vectors[i + step]]
            vectors[i], vectors[i + step] = (
                hold(tirx.Shuffle(pair, [tirx.const(k, "int32") for k in order]))
                for order in (low, high)
            )
        step //= 2
    return vectors


def splat(value: float, lanes: int) -> Expr:
    """A float32 constant in every lane."""
    return T.broadcast(T.float32(value), lanes)


def i64(value: int) -> Expr:
    """An int64 constant."""
    return tirx.const(value, "int64")
