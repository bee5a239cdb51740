"""How the elements of a result are dealt out: in loops over tasks on a CPU, to threads on a GPU.

A generic kernel says what happens at one index; these say in which order. May import: tvm,
backends.base, tfgraph.backends.tvm.cpu and .cuda (their expressions), ir.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import reduce
from typing import Any, ClassVar

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tfgraph.backends.base import FLOATS
from tfgraph.backends.tvm.cpu import vector_math
from tfgraph.backends.tvm.cuda.vectors import vector_of
from tfgraph.ir import DType, TensorType

Expr = Any
Indices = tuple[Expr, ...]
Body = Callable[[Indices], None]

ROW = 64
"""Elements an innermost loop has at least, where the shape allows: decoding an index costs."""

GRAIN = 16384
"""Elements a task takes at least: some microseconds, more than it costs to start a thread."""

THREADS = 256
"""Threads of a block on a GPU."""


class Loops(ABC):
    """Emits statements around a body, within a function that is being built."""

    scope: ClassVar[str]
    """The memory in which a loop body keeps its own variables."""
    lanes: ClassVar[int]
    """Partial results that a reduction along contiguous elements keeps, in a vector register."""
    scheduled: ClassVar[bool]
    """Whether loops are bound to threads of a GPU."""
    functions: ClassVar[dict[str, Callable[[Expr], Expr]]]
    """exp, log, sin, ...: float32 functions by the names of ops."""
    floats: ClassVar[tuple[DType, ...]]
    """The float types that arrays may have."""

    @abstractmethod
    def each(self, shape: Sequence[Expr], body: Body, work: Expr | int = 1) -> None:
        """`body(indices)` for each index of `shape`, in any order or at once.

        `work` is about how many elements one call reads.
        """

    @abstractmethod
    def extremum(self, name: str, a: Expr, b: Expr) -> Expr:
        """The "maximum" or "minimum" of two float32 numbers; NaN if either is."""

    def chunk(self, type_: TensorType) -> int:
        """How many neighbours of the last axis of a result one call of a body may make at once."""
        return 1

    def cells(self, dtype: str, count: int = 1, name: str = "cells") -> Any:
        """Variables of one call of the body: a buffer [count], in registers if it is small."""
        buffer = T.alloc_buffer((count,), dtype, scope=self.scope)
        IRBuilder.name(name, buffer)
        return buffer

    def hold(self, value: Expr, name: str = "value") -> Expr:
        """The value, a scalar or a vector, computed once."""
        dtype = value.ty.dtype
        lanes = int(dtype.lanes)
        cell = self.cells(str(dtype.with_lanes(1)), lanes, name)
        index = T.ramp(0, 1, lanes) if lanes > 1 else 0
        T.buffer_store(cell, value, [index])
        return cell[index]


class CpuLoops(Loops):
    """Rows of the result dealt to all threads in tasks of GRAIN elements; small results to none.

    How elements are dealt never changes how one is computed: bits don't depend on the threads.
    """

    scope, lanes, scheduled = "global", 16, False
    floats = FLOATS["cpu"]
    functions: ClassVar[dict[str, Callable[[Expr], Expr]]] = {
        "exp": vector_math.exp,
        "log": vector_math.log,
        "tanh": vector_math.tanh,
        "erf": vector_math.erf,
        "sin": T.sin,
        "cos": T.cos,
        "sqrt": T.sqrt,
        "floor": T.floor,
    }

    def extremum(self, name: str, a: Expr, b: Expr) -> Expr:
        return tirx.call_llvm_pure_intrin(a.ty, f"llvm.{name}", a, b)

    def each(self, shape: Sequence[Expr], body: Body, work: Expr | int = 1) -> None:
        axes = [axis for axis, size in enumerate(shape) if known(size) != 1]
        first = self._first_inner([shape[a] for a in axes], as_expr(work))
        outer, inner = axes[:first], axes[first:]

        def row(number: Expr) -> None:
            indices = [i64(0)] * len(shape)
            found = unravel(number, [shape[a] for a in outer], self.hold)
            for axis, index in zip(outer, found, strict=True):
                indices[axis] = index
            with ExitStack() as nest:
                for axis in inner:
                    indices[axis] = nest.enter_context(T.serial(i64(0), shape[axis]))
                body(tuple(indices))

        rows = product(shape[a] for a in outer)
        width = product([*(shape[a] for a in inner), as_expr(work)])
        self._deal(rows, width, row)

    def _first_inner(self, sizes: Sequence[Expr], work: Expr) -> int:
        """Where the axes begin that form a row; at least one axis stays outside."""
        first = len(sizes)
        row = known(work)
        while first > 1 and row is not None and row < ROW:
            first -= 1
            size = known(sizes[first])
            row = None if size is None else row * size
        return first

    def _deal(self, rows: Expr, width: Expr, row: Callable[[Expr], None]) -> None:
        fixed_rows, fixed_width = known(rows), known(width)
        if fixed_rows is not None and fixed_width is not None and fixed_rows * fixed_width <= GRAIN:
            with T.serial(i64(0), rows) as number:
                row(number)
            return
        chunk = self.hold(T.max(T.truncdiv(i64(GRAIN), T.max(width, i64(1))), i64(1)))
        with T.If(rows <= chunk):
            with T.Then():
                with T.serial(i64(0), rows) as number:
                    row(number)
            with T.Else():
                with T.parallel(i64(0), T.truncdiv(rows + chunk - 1, chunk)) as task:
                    start = self.hold(task * chunk)
                    with T.serial(i64(0), T.min(chunk, rows - start)) as i:
                        row(start + i)


class GpuLoops(Loops):
    """A thread an index, in a flat grid."""

    scope, lanes, scheduled = "local", 1, True
    floats = FLOATS["cuda"]
    functions: ClassVar[dict[str, Callable[[Expr], Expr]]] = {
        name: getattr(T, name)
        for name in ("exp", "log", "tanh", "erf", "sin", "cos", "sqrt", "floor")
    }

    def extremum(self, name: str, a: Expr, b: Expr) -> Expr:
        a, b = self.hold(a), self.hold(b)
        first, second = (a, b) if name == "maximum" else (b, a)
        # Where one is NaN neither comparison holds, and the sum is NaN.
        return tirx.Select(first > second, a, tirx.Select(second >= first, b, a + b))

    def each(self, shape: Sequence[Expr], body: Body, work: Expr | int = 1) -> None:
        total = product(shape)
        # A grid has a block at least, even where nothing is to be done.
        blocks = T.max(T.floordiv(total + (THREADS - 1), i64(THREADS)), i64(1))
        with T.launch_thread("blockIdx.x", blocks) as block:
            with T.launch_thread("threadIdx.x", THREADS) as thread:
                index = T.cast(block, "int64") * THREADS + T.cast(thread, "int64")
                number = self.hold(index, "element")
                with T.If(number < total):
                    with T.Then():
                        body(tuple(unravel(number, shape, self.hold)))


class CudaLoops(GpuLoops):
    """With the words of CUDA: sixteen bytes a thread where rows are made of such."""

    def chunk(self, type_: TensorType) -> int:
        """Sixteen bytes of a float, where rows are made of such."""
        if type_.dtype not in self.floats or not type_.shape or not type_.shape[-1].is_const:
            return 1
        return vector_of(type_.dtype.value, int(type_.shape[-1]))


def unravel(number: Expr, sizes: Sequence[Expr], hold: Callable[[Expr, str], Expr]) -> list[Expr]:
    """The indices in an array of these sizes whose row-major number it is."""
    indices: list[Expr] = []
    for axis in range(len(sizes) - 1, 0, -1):
        # Nothing is negative here, so that truncation is the floor and takes one instruction.
        indices.insert(0, hold(T.truncmod(number, sizes[axis]), f"i{axis}"))
        number = hold(T.truncdiv(number, sizes[axis]), "i0" if axis == 1 else "rest")
    return [number, *indices] if sizes else []


def product(sizes: Any) -> Expr:
    """The product of int64 expressions."""
    return reduce(lambda a, b: a * b, sizes, i64(1))


def known(size: Expr) -> int | None:
    """The value of a constant expression, else None."""
    return int(size) if isinstance(size, tirx.IntImm) else None


def as_expr(size: Expr | int) -> Expr:
    """An int as an int64 constant."""
    return i64(size) if isinstance(size, int) else size


def i64(value: int) -> Expr:
    """An int64 constant."""
    return tirx.const(value, "int64")
