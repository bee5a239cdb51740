"""The most this CPU can do: multiply-adds that never wait for memory, and reading memory.

Shares of peak are meant relative to it, measured in the same run. May import: tvm, build, target,
emit, vector_math, runtime.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np
from tvm import relax
from tvm.tirx.script import builder as T

from tfgraph.backends.tvm.build import build_objects
from tfgraph.backends.tvm.cpu.emit import (
    argument,
    body,
    function,
    hold,
    load,
    loop,
    store,
)
from tfgraph.backends.tvm.cpu.vector_math import fma
from tfgraph.backends.tvm.target import cpu_machine
from tfgraph.runtime.arrays import aligned_empty
from tfgraph.runtime.jit import Program

Limit = Literal["multiply_add", "read"]

CHUNKS, STEPS, CHAINS = 8, 100_000, 16
"""Parallel chunks; multiply-adds in a chain; chains, enough to hide the latency of each step."""

READ_FLOATS = 1 << 26
"""256 MiB, more than caches hold."""


class Probe:
    """Two kernels for this CPU, on `threads` threads."""

    def __init__(self, threads: int | None = None) -> None:
        machine = cpu_machine()
        chains = min(CHAINS, machine.registers - 4)
        self._width = chains * machine.lanes
        builder: Any = relax.BlockBuilder()
        kernels = {
            "multiply_add": (_multiply_add(chains, machine.lanes), CHUNKS * self._width),
            "read": (_read(chains, machine.lanes), READ_FLOATS),
        }
        for name, (kernel, size) in kernels.items():
            called = builder.add_func(kernel.without_attr("global_symbol"), f"{name}_kernel")
            given = relax.Var("x", relax.TensorType((size,), "float32"))
            with builder.function(name, [given]):
                with builder.dataflow():
                    result = relax.TensorType((CHUNKS * self._width,), "float32")
                    made = builder.emit_output(relax.call_tir(called, [given], result))
                builder.emit_func_output(made)
        self._program = Program(build_objects(builder.get(), machine), threads, "the probe")

    def limit(self, kernel: Limit) -> tuple[Callable[[], object], int]:
        """A kernel to call, some milliseconds, and its operations (a multiply-add as two), or the
        bytes that it reads."""
        if kernel == "multiply_add":
            size, amount = CHUNKS * self._width, 2 * CHUNKS * STEPS * self._width
        else:
            size, amount = READ_FLOATS, 4 * READ_FLOATS
        x = aligned_empty((size,), np.dtype(np.float32))  # else it would be copied
        x.fill(0.5)
        return partial(self._program.call, kernel, [x]), amount

    def rate(self, kernel: Limit, calls: int = 5) -> float:
        """Operations or bytes a second, in the fastest of some calls."""
        run, amount = self.limit(kernel)
        times: list[float] = []
        for _ in range(calls):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        return amount / min(times)


def _multiply_add(chains: int, lanes: int) -> Any:
    """`chains` independent chains of x = x f + f in each chunk."""

    def step(x: Any, chunk: Any, _: Any) -> Callable[[Any, int], Any]:
        factor = hold(load(x, chunk * chains * lanes, lanes))
        return lambda chain, i: fma(load(chain, 0, lanes), factor, factor)

    return _chains("multiply_add", chains, lanes, CHUNKS * chains * lanes, STEPS, step)


def _read(chains: int, lanes: int) -> Any:
    """The sum of each chunk's share of the array."""
    steps = READ_FLOATS // (CHUNKS * chains * lanes)

    def step(x: Any, chunk: Any, n: Any) -> Callable[[Any, int], Any]:
        start = (chunk * steps + n) * (chains * lanes)
        return lambda chain, i: load(chain, 0, lanes) + load(x, start + i * lanes, lanes)

    return _chains("read", chains, lanes, READ_FLOATS, steps, step)


def _chains(
    name: str, chains: int, lanes: int, size: int, steps: int, step: Callable[..., Any]
) -> Any:
    """y = the sums of `chains` vectors in each chunk, each changed `steps` times."""
    width = chains * lanes
    with function(name) as kernel:
        x, y = argument("x", (size,)), argument("y", (CHUNKS * width,))
        with body(), T.parallel(CHUNKS) as chunk:
            sums = [T.alloc_buffer((lanes,), "float32") for _ in range(chains)]
            for i, chain in enumerate(sums):
                store(chain, 0, load(x, chunk * width + i * lanes, lanes))
            with loop(steps) as n:
                changed = step(x, chunk, n)
                for i, chain in enumerate(sums):
                    store(chain, 0, changed(chain, i))
            for i, chain in enumerate(sums):
                store(y, chunk * width + i * lanes, load(chain, 0, lanes))
    return kernel.get()
