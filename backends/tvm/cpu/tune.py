"""Tunes the kernels of a model by measuring them on this machine.

Each is compiled alone under each schedule and called at a few numbers of rows. May import: tvm,
build, works, database, search, target, tuning, runtime.
"""

from __future__ import annotations

import math
import random
import time
from typing import TYPE_CHECKING, Any, Generic

from tvm import relax

from tfgraph.backends.tuning import Tuned, Tuning
from tfgraph.backends.tvm.build import build_objects
from tfgraph.backends.tvm.cpu.database import Measured, read_schedules, write_schedules
from tfgraph.backends.tvm.cpu.search import Found, S, search
from tfgraph.backends.tvm.cpu.works import Memory
from tfgraph.runtime.jit import Program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tfgraph.backends.tvm.cpu.works import Work
    from tfgraph.backends.tvm.target import CpuMachine

ROUNDS, LEAST_ROUNDS = 25, 5
"""How often each schedule has its turn; fewer where that takes longer than LONGEST."""
LONGEST = 3.0
"""Seconds of one comparison."""
SAMPLE = 5e-4
"""Seconds: shorter calls are timed several together."""


class OutOfTime(Exception):
    """The budget is spent."""


def tune(
    todo: Sequence[Work[Any]],
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
    memory = Memory(sum(work.weight_bytes for work in todo))
    for work in todo:
        default, entry = work.default(machine), known.get(work.key)
        found: Found[Any]
        if entry is not None and entry.threads == threads:
            found = Found(entry.schedule, math.nan, 0)
        else:
            trial = _Trial(work, machine, threads, memory, begun + seconds)
            try:
                found = search(default, work.steps(machine), trial.measure)
            except OutOfTime:
                missed.append(str(work))
                continue
            write_schedules(database, machine, {work.key: Measured(found.schedule, threads)})
        speedup = found.speedup if found.tried else None
        changed = found.schedule != default
        tuned.append(
            Tuned(str(work), work.rows, found.tried, str(found.schedule), changed, speedup)
        )
        heard(tuned[-1])
    return Tuning(database, time.monotonic() - begun, tuple(tuned), tuple(missed))


class _Trial(Generic[S]):
    """One kernel: compiles it under each schedule that is asked for, once, and times it."""

    def __init__(
        self, work: Work[S], machine: CpuMachine, threads: int, memory: Memory, deadline: float
    ) -> None:
        self._work: Work[S] = work
        self._machine, self._threads = machine, threads
        self._deadline = deadline
        self._programs: dict[S, Program] = {}
        self._random = random.Random(0)
        self._arguments: Callable[[S, int], list[Any]] = work.arguments(machine, memory)

    def measure(self, schedules: Sequence[S]) -> Mapping[S, Mapping[int, list[float]]]:
        """Times of all, which take turns in an order that changes. Raises OutOfTime."""
        for schedule in schedules:
            self._check()
            if schedule not in self._programs:
                self._programs[schedule] = self._compiled(schedule)

        def seconds(schedule: S, m: int, calls: int) -> float:
            start = time.perf_counter()
            for _ in range(calls):
                self._programs[schedule].run("main", self._arguments(schedule, m))
            return (time.perf_counter() - start) / calls

        rows = self._work.rows
        for schedule in schedules:
            seconds(schedule, rows[0], 1)  # makes what is made at the first call
        calls = {m: math.ceil(SAMPLE / seconds(schedules[0], m, 2)) for m in rows}
        times = {s: {m: list[float]() for m in rows} for s in schedules}
        begun = time.monotonic()
        for done in range(ROUNDS):
            if done < LEAST_ROUNDS:
                self._check()
            elif time.monotonic() > min(begun + LONGEST, self._deadline):
                break
            for m in rows:
                for schedule in self._random.sample(schedules, len(schedules)):
                    times[schedule][m].append(seconds(schedule, m, calls[m]))
        return times

    def _check(self) -> None:
        if time.monotonic() > self._deadline:
            raise OutOfTime

    def _compiled(self, schedule: S) -> Program:
        """main(x, ..., out) -> out, which the kernel writes."""
        kernel = self._work.kernel(schedule, self._machine)
        builder: Any = relax.BlockBuilder()
        called = builder.add_func(kernel.without_attr("global_symbol"), "kernel")
        types = [relax.TensorType(list(p.ty.shape), str(p.ty.dtype)) for p in kernel.params]
        given = [relax.Var(f"x{i}", type_) for i, type_ in enumerate(types)]
        with builder.function("main", given):
            with builder.dataflow():
                made = relax.op.call_tir_inplace(called, given, len(given) - 1, types[-1])
                result = builder.emit_output(made)
            builder.emit_func_output(result)
        objects = build_objects(builder.get(), self._machine)
        return Program(objects, self._threads, "a kernel that is tuned")
