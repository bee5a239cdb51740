"""Sides that take turns, each in a process of its own, and what their times are.

What disturbs the machine for a while disturbs all. Outputs are compared first, so that all sides
compute the same thing. May import: sides, workloads, work.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sides import NDArray
from work import Work
from workloads import Workload

TOLERANCE = 1e-3
BURST_SECONDS, PAUSE_SECONDS = 0.3, 0.05
"""Timed calls at a stretch, and a rest after them in which idle threads stop spinning."""
MOST_CALLS = 200
SLOW_SECONDS = 1.0
"""A call that takes as long is timed alone."""

# Variables that choose BLAS kernels, or keep Python from caching what it compiles, would make one
# side other than what a user has.
UNSET = ("PYTHONDONTWRITEBYTECODE", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NPROC")  # NPROC: of XLA


def environment(threads: int) -> dict[str, str]:
    """The environment of a worker: as ours, but for what would change what is timed."""
    kept = {name: value for name, value in os.environ.items() if name not in UNSET}
    return kept | dict.fromkeys(THREADS, str(threads))


class Worker:
    """A side's process. `seconds` is what it took from its start to the first result, and
    `resident` the most bytes of memory that it had until then."""

    def __init__(self, side: str, folder: Path, task: str, inputs: Path, threads: int) -> None:
        """Start it, load the model and run it once."""
        script = str(Path(__file__).with_name("worker.py"))
        start = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, script, side, str(folder), task, str(inputs), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(threads),
        )
        self.side = side
        self.resident: int = self._receive()["resident"]
        self.seconds = time.perf_counter() - start

    def ask(self, **command: Any) -> dict[str, Any]:
        """Send a command; its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._receive()

    def output(self, folder: Path) -> NDArray:
        """What the side computed."""
        file = folder / f"{self.side}.npy"
        self.ask(save=str(file))
        found: NDArray = np.load(file)
        file.unlink()
        return found

    def burst(self, calls: int) -> Burst:
        """Some calls, and a pause."""
        answer = self.ask(calls=calls)
        time.sleep(PAUSE_SECONDS)
        wall, cpu = answer["wall"], answer["cpu"]
        return Burst(float(np.median(wall)), min(wall), cpu / len(wall), cpu / sum(wall))

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"the {self.side} side ended with exit status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@dataclass(frozen=True)
class Burst:
    """Calls at a stretch: the median and the least time of one, and the CPU time of one on
    average. On a busy machine the CPU time with one thread still tells; with more, threads that
    spin while they wait count too."""

    seconds: float
    least: float
    cpu: float
    cores: float


@dataclass(frozen=True)
class Result:
    """What was measured of one workload: bursts by side, one a round. Of `rounds`, those are kept
    that had the cores asked for, `quiet` in number; all where it is 0. `worst` is the largest
    difference between the sides' outputs; `resident` the most memory that each side had taken
    after its first call, in bytes, and `weights` what the model's weights are; `limit` what the
    machine does in a second, operations or of a step bytes: see `sides`."""

    workload: Workload
    work: Work
    bursts: Mapping[str, list[Burst]]
    quiet: int
    rounds: int
    worst: float
    resident: Mapping[str, int]
    weights: int
    limit: float | None

    @property
    def sides(self) -> list[str]:
        """Those that compute the model."""
        return [side for side in self.bursts if side != "limit"]

    @property
    def amount(self) -> int:
        """What a call takes: operations, or where a token is decoded bytes."""
        return self.work.bytes if self.workload.is_bound_by_memory else self.work.flops

    def seconds(self, side: str) -> list[float]:
        """Seconds a call: first quartile, median, third quartile."""
        return quartiles([burst.seconds for burst in self.bursts[side]])

    def ratios(self, side: str, other: str) -> list[float]:
        """How many times as long the other side took, round by round: quartiles."""
        pairs = zip(self.bursts[side], self.bursts[other], strict=True)
        return quartiles([theirs.seconds / ours.seconds for ours, theirs in pairs])

    def median(self, side: str, what: str) -> float:
        """The median over the rounds of a field of `Burst`."""
        return float(np.median([getattr(burst, what) for burst in self.bursts[side]]))


def measure(
    workload: Workload,
    places: Mapping[str, tuple[Path, Path]],
    work: Work,
    threads: int,
    rounds: int,
    cores: float = 0.0,
    weights: int = 0,
) -> Result:
    """Let the sides take turns, each with its folder and file of inputs; keep rounds in which every
    side had `cores` cores, or all if none had. A name may say more than the side: `tfgraph exact`
    is tfgraph in another folder."""
    workers = {
        name: Worker(name.partition(" ")[0], folder, workload.task, inputs, threads)
        for name, (folder, inputs) in places.items()
    }
    try:
        computed = {name: w.output(places[name][0]) for name, w in workers.items()}
        probe = computed.pop("limit", None)
        worst = difference(workload.name, computed)
        calls = {name: _calls(worker, rounds) for name, worker in workers.items()}
        taken = [{n: w.burst(calls[n]) for n, w in workers.items()} for _ in range(rounds)]
    finally:
        for worker in workers.values():
            worker.close()
    quiet = [each for each in taken if min(burst.cores for burst in each.values()) >= cores]
    kept = {name: [each[name] for each in quiet or taken] for name in workers}
    limit = None
    if probe is not None:
        limit = float(probe[0]) / min(each["limit"].least for each in taken)
    resident = {name: w.resident for name, w in workers.items()}
    return Result(workload, work, kept, len(quiet), rounds, worst, resident, weights, limit)


def _calls(worker: Worker, rounds: int) -> int:
    """How many calls a burst has."""
    once: float = worker.ask(calls=1)["wall"][0]
    if once >= SLOW_SECONDS:
        return 1
    if rounds > 1:
        once = float(np.median(worker.ask(calls=3)["wall"]))
    return min(MOST_CALLS, max(3, round(BURST_SECONDS / once)))


def difference(name: str, computed: Mapping[str, NDArray]) -> float:
    """The largest difference to the first side. Exits where it says that sides differ in kind."""
    first, *others = computed.values()
    shapes = {side: array.shape for side, array in computed.items()}
    if len(set(shapes.values())) > 1:
        sys.exit(f"{name}: outputs have other shapes: {shapes}")
    worst = max((float(np.abs(first - other).max()) for other in others), default=0.0)
    if not worst <= TOLERANCE:
        sys.exit(f"{name}: outputs differ by {worst:.2g}: {', '.join(computed)}")
    return worst


def quartiles(values: list[float]) -> list[float]:
    """The first quartile, the median, the third quartile."""
    return [float(q) for q in np.quantile(values, [0.25, 0.5, 0.75])]
