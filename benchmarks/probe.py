"""The most this CPU can do: a kernel of fused multiply-adds that never waits for memory.

Shares of peak are meant relative to it, measured in the same run. May import: tfgraph.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tfgraph.runtime.jit import Program

CHUNKS, STEPS, CHAINS = 8, 100_000, 16
"""Parallel chunks; multiply-adds in a chain; chains, enough to hide the latency of each step."""


def compile_probe(path: Path) -> None:
    """Write the kernel's object files into the folder `path`."""
    from tvm import relax
    from tvm.tirx.script import builder as T

    from tfgraph.backends.tvm.build import build_objects
    from tfgraph.backends.tvm.cpu.emit import argument, body, function, hold, load, loop, store
    from tfgraph.backends.tvm.cpu.vector_math import fma
    from tfgraph.backends.tvm.target import cpu_machine

    machine = cpu_machine()
    chains = min(CHAINS, machine.registers - 4)
    lanes, width = machine.lanes, chains * machine.lanes
    with function("fma_probe") as kernel:
        x, y = argument("x", (CHUNKS * width,)), argument("y", (CHUNKS * width,))
        with body(), T.parallel(CHUNKS) as chunk:
            sums = [T.alloc_buffer((lanes,), "float32") for _ in range(chains)]
            for i, chain in enumerate(sums):
                store(chain, 0, load(x, chunk * width + i * lanes, lanes))
            factor = hold(load(x, chunk * width, lanes))
            with loop(STEPS):
                for chain in sums:
                    store(chain, 0, fma(load(chain, 0, lanes), factor, factor))
            for i, chain in enumerate(sums):
                store(y, chunk * width + i * lanes, load(chain, 0, lanes))
    builder = relax.BlockBuilder()
    called = builder.add_func(kernel.get().without_attr("global_symbol"), "fma_probe")
    type_ = relax.TensorType((CHUNKS * width,), "float32")
    given = relax.Var("x", type_)
    with builder.function("main", [given]):
        with builder.dataflow():
            made = builder.emit_output(relax.call_tir(called, [given], type_))
        builder.emit_func_output(made)
    path.mkdir(parents=True, exist_ok=True)
    for i, data in enumerate(build_objects(builder.get(), machine)):
        (path / f"{i}.o").write_bytes(data)
    (path / "width").write_text(str(width))


class Probe:
    """The compiled kernel: `measure` gives GFLOP/s."""

    def __init__(self, path: Path, threads: int) -> None:
        from tfgraph.runtime.jit import Program

        files = sorted(path.glob("*.o"))
        self._program: Program = Program([f.read_bytes() for f in files], threads)
        self._width = int((path / "width").read_text())
        self._x = np.full(CHUNKS * self._width, 0.5, np.float32)

    @property
    def flops(self) -> int:
        """Operations of one call, a multiply-add as two."""
        return 2 * CHUNKS * STEPS * self._width

    def __call__(self) -> None:
        """One call, some milliseconds."""
        self._program.call("main", [self._x])

    def measure(self, calls: int = 5) -> float:
        """GFLOP/s of the fastest call."""
        times: list[float] = []
        for _ in range(calls):
            start = time.perf_counter()
            self()
            times.append(time.perf_counter() - start)
        return self.flops / min(times) / 1e9


def cpu_name() -> str:
    """The CPU as the kernel calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    found = {key.strip(): value.strip() for key, value in fields.items()}
    name = found.get("model name", "unknown CPU")
    where = [f"{key} {found[key]}" for key in ("cpu family", "model") if key in found]
    return f"{name} ({', '.join([*where, f'{os.cpu_count()} CPUs'])})"
