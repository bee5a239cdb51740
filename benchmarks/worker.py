"""One side of a comparison, in a process of its own: runs when it is told to, and reports times.

    python benchmarks/worker.py SIDE FOLDER WORKLOAD THREADS

A line of JSON on stdin is a command, one on stdout its answer: `{"calls": n}` gives `{"wall":
[seconds of each call], "cpu": seconds of all}`, `{"save": FILE}` writes the output to a .npy file.
One process for each side, because two thread pools in one slow each other down.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from workloads import ARTIFACT, PROBE, WEIGHTS, WORKLOADS, NDArray, Workload

Forward = Callable[[], NDArray]


def numpy_side(folder: Path, workload: Workload, threads: int, plain: bool = False) -> Forward:
    """numpy_bert.py, or numpy_plain.py; BLAS takes its threads from the environment."""
    from numpy_bert import Bert, Config
    from numpy_plain import PlainBert

    config = Config(workload.layers, workload.width, workload.heads, workload.ffn)
    with np.load(folder / WEIGHTS) as weights:
        model = (PlainBert if plain else Bert)(config, weights)
    inputs = workload.inputs()
    return lambda: model(*inputs.values())


def tfgraph_side(folder: Path, workload: Workload, threads: int) -> Forward:
    """The artifact."""
    from tfgraph import load

    model = load(folder / ARTIFACT, threads=threads)
    inputs: dict[str, Any] = {**workload.inputs()}
    return lambda: model(**inputs)["last_hidden_state"]


def peak_side(folder: Path, workload: Workload, threads: int) -> Forward:
    """Multiply-adds that never wait for memory."""
    from probe import Probe

    probe = Probe(folder / PROBE, threads)

    def forward() -> NDArray:
        probe()
        return np.array([probe.flops], np.float64)

    return forward


SIDES = {
    "numpy": numpy_side,
    "numpy-plain": partial(numpy_side, plain=True),
    "tfgraph": tfgraph_side,
    "peak": peak_side,
}


def main() -> None:
    """Serve commands until stdin ends."""
    side, folder, workload, threads = sys.argv[1:]
    forward = SIDES[side](Path(folder), WORKLOADS[workload], int(threads))
    output = forward()
    print(json.dumps({"ready": side}), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        if "save" in command:
            np.save(command["save"], output)
            answer: dict[str, object] = {}
        else:
            answer = burst(forward, command["calls"])
        print(json.dumps(answer), flush=True)


def burst(forward: Forward, calls: int) -> dict[str, object]:
    """Time `calls` calls, after one that wakes threads and fills caches."""
    forward()
    wall: list[float] = []
    cpu = time.process_time()
    for _ in range(calls):
        start = time.perf_counter()
        forward()
        wall.append(time.perf_counter() - start)
    return {"wall": wall, "cpu": time.process_time() - cpu}


if __name__ == "__main__":
    main()
