"""The CUDA kernels on a GPU: whether they are right, and how fast they are beside cuBLAS, PyTorch's
attention and PyTorch's compiler.

    python benchmarks/cuda.py                  # under 8 minutes; PyTorch's sides where it is there
    python benchmarks/cuda.py --json out.json  # what is measured is there after each row
    python benchmarks/cuda.py --tiny           # tiny sizes, to see on an emulated GPU that it runs

Times are those of kernels on the device, by PyTorch's profiler, without what launches them; where
PyTorch is not installed, of calls. May import: tfgraph, cuda_cases.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
from cuda_cases import Case, cases

from tfgraph import build, compare, load
from tfgraph.backends import Target
from tfgraph.runtime.cuda.array import CudaArray
from tfgraph.weights import Seeded

NDArray = np.ndarray[Any, Any]
HERE = Path(__file__).resolve().parent
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
MARK = "row "
"""What a line begins with that the measuring process says to the other."""


def main() -> int:
    """Prints the table; 1 if a kernel is wrong, or a case failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, each run once")
    parser.add_argument("--json", type=Path, help="write all numbers, after each row")
    parser.add_argument("--seconds", type=float, default=450, help="stop after so many")
    parser.add_argument("--max-autotune", action="store_true", help="PyTorch's compiler so, too")
    parser.add_argument("names", nargs="*", help="parts of names of cases")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    chosen = _chosen(args)
    if args.worker is not None:
        _work(chosen[int(args.worker[0]) :], Path(args.worker[1]), None if args.tiny else _torch())
        return 0
    limits: dict[str, float] | None = None
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for row in _measured(chosen, folder, time.monotonic() + args.seconds):
            if "limits" in row:
                if limits is None:
                    limits = row["limits"]
                    shown = ", ".join(f"{k} {v:.4g}" for k, v in row["limits"].items())
                    print(f"limits  {shown or 'not measured'}", flush=True)
                continue
            rows.append(row)
            print(_line(row), flush=True)
            if args.json is not None:
                args.json.write_text(json.dumps({"limits": limits, "rows": rows}, indent=1) + "\n")
    return int(any(row["ok"] is False for row in rows))


def _chosen(args: argparse.Namespace) -> list[tuple[Case, str]]:
    """The cases asked for, each in its dtypes: all in the first, then in the others."""
    found = cases(args.tiny, args.max_autotune)
    found = [c for c in found if not args.names or any(n in c.name for n in args.names)]
    pairs = [(case, dtype) for case in found for dtype in case.dtypes]
    return sorted(pairs, key=lambda pair: pair[0].dtypes.index(pair[1]))


def _measured(
    chosen: Sequence[tuple[Case, str]], folder: str, end: float
) -> Iterator[dict[str, Any]]:
    """A row for each, and limits. Another process measures; where it dies, or cannot go on, since
    a failure on a GPU may be one of all that follows, a new one begins behind that row. None goes
    on after `end`."""
    left: list[dict[str, Any]] = [{"name": case.name, "dtype": dtype} for case, dtype in chosen]
    while left and time.monotonic() < end:
        half: dict[str, Any] | None = None
        command = [sys.executable, *sys.argv, "--worker", str(len(chosen) - len(left)), folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
            timer = Timer(end - time.monotonic(), worker.kill)
            timer.start()
            for line in worker.stdout or ():
                if not line.startswith(MARK):
                    print(line, end="", file=sys.stderr)
                    continue
                row = json.loads(line.removeprefix(MARK))
                half = row if row.pop("half", False) else None
                if half is None:
                    del left[: "limits" not in row]
                    yield row
            timer.cancel()
        late = time.monotonic() >= end
        reason = "no time left" if late else f"its process ended with {worker.returncode}"
        if half is not None:
            del left[0]
            yield half | {"PyTorch": reason}
        elif worker.returncode and left and not late:
            yield left.pop(0) | {"ok": False, "reason": reason}
    yield from (row | {"ok": None, "reason": "no time left"} for row in left)


def _work(chosen: Sequence[tuple[Case, str]], folder: Path, torch: Any) -> None:
    """Measure one after another, until one leaves the GPU or this process in doubt."""

    def say(row: Mapping[str, Any]) -> None:
        print(MARK + json.dumps(row), flush=True)

    limits = {} if torch is None else _limits(torch)
    say({"limits": limits})
    for case, dtype in chosen:
        row: dict[str, Any] = {"name": case.name, "dtype": dtype, "ok": None}
        try:
            measure(row, case, folder, torch, limits, say)
            if torch is not None:
                torch.cuda.synchronize()
        except Exception as cause:
            traceback.print_exc()
            say(row | {"ok": False, "reason": f"{type(cause).__name__}: {_first_line(cause)}"})
            return
        say(row)


def measure(
    row: dict[str, Any],
    case: Case,
    folder: Path,
    torch: Any,
    limits: Mapping[str, float],
    say: Callable[[Mapping[str, Any]], None],
) -> None:
    """Fill a row: whether the kernels are right, the time of a run, and of others on the same;
    `say` it also before the others, with which this process may end."""
    dtype = row["dtype"]
    weights = dict(Seeded(case.graph.params))
    with tempfile.TemporaryDirectory(dir=folder) as made:
        out = Path(made) / "artifact"
        options: dict[str, Any] = {"weights": weights, "dtype": dtype}
        build(case.graph, Target("cuda"), out, check=False, prove=False, **options)
        row["ok"] = compare(
            case.graph,
            backends=("numpy", "cuda"),
            dims=case.checked,
            artifact=out,
            intermediates=False,
            **options,
        ).ok
        with load(out) as model:
            given = model.example(case.sizes)
            inputs: dict[str, Any]
            if torch is None:
                place: Any = model.place
                inputs = {name: CudaArray(place.tensor(a)) for name, a in given.items()}
            else:
                inputs = {name: _to_torch(torch, a, dtype) for name, a in given.items()}
            row["us"] = us = _micros(lambda: model(**inputs), torch)
    if case.limit == "matrix" and dtype in limits:
        row["of limit"] = case.flops / us * 1e6 / limits[dtype]
    if case.limit == "copy" and "copy" in limits:
        row["of limit"] = case.numbers * BYTES[dtype] / us * 1e6 / limits["copy"]
    if torch is None:
        return
    say(row | {"half": True})
    for name, call in case.others(torch, inputs, weights).items():
        try:
            row[name] = _micros(call, torch)
        except Exception as cause:  # a kernel that this PyTorch has not, for this GPU
            row[name] = _first_line(cause)


def _first_line(cause: Exception) -> str:
    return str(cause).strip().partition("\n")[0]


def _torch() -> Any:
    # This folder is on the path of a script, and PyTorch imports NVIDIA's package `cuda`, not this.
    sys.path[:] = [place for place in sys.path if Path(place).resolve() != HERE]
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def _to_torch(torch: Any, array: NDArray, dtype: str) -> Any:
    found = torch.from_numpy(array.astype(np.float32) if array.dtype.kind not in "iub" else array)
    return found.to("cuda", getattr(torch, dtype) if found.is_floating_point() else None)


def _limits(torch: Any) -> dict[str, float]:
    """Bytes a second of a copy, read and written, and operations a second of the largest product,
    by dtype."""
    source = torch.empty(1 << 28, dtype=torch.float32, device="cuda")
    target = torch.empty_like(source)
    micros = _micros(partial(target.copy_, source), torch)
    found = {"copy": 2 * 4 * source.numel() / micros * 1e6}
    for dtype in BYTES:
        a = torch.randn(8192, 8192, dtype=getattr(torch, dtype), device="cuda")
        found[dtype] = 2 * 8192**3 / _micros(partial(torch.matmul, a, a), torch) * 1e6
    return found


def _micros(call: Callable[[], Any], torch: Any) -> float:
    """Microseconds of a call: of its kernels on the GPU, the mean of many; without PyTorch of the
    fastest call, which waits for the GPU."""
    if torch is None:
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
        return min(times) * 1e6
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    count = max(3, min(50, int(0.2 / (time.perf_counter() - begin))))

    def calls() -> None:
        for _ in range(count):
            call()

    return (_traced(calls, torch) or _timed(calls, torch)) / count


def _traced(calls: Callable[[], None], torch: Any) -> float:
    """Microseconds of the kernels; 0 where the driver, or PyTorch as it was built, traces none."""
    from torch.profiler import ProfilerActivity, profile

    try:
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            calls()
            torch.cuda.synchronize()
    except (AssertionError, RuntimeError):
        return 0.0
    return sum(float(e.self_device_time_total) for e in profiled.key_averages())


def _timed(calls: Callable[[], None], torch: Any) -> float:
    """Microseconds on the GPU from the first launch to the end of the last."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    calls()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) * 1e3


def _line(row: Mapping[str, Any]) -> str:
    if "us" not in row:
        return f"{row['name']:34} {row['dtype']:9} not measured: {row.get('reason')}"
    right = "ok" if row["ok"] else "WRONG"
    others = [
        f"{name} {value / row['us']:.2f}" if isinstance(value, float) else f"{name}: {value}"
        for name, value in row.items()
        if name not in ("name", "dtype", "ok", "reason", "us", "of limit")
    ]
    share = f"{row['of limit']:6.1%} of limit" if "of limit" in row else ""
    beside = f"  {', '.join(others)} of our time" if others else ""
    return f"{row['name']:34} {row['dtype']:9} {right:5} {row['us']:10.1f} us  {share}{beside}"


if __name__ == "__main__":
    sys.exit(main())
