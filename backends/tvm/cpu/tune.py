"""Tunes the GEMMs of a model by measuring them on this machine.

Each is compiled alone under each schedule and called at a few numbers of rows. The weights are read
from where a model has them: from one place after another, as many bytes as all weights take, up to
some hundred MiB. Half of a schedule's worth is how it waits for memory. May import: tvm, build,
emitters, gemm, lower, schedule, search, target, tuning, runtime, ops, ir, errors.
"""

from __future__ import annotations

import math
import random
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax

from tfgraph.backends.base import symbol_ranges
from tfgraph.backends.tuning import Tuned, Tuning
from tfgraph.backends.tvm.build import build_objects
from tfgraph.backends.tvm.cpu.gemm import gemm, packed_shape
from tfgraph.backends.tvm.cpu.schedule import (
    Measured,
    Schedule,
    default_schedule,
    read_schedules,
    write_schedules,
)
from tfgraph.backends.tvm.cpu.search import Found, search
from tfgraph.backends.tvm.emitters import linear_shape
from tfgraph.backends.tvm.lower import find_emitter
from tfgraph.ir import product
from tfgraph.ops.fused import LINEARS
from tfgraph.runtime.arrays import aligned_empty
from tfgraph.runtime.jit import Program, as_tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from tfgraph.backends.tvm.kernels import LinearShape
    from tfgraph.backends.tvm.target import CpuMachine
    from tfgraph.ir import Graph, Value

ROWS = (1, 16, 128)
"""The numbers of rows that every GEMM is measured at, beside those of the model's example."""
ROUNDS, LEAST_ROUNDS = 25, 5
"""How often each schedule has its turn; fewer where that takes longer than LONGEST."""
LONGEST = 3.0
"""Seconds of one comparison."""
SAMPLE = 5e-4
"""Seconds: shorter calls are timed several together."""
MOST_WEIGHTS = 256 << 20
"""Bytes from which weights are read in turn: more than caches hold."""


@dataclass(frozen=True)
class Work:
    """A GEMM of a model, with the numbers of rows to measure, how many weights of its shape there
    are and how many operations it is at the example."""

    shape: LinearShape
    rows: tuple[int, ...]
    weights: int
    flops: int

    def __str__(self) -> str:
        shape = self.shape
        followed = [shape.activation or ""] + ["gate"] * shape.gate
        return " ".join([f"{shape.k} x {shape.n}", *filter(None, followed)])


class OutOfTime(Exception):
    """The budget is spent."""


def works(graphs: Iterable[Graph]) -> list[Work]:
    """The GEMMs with packed weights of graphs as they run, the longest first: one for each shape of
    a weight, with what follows the first such product. Graphs are functions of one model, which
    share their weights."""
    found: dict[tuple[int, int], Work] = {}
    for graph in graphs:
        examples = {name: s.example for name, s in symbol_ranges(graph).items()}
        weights: dict[tuple[int, int], set[Value]] = defaultdict(set)
        for node in graph.nodes:
            if node.op not in LINEARS or find_emitter("cpu", graph, node) is None:
                continue
            shape, rows = linear_shape(node), product(node.inputs[0].type.shape[:-1])
            key, m = (shape.k, shape.n), rows.evaluate(examples)
            weights[key].add(node.inputs[1])
            old = found.get(key) or Work(shape, ROWS, 0, 0)
            found[key] = Work(
                old.shape,
                tuple(sorted({*old.rows, m})),
                max(old.weights, len(weights[key])),
                old.flops + 2 * shape.k * shape.n * m,
            )
    return sorted(found.values(), key=lambda work: -work.flops)


def tune(
    todo: Sequence[Work],
    machine: CpuMachine,
    threads: int,
    seconds: float,
    database: Path,
    heard: Callable[[Tuned], None],
) -> Tuning:
    """Measure until all is tuned or the seconds are over; `heard` hears of each kernel. What is
    found is written at once, so that nothing is lost where this is interrupted; what the database
    knows already for as many threads is not measured again."""
    begun = time.monotonic()
    known = read_schedules(database, machine)
    tuned: list[Tuned] = []
    missed: list[str] = []
    size = sum(4 * work.shape.k * work.shape.n * work.weights for work in todo)
    memory = _Memory(min(size, MOST_WEIGHTS))
    for work in todo:
        key = work.shape.k, work.shape.n
        default = default_schedule(machine, work.shape.n)
        entry = known.get(key)
        if entry is not None and entry.threads == threads:
            found = Found(entry.schedule, math.nan, 0)
        else:
            trial = _Trial(work, machine, threads, memory, begun + seconds)
            try:
                found = search(default, machine, trial.measure)
            except OutOfTime:
                missed.append(str(work))
                continue
            write_schedules(database, machine, {key: Measured(found.schedule, threads)})
        speedup = found.speedup if found.tried else None
        changed = found.schedule != default
        tuned.append(
            Tuned(str(work), work.rows, found.tried, str(found.schedule), changed, speedup)
        )
        heard(tuned[-1])
    return Tuning(database, time.monotonic() - begun, tuple(tuned), tuple(missed))


class _Memory:
    """Weights in one place after another, those of all shapes in the same memory. What they are
    does not matter to the time."""

    def __init__(self, size: int) -> None:
        self._floats = aligned_empty((max(size // 4, 1),), np.dtype(np.float32))
        self._floats.fill(0.01)

    def places(self, shapes: Sequence[tuple[int, int, int]]) -> dict[tuple[int, int, int], Any]:
        """For each shape a tensor at every place, one place large enough for the largest."""
        largest = max(math.prod(shape) for shape in shapes)
        pitch = -(-largest // 16) * 16
        if pitch > self._floats.size:
            self._floats = aligned_empty((pitch,), np.dtype(np.float32))
            self._floats.fill(0.01)
        starts = range(0, self._floats.size - pitch + 1, pitch)
        return {
            shape: [
                as_tensor(self._floats[start : start + math.prod(shape)].reshape(shape))
                for start in starts
            ]
            for shape in shapes
        }


class _Trial:
    """One GEMM: compiles it under each schedule that is asked for, once, and times it."""

    def __init__(
        self, work: Work, machine: CpuMachine, threads: int, memory: _Memory, deadline: float
    ) -> None:
        self._work, self._machine, self._threads = work, machine, threads
        self._memory, self._deadline = memory, deadline
        self._programs: dict[Schedule, Program] = {}
        self._turn = count()
        self._random = random.Random(0)
        self._others = {m: _arguments(work.shape, m) for m in work.rows}

    def measure(
        self, schedules: Sequence[Schedule]
    ) -> Mapping[Schedule, Mapping[int, list[float]]]:
        """Times of all, which take turns in an order that changes. Raises OutOfTime."""
        for schedule in schedules:
            self._check()
            if schedule not in self._programs:
                self._programs[schedule] = self._compiled(schedule)
        k, n = self._work.shape.k, self._work.shape.n
        shapes = {s: packed_shape(k, n, s.tile) for s in schedules}
        places = self._memory.places(sorted(set(shapes.values())))

        def call(schedule: Schedule, m: int) -> None:
            weights = places[shapes[schedule]]
            weight = weights[next(self._turn) % len(weights)]
            x, *others = self._others[m]
            self._programs[schedule].run("main", [x, weight, *others])

        def seconds(schedule: Schedule, m: int, calls: int) -> float:
            start = time.perf_counter()
            for _ in range(calls):
                call(schedule, m)
            return (time.perf_counter() - start) / calls

        for schedule in schedules:
            seconds(schedule, 1, 1)  # makes what is made at the first call
        calls = {m: math.ceil(SAMPLE / seconds(schedules[0], m, 2)) for m in self._work.rows}
        times = {s: {m: list[float]() for m in self._work.rows} for s in schedules}
        begun = time.monotonic()
        for done in range(ROUNDS):
            if done < LEAST_ROUNDS:
                self._check()
            elif time.monotonic() > min(begun + LONGEST, self._deadline):
                break
            for m in self._work.rows:
                for schedule in self._random.sample(schedules, len(schedules)):
                    times[schedule][m].append(seconds(schedule, m, calls[m]))
        return times

    def _check(self) -> None:
        if time.monotonic() > self._deadline:
            raise OutOfTime

    def _compiled(self, schedule: Schedule) -> Program:
        """main(x, w, ..., out) -> out, which the kernel writes."""
        kernel = gemm(self._work.shape, schedule)
        builder: Any = relax.BlockBuilder()
        called = builder.add_func(kernel.without_attr("global_symbol"), "gemm")
        types = [relax.TensorType(list(p.ty.shape), str(p.ty.dtype)) for p in kernel.params]
        given = [relax.Var(f"x{i}", type_) for i, type_ in enumerate(types)]
        with builder.function("main", given):
            with builder.dataflow():
                made = relax.op.call_tir_inplace(called, given, len(given) - 1, types[-1])
                result = builder.emit_output(made)
            builder.emit_func_output(result)
        objects = build_objects(builder.get(), self._machine)
        return Program(objects, self._threads, "a kernel that is tuned")


def _arguments(shape: LinearShape, m: int) -> list[Any]:
    """What the kernel takes for m rows, but for the weight."""
    sizes = [(m, shape.k), *[(shape.n,)] * shape.bias, *[(m, shape.n)] * shape.gate, (m, shape.n)]
    return [as_tensor(np.full(size, 0.01, np.float32)) for size in sizes]
