"""Layer norm (Ba et al., 2016) and RMS norm (Zhang and Sennrich, 2019), each with a fused add.

A block takes one row and holds it in registers, so the row is read once, sixteen bytes at a time
where it is made of such; the variance is the mean of squared deviations from the mean, not a
difference of large sums. May import: tvm.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import tirx

from tfgraph.backends.tvm.cuda.kernel import (
    BlockReduction,
    Dim,
    Kernel,
    branch,
    f32,
    flat,
    kernel,
    let,
    local,
    loop,
    pick,
    product,
    reduction_depth,
    store,
    when,
)
from tfgraph.backends.tvm.cuda.vectors import load_vector, store_vector, vector_of

_VALUES_PER_THREAD = 8

STEPS = {"div": 2}
"""Roundings beyond the formula's: the inverse of the root and the product with it."""


def threads_of(width: int) -> int:
    """The threads of the block that takes a row."""
    threads = 128
    while threads < 1024 and width > threads * _VALUES_PER_THREAD:
        threads *= 2
    return threads


def depth(width: int, chunk: int) -> int:
    """How many additions an element passes through: those of its thread, which takes `chunk`
    neighbours at a time, then over the block."""
    threads = threads_of(width)
    return -(-width // (chunk * threads)) * chunk - 1 + reduction_depth(threads)


def layer_norm(
    rows: Sequence[Dim],
    width: int,
    *,
    eps: float,
    add: bool = False,
    scale: bool = True,
    bias: bool = True,
    shift: bool = False,
    keep_sum: bool = False,
    dtype: str = "float32",
    name: str | None = None,
) -> Any:
    """(t - mean(t)) / sqrt(var(t) + eps) * scale + bias, where t = a, or t = (a + shift) + b.

    Parameters in order, as in the ops layer_norm and add_layer_norm: a (*rows, width),
    b (*rows, width) for `add`, scale (width), bias (width), shift (width), each if its keyword is
    true, total (*rows, width), which gets t, for `keep_sum`, out (*rows, width). All are of
    `dtype`; t is float32, and rounded only where it is written.
    The name is layer_norm, or add_layer_norm with `add`, unless it is given.
    """
    with kernel(name or ("add_layer_norm" if add else "layer_norm")) as k:
        row = _Row(
            k,
            rows,
            width,
            vectors=("scale",) * scale + ("bias",) * bias,
            add=add,
            shift=shift,
            keep_sum=keep_sum,
            dtype=dtype,
        )
        with row.launch():
            row.read()
            mean = let("mean", row.sum("sum", lambda t: t) / f32(width))
            squares = row.sum("squares", lambda t: (t - mean) * (t - mean))
            variance = let("variance", squares / f32(width))
            factor = let("factor", f32(1) / tirx.sqrt(variance + f32(eps)))
            row.write(lambda t: (t - mean) * factor)
    return k.function


def rms_norm(
    rows: Sequence[Dim],
    width: int,
    *,
    eps: float,
    add: bool = False,
    scale: bool = True,
    shift: bool = False,
    keep_sum: bool = False,
    dtype: str = "float32",
    name: str | None = None,
) -> Any:
    """t / sqrt(mean(t^2) + eps) * scale, where t = a, or t = (a + shift) + b.

    Parameters as in `layer_norm`, without bias. The name is rms_norm, or add_rms_norm with `add`.
    """
    with kernel(name or ("add_rms_norm" if add else "rms_norm")) as k:
        row = _Row(
            k,
            rows,
            width,
            vectors=("scale",) * scale,
            add=add,
            shift=shift,
            keep_sum=keep_sum,
            dtype=dtype,
        )
        with row.launch():
            row.read()
            mean_square = let("mean_square", row.sum("squares", lambda t: t * t) / f32(width))
            factor = let("factor", f32(1) / tirx.sqrt(mean_square + f32(eps)))
            row.write(lambda t: t * factor)
    return k.function


class _Row:
    """The kernel's arguments, and one row, spread over the registers of a block."""

    def __init__(
        self,
        k: Kernel,
        rows: Sequence[Dim],
        width: int,
        *,
        vectors: tuple[str, ...],
        add: bool,
        shift: bool,
        keep_sum: bool,
        dtype: str,
    ) -> None:
        self.k, self.width = k, width
        dims = k.dims(rows)
        self.rows = product(dims)
        before = ("a", "b") if add else ("a",)
        after = ("total", "out") if keep_sum else ("out",)
        vectors = (*vectors, "shift") if shift else vectors
        self.wide = {name: k.buffer(name, (*dims, width), dtype) for name in before}
        self.vectors = {name: k.buffer(name, (width,), dtype) for name in vectors}
        self.wide |= {name: k.buffer(name, (*dims, width), dtype) for name in after}
        self.threads, self.chunk = threads_of(width), vector_of(dtype, width)
        self.per_thread = -(-width // (self.chunk * self.threads))

    @contextmanager
    def launch(self) -> Generator[None]:
        """A block for each row; within, the steps of one thread."""
        with self.k.launch(blocks=(self.rows,), threads=self.threads) as (block, self.thread):
            self.row = let("row", block)
            shape = (self.rows, self.width)
            self.wide = {name: flat(buffer, shape) for name, buffer in self.wide.items()}
            self.t = local("t", (self.per_thread * self.chunk,))
            self.reduce = BlockReduction(self.thread, self.threads)
            yield

    def read(self) -> None:
        """t = (a + shift) + b; and total = t, where it is asked for. Behind the row, t is 0."""
        with self._columns() as (i, column):
            if self._whole:
                self._read(i, column)
            else:
                branch(column < self.width, lambda: self._read(i, column), lambda: self._fill(i))

    def _read(self, i: Any, column: Any) -> None:
        names = [name for name in ("a", "shift", "b") if name in self.wide | self.vectors]
        terms = [self._load(name, column) for name in names]
        with loop("e", self.chunk, unroll=True) as e:
            t = terms[0][e]
            for term in terms[1:]:
                t = t + term[e]
            store(self.t, [i * self.chunk + e], t)
        if "total" in self.wide:
            place = (self.row, column)
            store_vector(self.wide["total"], place, self.t, self.chunk, i * self.chunk)

    def _fill(self, i: Any) -> None:
        with loop("e", self.chunk, unroll=True) as e:
            store(self.t, [i * self.chunk + e], f32(0))

    def sum(self, name: str, term: Callable[[Any], Any]) -> Any:
        """The sum of term(t) over the row."""
        mine = local("mine", (1,))
        store(mine, [0], f32(0))
        with self._columns() as (i, column), loop("e", self.chunk, unroll=True) as e:
            value = term(self.t[i * self.chunk + e])
            if not self._whole:
                value = pick(column < self.width, value, f32(0))
            store(mine, [0], mine[0] + value)
        return self.reduce(name, mine[0], lambda a, b: a + b)

    def write(self, normed: Callable[[Any], Any]) -> None:
        """out = normed(t) * scale + bias."""
        with self._columns() as (i, column), when(column < self.width):
            scale, bias = (
                self._load(name, column) if name in self.vectors else None
                for name in ("scale", "bias")
            )
            out = local("y", (self.chunk,))
            with loop("e", self.chunk, unroll=True) as e:
                value = normed(self.t[i * self.chunk + e])
                value = value if scale is None else value * scale[e]
                store(out, [e], value if bias is None else value + bias[e])
            store_vector(self.wide["out"], (self.row, column), out, self.chunk)

    def _load(self, name: str, column: Any) -> Any:
        """Neighbours in this row of an array, or in a row that all share."""
        if name in self.vectors:
            return load_vector(f"own_{name}", self.chunk, self.vectors[name], column)
        return load_vector(f"own_{name}", self.chunk, self.wide[name], self.row, column)

    @property
    def _whole(self) -> bool:
        """Whether all threads have as many columns."""
        return self.width == self.per_thread * self.chunk * self.threads

    @contextmanager
    def _columns(self) -> Generator[tuple[Any, Any]]:
        """This thread's columns, by the first of each vector: (number, column); the last may lie
        behind the row's end."""
        if self.per_thread == 1:
            yield 0, let("column", self.thread * self.chunk) if self.chunk > 1 else self.thread
        else:
            with loop("i", self.per_thread, unroll=True) as i:
                yield i, let("column", (i * self.threads + self.thread) * self.chunk)
