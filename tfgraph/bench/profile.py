"""The kernels of a loaded artifact, timed one by one while it runs.

What each does, in operations and bytes, the manifest says: it was counted from the graph. May
import: machine, runtime, errors.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.errors import TfgraphError
from tfgraph.runtime.arrays import aligned_empty
from tfgraph.runtime.examples import complete
from tfgraph.runtime.sizes import evaluate

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tfgraph.bench.machine import Machine
    from tfgraph.runtime.function import Function
    from tfgraph.runtime.model import Model
    from tfgraph.runtime.sizes import Port

    Array = np.ndarray[Any, np.dtype[Any]]

_WARM_UP = 2


@dataclass(frozen=True)
class Kernel:
    """All calls of one kernel in a run that do the same amount of work."""

    name: str
    values: tuple[str, ...]
    """What the calls make."""
    seconds: float
    """Of all calls together, each at its median over the runs: a busy machine stretches some."""
    flops: int
    """Operations of all calls, a multiply-add as two; 0 where none are counted."""
    bytes: int
    """What they read and write; 0 where that is not counted."""
    calls: int

    def to_json(self, machine: Machine, total: float) -> dict[str, Any]:
        """Plain data, with rates and the share of the least time that the machine allows."""
        least = machine.least(self.flops, self.bytes)
        return {
            "kernel": self.name,
            "calls": self.calls,
            "values": list(self.values),
            "ms": 1e3 * self.seconds,
            "share": self.seconds / total,
            "flops": self.flops,
            "bytes": self.bytes,
            "gflops": self.flops / self.seconds / 1e9,
            "gigabytes_per_second": self.bytes / self.seconds / 1e9,
            "of_limit": least / self.seconds if least else None,
            "bound": machine.bound(self.flops, self.bytes) if least else None,
        }


@dataclass(frozen=True)
class Profile:
    """A function of an artifact at some sizes: the quartiles of a run, in seconds, without the
    clocks around kernels, and its kernels, slowest first."""

    function: str
    sizes: Mapping[str, int]
    runs: int
    quartiles: tuple[float, float, float]
    kernels: tuple[Kernel, ...]

    def to_json(self, machine: Machine) -> dict[str, Any]:
        """Plain data."""
        total = sum(k.seconds for k in self.kernels)
        first, median, third = (1e3 * q for q in self.quartiles)
        return {
            "function": self.function,
            "dims": dict(self.sizes),
            "runs": self.runs,
            "ms": median,
            "quartiles_ms": [first, third],
            "kernels_ms": 1e3 * total,
            "kernels": [k.to_json(machine, total) for k in self.kernels],
        }


class _Clock:
    """Seconds of each kernel that runs, in order; of no other function."""

    def __init__(self, kernels: Collection[str]) -> None:
        self._kernels = kernels
        self.names: list[str] = []
        self.seconds: list[float] = []
        self._start = 0.0

    def __call__(self, name: str, before: bool) -> None:
        now = time.perf_counter()
        if name not in self._kernels:
            return
        if before:
            self.names.append(name)
            self._start = time.perf_counter()
        else:
            self.seconds.append(now - self._start)


def profile(
    model: Model, function: str = "main", dims: Mapping[str, int] | None = None, runs: int = 20
) -> Profile:
    """Time `runs` runs as they are and as many with a clock around each kernel, in turns, on inputs
    that are made up. Raises TfgraphError for a function that the artifact has not, and where it
    was compiled by a version that did not write down what its kernels do."""
    called, launches = _function(model, function)
    made, sizes = complete(called.inputs, called.symbols, called.constraints, {}, dims or {}, 0)
    arrays = {port.name: _unhidden(port, made[port.name], sizes) for port in called.inputs}
    expected = [launch["kernel"] for launch in launches]
    kernels = frozenset(expected)
    whole: list[float] = []
    clocks: list[_Clock] = []
    for i in range(_WARM_UP + runs):
        start = time.perf_counter()
        called(dims=sizes, **arrays)
        took = time.perf_counter() - start
        clock = _Clock(kernels)
        with model.observed(clock):
            called(dims=sizes, **arrays)
        if i >= _WARM_UP:
            whole.append(took)
            clocks.append(clock)
    if any(clock.names != expected for clock in clocks):
        raise TfgraphError(
            f"{model.path} runs other kernels than its manifest says", hint="compile it again"
        )
    each = np.median([clock.seconds for clock in clocks], axis=0)
    first, median, third = (float(q) for q in np.quantile(whole, (0.25, 0.5, 0.75)))
    timed = _kernels(launches, each.tolist(), sizes)
    return Profile(function, sizes, runs, (first, median, third), timed)


def _unhidden(port: Port, array: Array, sizes: Mapping[str, int]) -> Array:
    """An input that hides nothing, as the work is counted, and that need not be copied."""
    placed = aligned_empty(array.shape, array.dtype)
    kind, _, argument = port.fill.removesuffix(")").partition("(")
    if kind == "prefix":
        placed[...] = 1
    elif kind == "lengths":
        placed[...] = evaluate(argument, sizes)
    else:
        placed[...] = array
    return placed


def _function(model: Model, name: str) -> tuple[Function, Sequence[Mapping[str, Any]]]:
    entries = {"main": model.manifest, **model.manifest.get("functions", {})}
    if name not in entries:
        raise TfgraphError(
            f"{model.path} has no function '{name}'", hint=f"it has {', '.join(entries)}"
        )
    if "launches" not in entries[name]:
        raise TfgraphError(
            f"{model.path} does not say what its kernels do: an earlier version compiled it",
            hint="compile it again",
        )
    functions: Mapping[str, Any] = {"main": model, **model.functions}
    return functions[name], entries[name]["launches"]


def _kernels(
    launches: Sequence[Mapping[str, Any]], seconds: Sequence[float], sizes: Mapping[str, int]
) -> tuple[Kernel, ...]:
    """Calls of the same kernel with the same amount of work together, slowest first."""
    groups: dict[tuple[str, int, int], list[tuple[str, float]]] = {}
    for launch, took in zip(launches, seconds, strict=True):
        flops, moved = (evaluate(launch.get(key, 0), sizes) for key in ("flops", "bytes"))
        group = groups.setdefault((launch["kernel"], flops, moved), [])
        group.append((launch.get("value", ""), took))
    made = [
        Kernel(
            name,
            tuple(value for value, _ in calls if value),
            sum(took for _, took in calls),
            flops * len(calls),
            moved * len(calls),
            len(calls),
        )
        for (name, flops, moved), calls in groups.items()
    ]
    return tuple(sorted(made, key=lambda k: -k.seconds))
