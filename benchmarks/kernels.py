"""Where the time of an artifact goes, kernel by kernel.

    python benchmarks/kernels.py bert-base.cpu.tfgraph --dim seq=128

A kernel stands in a line of its own for every combination of argument shapes. Operations are known
for kernels whose name begins with that of a product or of attention; the others tell how fast they
move their arguments. May import: tfgraph.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from probe import Probe, compile_probe, cpu_name

from tfgraph import load
from tfgraph.runtime.model import Model

Shape = tuple[int, ...]
_CONTINUE = 0  # what an instrument returns to let the machine go on


@dataclass
class Line:
    """One kernel at one combination of argument shapes, the result's last."""

    name: str
    shapes: tuple[Shape, ...]
    bytes: int
    times: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The time of all calls, each taken at their median: a busy machine stretches some."""
        return float(np.median(self.times)) * len(self.times)

    @property
    def gathers(self) -> bool:
        """Whether it reads only some rows of an argument."""
        return self.name.startswith(("embedding", "take", "slice"))

    @property
    def flops(self) -> int | None:
        """Operations of a call, a multiply-add as two; None where they aren't counted."""
        if not self.shapes:
            return None
        result = self.shapes[-1]
        # linear: x [m, k], packed weight, ..., y [m, n]
        if self.name.startswith(("linear", "matmul")):
            return 2 * self.shapes[0][-1] * math.prod(result)
        if self.name.startswith("attention"):  # q, k, v [batch, keys, ...]: y [batch, s, width]
            return 4 * self.shapes[1][1] * math.prod(result)
        return None


class Recorder:
    """Times kernels between the machine's two calls around each."""

    def __init__(self) -> None:
        self.lines: dict[Any, Line] = {}
        self._start = 0.0

    def __call__(self, _function: Any, name: str, before: bool, _result: Any, *args: Any) -> int:
        """What the machine calls before and after each function."""
        now = time.perf_counter()
        if before:
            self._start = time.perf_counter()
            return _CONTINUE
        tensors = [a for a in args if hasattr(a, "shape") and hasattr(a, "dtype")]
        shapes = tuple(tuple(int(d) for d in t.shape) for t in tensors)
        key = str(name), shapes
        if key not in self.lines:
            size = sum(math.prod(t.shape) * np.dtype(str(t.dtype)).itemsize for t in tensors)
            self.lines[key] = Line(str(name), shapes, size)
        self.lines[key].times.append(now - self._start)
        return _CONTINUE


def profile(model: Model, dims: dict[str, int], runs: int) -> tuple[list[Line], float]:
    """The kernels, and the median seconds of a run without the instrument."""
    inputs: dict[str, Any] = {**model.example(dims)}
    plain: list[float] = []
    for _ in range(runs + 2):
        start = time.perf_counter()
        model(**inputs)
        plain.append(time.perf_counter() - start)
    # The runtime has no need of an instrument itself, so this reaches for its virtual machine.
    machine = model._program._local.machine  # type: ignore[union-attr]
    recorder = Recorder()
    model(**inputs)
    machine["set_instrument"](recorder)
    for _ in range(runs):
        model(**inputs)
    return list(recorder.lines.values()), float(np.median(plain[2:]))


def to_json(lines: list[Line], runs: int) -> list[dict[str, Any]]:
    """Plain data, slowest first: the calls and milliseconds of each kernel in a run, with each
    call at the median, and the speed of a call. What the virtual machine does itself is one row."""
    kernels = [line for line in lines if not line.name.startswith("vm.")]
    machine = [line for line in lines if line.name.startswith("vm.")]
    rows = [_row(line, runs) for line in kernels]
    rows.append(
        {
            "kernel": "virtual machine",
            "shapes": [],
            "calls": sum(len(line.times) for line in machine) / runs,
            "ms": 1e3 * sum(line.seconds for line in machine) / runs,
            "gflops": None,
            "best_gflops": None,
            "gigabytes_per_second": None,
        }
    )
    total = sum(row["ms"] for row in rows)
    return sorted(({**row, "share": row["ms"] / total} for row in rows), key=lambda r: -r["ms"])


def _row(line: Line, runs: int) -> dict[str, Any]:
    call, best, flops = line.seconds / len(line.times), min(line.times), line.flops
    return {
        "kernel": line.name,
        "shapes": ["x".join(map(str, s)) for s in line.shapes],
        "calls": len(line.times) / runs,
        "ms": 1e3 * line.seconds / runs,
        "gflops": None if flops is None else flops / call / 1e9,
        "best_gflops": None if flops is None else flops / best / 1e9,
        "gigabytes_per_second": None if line.gathers else line.bytes / call / 1e9,
    }


def measure_peak(probe: Probe, calls: int = 5) -> float:
    """GFLOP/s of the fastest call."""
    run, flops = probe.limit("multiply_add")
    times: list[float] = []
    for _ in range(calls):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return flops / min(times) / 1e9


def table(rows: list[dict[str, Any]], peak: float) -> str:
    """The kernels in Markdown; those under a thousandth of the time in one line."""
    lines = [
        "| kernel | shapes | calls | ms | share | GFLOP/s | of peak | at best | GB/s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    small = [row for row in rows if row["share"] < 0.001]
    for row in (row for row in rows if row not in small):
        cells = [
            row["kernel"],
            " ".join(row["shapes"]),
            f"{row['calls']:.0f}",
            f"{row['ms']:.3f}",
            f"{row['share']:.1%}",
            _shown(row["gflops"], ".0f"),
            _shown(row["gflops"], ".0%", peak),
            _shown(row["best_gflops"], ".0%", peak),
            _shown(row["gigabytes_per_second"], ".1f"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    if small:
        calls, ms, share = (sum(row[name] for row in small) for name in ("calls", "ms", "share"))
        name = f"{len(small)} others"
        lines.append(f"| {name} | | {calls:.0f} | {ms:.3f} | {share:.1%} | | | | |")
    return "\n".join(lines)


def _shown(value: float | None, form: str, unit: float = 1.0) -> str:
    return "" if value is None else format(value / unit, form)


def main() -> None:
    """Profile the artifact that the command line names."""
    parser = argparse.ArgumentParser(description="Time the kernels of an artifact.")
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE")
    parser.add_argument("--threads", type=int, default=2, help="default %(default)s")
    parser.add_argument("--runs", type=int, default=20, help="default %(default)s")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    dims = {name: int(size) for name, _, size in (d.partition("=") for d in args.dim)}
    with tempfile.TemporaryDirectory() as folder:
        compile_probe(Path(folder))
        probe = Probe(Path(folder), args.threads)
    with load(args.artifact, threads=args.threads) as model:
        peak = measure_peak(probe)
        lines, seconds = profile(model, dims, args.runs)
        peak = max(peak, measure_peak(probe))
    rows = to_json(lines, args.runs)
    if args.json:
        found = {"cpu": cpu_name(), "threads": args.threads, "peak_gflops": peak}
        print(json.dumps({**found, "ms": 1e3 * seconds, "kernels": rows}))
        return
    print(f"{cpu_name()}, threads: {args.threads}, peak {peak:.0f} GFLOP/s")
    print(f"{args.artifact.name}: {1e3 * seconds:.2f} ms a run without the instrument\n")
    print(table(rows, peak))


if __name__ == "__main__":
    main()
