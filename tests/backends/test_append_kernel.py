"""What puts new rows into caches, and turns them before, against the formula in float64: on the
CPU, and on the emulated GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from cuda_emulator.prim_funcs import CudaOnCpu, numpy_of
from helpers.tolerance import UNIT, assert_within

from tfgraph import ops
from tfgraph.backends.base import Target, find_backend
from tfgraph.backends.tvm.cuda.append import append, chunk_of_append
from tfgraph.backends.tvm.kernels import AppendShape, Columns, TurnShape
from tfgraph.ir import Fill, Graph

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfgraph.backends.base import Executable

NDArray = np.ndarray[Any, Any]


def qkv(q: int, k: int, v: int, before: int = 0, behind: int = 0) -> tuple[Columns, ...]:
    """Of these widths, side by side in one array, with columns before and behind."""
    pitch = before + q + k + v + behind
    starts = before, before + q, before + q + k
    return tuple(Columns(n, pitch, start) for n, start in zip((q, k, v), starts, strict=True))


def turned(
    windows: tuple[Columns, ...],
    heads: tuple[int, int],
    half: int,
    *,
    interleaved: bool = False,
    by_entry: bool = True,
) -> AppendShape:
    q, *rows = windows
    return AppendShape(tuple(rows), TurnShape(q, *heads, half, interleaved, by_entry))


APART = Columns(8, 8, 0), Columns(8, 8, 0), Columns(16, 16, 0)
SHAPES = {
    "one": AppendShape((Columns(7, 20, 5),)),
    "two": AppendShape(qkv(0, 8, 16)[1:]),
    "odd": AppendShape(qkv(3, 8, 5)[1:]),
    "turned": turned(qkv(64, 32, 32), (4, 2), 8),
    "shared_angles": turned(APART, (1, 1), 4, by_entry=False),
    "partly": turned(qkv(64, 32, 32), (2, 1), 8),
    "neighbours": turned(qkv(64, 32, 32), (4, 2), 8, interleaved=True),
    "neighbours_partly": turned(qkv(64, 32, 24), (4, 2), 4, interleaved=True, by_entry=False),
    "of_odd_heads": turned(qkv(21, 7, 4, 1, 2), (3, 1), 2),
    "of_odd_neighbours": turned(qkv(10, 5, 4), (2, 1), 1, interleaved=True),
    "many": turned(qkv(1024, 512, 512), (8, 4), 64),
}
NORMAL = {"float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}
"""The smallest number that is rounded relative to itself."""
VECTORS = {"two", "turned", "partly", "neighbours", "neighbours_partly", "many"}
"""Those of which a thread takes sixteen bytes of 16-bit numbers."""
ON_GPU = [(name, "float16") for name in SHAPES]
ON_GPU += [(name, t) for name in ("two", "turned", "of_odd_heads") for t in ("float32", "bfloat16")]


def turn(x: NDArray, cos: NDArray, sin: NDArray, heads: int, interleaved: bool) -> NDArray:
    """Su et al. 2021: pairs (a, b) of each head become (a cos - b sin, b cos + a sin)."""
    batch, seq, width = x.shape
    y, half = x.reshape(batch, seq, heads, width // heads).copy(), cos.shape[-1]
    cos, sin = (np.broadcast_to(t, (batch, seq, half))[:, :, None] for t in (cos, sin))
    firsts = np.arange(half) * 2 if interleaved else np.arange(half)
    seconds = firsts + (1 if interleaved else half)
    a, b = y[..., firsts].copy(), y[..., seconds].copy()
    y[..., firsts], y[..., seconds] = a * cos - b * sin, b * cos + a * sin
    return y.reshape(x.shape)


class Run:
    """Arguments of a kernel, drawn, and what becomes of them."""

    def __init__(self, shape: AppendShape, sizes: tuple[int, int, int, int]) -> None:
        batch, seq, self.at, behind = sizes
        self.shape, self.rows = shape, slice(self.at, self.at + seq)
        self.heads = [0 if shape.turn is None else shape.turn.kv_heads, 0][: len(shape.rows)]
        rng, dtype = np.random.default_rng(sizes), numpy_of(shape.dtype)

        def draw(*dims: int) -> NDArray:
            return rng.standard_normal(dims).astype(dtype)

        self.caches = [draw(batch, self.at + seq + behind, c.width) for c in shape.rows]
        self.before = [cache.copy() for cache in self.caches]
        self.added = [draw(batch, seq, c.pitch) for c in shape.rows]
        self.given: list[NDArray] = []
        if shape.turn is not None:
            angles = (batch,) * shape.turn.by_entry + (seq, shape.turn.half)
            widths = (batch, seq, shape.turn.queries.pitch), angles, angles
            self.given = [draw(*dims) for dims in widths]

    @property
    def arguments(self) -> list[Any]:
        """But for the result."""
        return [*self.caches, *self.added, *self.given, self.at]

    def check(self, results: list[Any]) -> None:
        """The caches, and the result, where there is one."""
        for before, cache in zip(self.before, self.caches, strict=True):
            before[:, self.rows] = cache[:, self.rows]
            np.testing.assert_array_equal(cache.view("i1"), before.view("i1"))
        new = [cache[:, self.rows] for cache in self.caches]
        moves = list(zip(new, self.added, self.shape.rows, self.heads, strict=True))
        if self.shape.turn is not None:
            turn_ = self.shape.turn
            moves.append((results[0], self.given[0], turn_.queries, turn_.heads))
        for found, source, columns, heads in moves:
            self._check(found, source[..., columns.offset :][..., : columns.width], heads)

    def _check(self, found: NDArray, x: NDArray, heads: int) -> None:
        if not heads:  # moved as it is
            np.testing.assert_array_equal(found.view("i1"), x.view("i1"))
            return
        assert self.shape.turn is not None
        interleaved, unit = self.shape.turn.interleaved, UNIT[self.shape.dtype]
        x, cos, sin = (a.astype(np.float64) for a in (x, *self.given[1:]))
        want = turn(x, cos, sin, heads, interleaved)
        x, cos, sin = map(np.abs, (x, cos, sin))
        terms = turn(x, cos, sin, heads, interleaved), turn(x, cos, -sin, heads, interleaved)
        terms = np.maximum(*map(np.abs, terms))  # one of both is the sum of the sizes
        stored = unit * np.maximum(np.abs(want), NORMAL[self.shape.dtype])
        assert_within(found, want, 1.01 * (stored + 2 * UNIT["float32"] * terms))


SIZES = [(1, 1, 0, 0), (2, 3, 4, 1), (3, 1, 6, 0)]


def graph_of(shape: AppendShape) -> Graph:
    """The op that a kernel is for, on windows of its inputs, of states."""
    with ops.graph("append") as g:
        batch, end = g.symbol("batch", 1, 9), g.symbol("end", 1, 99)
        g.constrain("seq", "<=", end)
        g.constrain(end, "<=", "capacity")
        states = [
            g.input(f"cache{i}", shape.dtype, batch, "capacity", c.width, fill=Fill("state"))
            for i, c in enumerate(shape.rows)
        ]

        def window(name: str, c: Columns) -> Any:
            x = g.input(name, shape.dtype, batch, "seq", c.pitch)
            return ops.slice_(x, axis=2, start=c.offset, stop=c.offset + c.width)

        rows = [window(f"new{i}", c) for i, c in enumerate(shape.rows)]
        at, turn = end - "seq", shape.turn
        made: tuple[Any, ...]
        if turn is not None:
            q = window("queries", turn.queries)
            angles = (batch,) * turn.by_entry + ("seq", turn.half)
            tables = [g.input(name, shape.dtype, *angles) for name in ("cos", "sin")]
            heads = {"heads": turn.heads, "kv_heads": turn.kv_heads}
            y, *made = ops.rotary_append_kv(
                *states, q, *rows, *tables, at=at, interleaved=turn.interleaved, **heads
            )
            g.output("turned", y)
        elif len(rows) == 2:
            made = ops.append_kv(*states, *rows, at=at)
        else:
            made = (ops.cache_append(*states, *rows, at=at),)
        for i, after in enumerate(made):
            g.output(f"cache{i}", after)
    return g.build()


@pytest.fixture(scope="module")
def on_cpu() -> Iterator[Mapping[str, Executable]]:
    first, *names = SHAPES
    others = {name: graph_of(SHAPES[name]) for name in names}
    with find_backend("cpu").compile(graph_of(SHAPES[first]), {}, Target("cpu"), others) as run:
        yield {first: run, **run.functions}


@pytest.mark.parametrize("name", SHAPES)
def test_on_the_cpu(on_cpu: Mapping[str, Executable], name: str) -> None:
    for sizes in [*SIZES, (1, 70, 3, 0)]:
        run = Run(SHAPES[name], sizes)
        names = [f"{kind}{i}" for kind in ("cache", "new") for i in range(len(run.caches))]
        given = dict(zip(names, [*run.caches, *run.added], strict=True))
        given |= zip(("queries", "cos", "sin"), run.given, strict=False)
        results = on_cpu[name](**given, dims={"end": run.rows.stop})
        run.caches = [results[f"cache{i}"] for i in range(len(run.caches))]
        run.check([results.get("turned")])


@pytest.fixture(scope="module")
def on_gpu(tmp_path_factory: pytest.TempPathFactory) -> CudaOnCpu:
    kernels = {
        f"{name}_{dtype}": append(f"{name}_{dtype}", replace(SHAPES[name], dtype=dtype))
        for name, dtype in ON_GPU
    }
    return CudaOnCpu(kernels, tmp_path_factory.mktemp("append"))


@pytest.mark.parametrize(("name", "dtype"), ON_GPU)
def test_on_the_gpu(on_gpu: CudaOnCpu, name: str, dtype: str) -> None:
    shape = replace(SHAPES[name], dtype=dtype)
    for sizes in SIZES:
        run = Run(shape, sizes)
        run.check(on_gpu(f"{name}_{dtype}", *run.arguments))


def test_vectors_are_taken_where_all_is_aligned() -> None:
    halves = {name: replace(shape, dtype="float16") for name, shape in SHAPES.items()}
    assert {name for name, shape in halves.items() if chunk_of_append(shape) == 8} == VECTORS
