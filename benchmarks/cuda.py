"""The CUDA kernels on a GPU: whether they are right, and how fast they are beside cuBLAS, PyTorch's
attention and PyTorch's compiler.

    python benchmarks/cuda.py                  # some minutes; PyTorch's sides where it is installed
    python benchmarks/cuda.py --json out.json
    python benchmarks/cuda.py --tiny           # tiny sizes, to see on an emulated GPU that it runs

Times are those of kernels on the device, by PyTorch's profiler, without what launches them; where
PyTorch is not installed, of calls. May import: tfgraph, cuda_cases.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from cuda_cases import Case, cases

from tfgraph import build, load
from tfgraph.backends import Target
from tfgraph.runtime.cuda.array import CudaArray
from tfgraph.weights import Seeded

NDArray = np.ndarray[Any, Any]
HERE = Path(__file__).resolve().parent
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def main() -> int:
    """Prints the table; 1 if a kernel is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, each run once")
    parser.add_argument("--json", type=Path, help="write all numbers")
    parser.add_argument("--seconds", type=float, default=420, help="start no further case after")
    parser.add_argument("names", nargs="*", help="parts of names of cases")
    args = parser.parse_args()
    torch = None if args.tiny else _torch()
    chosen = [c for c in cases(args.tiny) if not args.names or any(n in c.name for n in args.names)]
    end = time.monotonic() + args.seconds
    rows: list[dict[str, Any]] = []
    limits = {} if torch is None else _limits(torch)
    print("limits  " + (", ".join(f"{k} {v:.4g}" for k, v in limits.items()) or "not measured"))
    with tempfile.TemporaryDirectory() as folder:
        for case in chosen:
            for dtype in case.dtypes:
                late = time.monotonic() > end
                row = {"name": case.name, "dtype": dtype, "ok": None}
                row |= {} if late else measure(case, dtype, Path(folder), torch, limits)
                rows.append(row)
                print(_line(row), flush=True)
    if args.json is not None:
        args.json.write_text(json.dumps({"limits": limits, "rows": rows}, indent=1) + "\n")
    return int(any(row["ok"] is False for row in rows))


def measure(
    case: Case, dtype: str, folder: Path, torch: Any, limits: Mapping[str, float]
) -> dict[str, Any]:
    """A row: whether the kernels are right, the time of a run, and of others on the same."""
    seeded = Seeded(case.graph.params)
    weights = case.weights or {name: seeded[name] for name in seeded}
    out = folder / f"{case.name}.{dtype}".replace(" ", "-")
    options: dict[str, Any] = {"weights": weights, "dtype": dtype, "prove": False}
    said = build(case.small, Target("cuda"), out, **options).verification
    row: dict[str, Any] = {"ok": said.ok, "reason": said.reason}
    if case.graph is not case.small:
        build(case.graph, Target("cuda"), out, check=False, **options)
    with load(out) as model:
        given = model.example(case.sizes)
        inputs: dict[str, Any]
        if torch is None:
            place: Any = model.place
            inputs = {name: CudaArray(place.tensor(a)) for name, a in given.items()}
        else:
            inputs = {name: _to_torch(torch, a, dtype) for name, a in given.items()}
        row["us"] = _micros(lambda: model(**inputs), torch)
        if torch is not None:
            for name, call in case.others(torch, inputs, weights).items():
                try:
                    row[name] = _micros(call, torch)
                except RuntimeError as cause:
                    row[name] = str(cause).partition("\n")[0]
    if case.limit == "matrix" and dtype in limits:
        row["of limit"] = case.flops / row["us"] * 1e6 / limits[dtype]
    if case.limit == "copy" and "copy" in limits:
        row["of limit"] = case.numbers * BYTES[dtype] / row["us"] * 1e6 / limits["copy"]
    return row


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
    from torch.profiler import ProfilerActivity, profile

    for _ in range(3):
        call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    count = max(3, min(50, int(0.2 / (time.perf_counter() - begin))))
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(count):
            call()
        torch.cuda.synchronize()
    total = sum(float(e.self_device_time_total) for e in profiled.key_averages())
    return total / count


def _line(row: Mapping[str, Any]) -> str:
    if "us" not in row:
        return f"{row['name']:34} {row['dtype']:9} not measured: no time left"
    right = {True: "ok", False: "WRONG", None: f"not verified: {row.get('reason')}"}[row["ok"]]
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
