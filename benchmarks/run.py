"""Side-by-side times: `make bench`, or `python benchmarks/run.py --help`.

Each side runs in a process of its own, and they take turns: what disturbs the machine for a while
disturbs all. Every workload's outputs are compared first, so that all sides compute the same thing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from worker import SIDES, takes
from workloads import WEIGHTS, WORKLOADS, Workload, environment, prepare

from tfgraph.bench import cpu_name

TOLERANCE = 1e-3
BURST_SECONDS, PAUSE_SECONDS = 0.3, 0.05
"""Timed calls at a stretch, and a rest after them in which idle threads stop spinning."""


class Worker:
    """A side's process."""

    def __init__(self, side: str, folder: Path, workload: Workload, threads: int) -> None:
        """Start it, load the model and run it once."""
        script = Path(__file__).with_name("worker.py")
        command = [sys.executable, str(script), side, str(folder), workload.name, str(threads)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(threads),
        )
        self.side = side
        self.resident: int = self._receive()["resident"]

    def ask(self, **command: Any) -> dict[str, Any]:
        """Send a command; its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._receive()

    def output(self, folder: Path) -> np.ndarray[Any, Any]:
        """What the side computed."""
        file = folder / f"{self.side}.npy"
        self.ask(save=str(file))
        found: np.ndarray[Any, Any] = np.load(file)
        return found

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
    machine does in a second, see `worker`."""

    workload: Workload
    bursts: dict[str, list[Burst]]
    quiet: int
    rounds: int
    worst: float
    resident: dict[str, int]
    weights: int
    limit: float | None

    def quartiles(self, side: str) -> list[float]:
        """Seconds a call: first quartile, median, third quartile."""
        return _quartiles([burst.seconds for burst in self.bursts[side]])

    def ratios(self, side: str, other: str) -> list[float]:
        """How many times as long the other side took, round by round: quartiles."""
        pairs = zip(self.bursts[side], self.bursts[other], strict=True)
        return _quartiles([theirs.seconds / ours.seconds for ours, theirs in pairs])

    def median(self, side: str, what: str) -> float:
        """The median over the rounds of a field of `Burst`."""
        return float(np.median([getattr(burst, what) for burst in self.bursts[side]]))


def measure(
    workload: Workload, folder: Path, sides: list[str], threads: int, rounds: int, cores: float
) -> Result:
    """Let the sides take turns; keep rounds in which every side had `cores` cores, or all if none
    had."""
    workers = [Worker(side, folder, workload, threads) for side in sides]
    try:
        computed = {w.side: w.output(folder) for w in workers}
        resident = {w.side: w.resident for w in workers}
        probe = computed.pop("limit", None)
        worst = _difference(workload, computed)
        calls = {}
        for worker in workers:
            once = float(np.median(worker.ask(calls=3)["wall"]))
            calls[worker.side] = max(3, round(BURST_SECONDS / once))
        taken = [{w.side: _burst(w, calls[w.side]) for w in workers} for _ in range(rounds)]
    finally:
        for worker in workers:
            worker.close()
    quiet = [each for each in taken if min(burst.cores for burst in each.values()) >= cores]
    kept = {side: [each[side] for each in quiet or taken] for side in sides}
    limit = None
    if probe is not None:
        limit = float(probe[0]) / min(each["limit"].least for each in taken)
    weights = (folder / WEIGHTS).stat().st_size
    return Result(workload, kept, len(quiet), rounds, worst, resident, weights, limit)


def _burst(worker: Worker, calls: int) -> Burst:
    answer = worker.ask(calls=calls)
    time.sleep(PAUSE_SECONDS)
    wall, cpu = answer["wall"], answer["cpu"]
    return Burst(float(np.median(wall)), min(wall), cpu / len(wall), cpu / sum(wall))


def _difference(workload: Workload, computed: dict[str, np.ndarray[Any, Any]]) -> float:
    """The largest difference to the first side. Exits where it says that sides differ in kind."""
    first, *others = computed.values()
    worst = max((float(np.abs(first - other).max()) for other in others), default=0.0)
    if not worst <= TOLERANCE:
        sys.exit(f"{workload.name}: outputs differ by {worst:.2g}: {', '.join(computed)}")
    return worst


def _quartiles(values: list[float]) -> list[float]:
    return [float(q) for q in np.quantile(values, [0.25, 0.5, 0.75])]


def to_json(result: Result, sides: list[str]) -> dict[str, Any]:
    """One workload as plain data; times in milliseconds, [first quartile, median, third]."""
    work = result.workload
    by_memory = work.is_bound_by_memory
    timed = [side for side in sides if side != "limit"]
    amount = work.weight_bytes if by_memory else work.flops
    return {
        "workload": work.name,
        "rounds": result.rounds,
        "quiet_rounds": result.quiet,
        "max_abs_difference": result.worst,
        "unit": "GB/s" if by_memory else "GFLOP/s",
        "limit": None if result.limit is None else result.limit / 1e9,
        "weights_mib": result.weights / 2**20,
        "sides": {
            side: {
                "ms": [1e3 * q for q in result.quartiles(side)],
                "rate": amount / result.quartiles(side)[1] / 1e9,
                "least_ms": 1e3 * min(burst.least for burst in result.bursts[side]),
                "cpu_ms": 1e3 * result.median(side, "cpu"),
                "cores": result.median(side, "cores"),
                "resident_mib": result.resident[side] / 2**20,
                "times_tfgraph": result.ratios("tfgraph", side) if "tfgraph" in timed else None,
            }
            for side in timed
        },
    }


def table(results: list[dict[str, Any]]) -> str:
    """The results in Markdown."""
    names: tuple[str, ...] = (
        "workload",
        "side",
        "ms (quartiles)",
        "least ms",
        "rate",
        "of limit",
        "CPU ms",
    )
    names += ("cores", "peak MiB", "of weights", "time / tfgraph's")
    lines = [_row(*names), _row(*["---"] * len(names))]
    for result in results:
        for side, found in result["sides"].items():
            limit, ratio = result["limit"], found["times_tfgraph"]
            lines.append(
                _row(
                    result["workload"],
                    side,
                    _with_quartiles(found["ms"]),
                    f"{found['least_ms']:.2f}",
                    f"{found['rate']:.0f} {result['unit']}",
                    "" if limit is None else f"{found['rate'] / limit:.0%}",
                    f"{found['cpu_ms']:.2f}",
                    f"{found['cores']:.2f}",
                    f"{found['resident_mib']:.0f}",
                    f"{found['resident_mib'] / result['weights_mib']:.0%}",
                    "" if ratio is None else _with_quartiles(ratio),
                )
            )
    return "\n".join(lines)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _with_quartiles(values: list[float]) -> str:
    low, middle, high = values
    return f"{middle:.2f} ({low:.2f}-{high:.2f})"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Time tfgraph beside other programs.")
    parser.add_argument("workloads", nargs="*", help=f"of {', '.join(WORKLOADS)}; default all")
    parser.add_argument("--sides", default=",".join(SIDES), help="default %(default)s")
    parser.add_argument("--rounds", type=int, default=15, help="default %(default)s")
    parser.add_argument("--threads", type=int, default=2, help="default %(default)s")
    parser.add_argument(
        "--min-cores",
        type=float,
        default=0.0,
        help="leave out rounds in which a side had fewer cores, such as 1.9: others took them",
    )
    parser.add_argument("--folder", type=Path, help="keep artifacts and weights, and reuse them")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    found = parser.parse_args()
    for name, known in ((found.workloads, WORKLOADS), (found.sides.split(","), SIDES)):
        if unknown := [n for n in name if n not in known]:
            parser.error(f"unknown: {', '.join(unknown)}; known are {', '.join(known)}")
    if found.sides == "limit":
        parser.error("--sides: name one besides limit")
    return found


def main() -> None:
    """Prepare each model, measure each workload, print."""
    args = arguments()
    sides = args.sides.split(",")
    chosen = [WORKLOADS[name] for name in args.workloads or WORKLOADS]
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="tfgraph-bench-") as temporary:
        base = args.folder or Path(temporary)
        for workload in chosen:
            folder = base / workload.model
            if not folder.exists():
                print(f"compiling {workload.model}", file=sys.stderr)
                folder.mkdir(parents=True)
                prepare(workload.model, folder)
            print(f"measuring {workload.name}", file=sys.stderr)
            takes_part = [side for side in sides if takes(side, workload)]
            result = measure(
                workload, folder, takes_part, args.threads, args.rounds, args.min_cores
            )
            results.append(to_json(result, takes_part))
    if args.json:
        print(json.dumps({"cpu": cpu_name(), "threads": args.threads, "results": results}))
        return
    limits = {r["unit"]: r["limit"] for r in results if r["limit"] is not None}
    reached = "".join(f"; at most {limit:.0f} {unit}" for unit, limit in limits.items())
    print(f"{cpu_name()}, threads: {args.threads}, float32{reached}\n\n{table(results)}\n")
    for r in results:
        used = "kept" if r["quiet_rounds"] else "kept, so that all were used: read with care"
        print(f"{r['workload']}: {r['quiet_rounds']} of {r['rounds']} rounds {used}.")
    worst = max(r["max_abs_difference"] for r in results)
    print(f"The sides' outputs differ by at most {worst:.1g}.")


if __name__ == "__main__":
    main()
