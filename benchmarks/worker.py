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
from workloads import ARTIFACT, WEIGHTS, WORKLOADS, NDArray, Workload

Forward = Callable[[], NDArray]


def numpy_side(folder: Path, workload: Workload, threads: int, plain: bool = False) -> Forward:
    """numpy_bert.py, numpy_plain.py or numpy_gpt2.py; BLAS takes its threads from the
    environment."""
    if workload.task != "forward":
        return _numpy_gpt2(folder, workload)
    from numpy_bert import Bert, Config
    from numpy_plain import PlainBert

    config = Config(workload.layers, workload.width, workload.heads, workload.ffn)
    with np.load(folder / WEIGHTS) as weights:
        model = (PlainBert if plain else Bert)(config, weights)
    inputs = workload.inputs()
    return lambda: model(*inputs.values())


def _numpy_gpt2(folder: Path, workload: Workload) -> Forward:
    from numpy_gpt2 import Config, Gpt2

    config = Config(
        workload.layers, workload.width, workload.heads, workload.ffn, workload.vocabulary
    )
    with np.load(folder / WEIGHTS) as weights:
        model = Gpt2(config, weights)
    prompt, seen = workload.inputs()["input_ids"][0], 0
    if workload.task == "decode":
        model.feed(prompt)
        prompt, seen = prompt[:1], len(prompt)

    def forward() -> NDArray:
        model.length = seen
        return model.feed(prompt)[None]

    return forward


def tfgraph_side(folder: Path, workload: Workload, threads: int) -> Forward:
    """The artifact."""
    from tfgraph import load

    model = load(folder / ARTIFACT, threads=threads)
    inputs: dict[str, Any] = {**workload.inputs()}
    if workload.task == "forward":
        return lambda: model(**inputs)["last_hidden_state"]
    prompt, seen = inputs["input_ids"], 0
    state = model.new_state(workload.batch)
    if workload.task == "decode":
        state.feed(prompt)
        prompt, seen = prompt[:, :1], prompt.shape[1]

    def forward() -> NDArray:
        state.truncate(seen)
        return state.feed(prompt)

    return forward


def limit_side(folder: Path, workload: Workload, threads: int) -> Forward:
    """What no program can beat: multiply-adds that never wait for memory, or reading it. Gives how
    many of them, or how many bytes, a call takes."""
    from tfgraph.backends.tvm.cpu.probe import Probe
    from tfgraph.cache import default_cache, using

    with using(default_cache()):
        probe = Probe(threads)
    run, amount = probe.limit("read" if workload.is_bound_by_memory else "multiply_add")

    def forward() -> NDArray:
        run()
        return np.array([amount], np.float64)

    return forward


SIDES: dict[str, Callable[[Path, Workload, int], Forward]] = {
    "numpy": numpy_side,
    "numpy-plain": partial(numpy_side, plain=True),
    "tfgraph": tfgraph_side,
    "limit": limit_side,
}


def takes(side: str, workload: Workload) -> bool:
    """Whether there is such a program for the workload: none is plain and generates."""
    return side != "numpy-plain" or workload.task == "forward"


def main() -> None:
    """Serve commands until stdin ends."""
    side, folder, workload, threads = sys.argv[1:]
    forward = SIDES[side](Path(folder), WORKLOADS[workload], int(threads))
    output = forward()
    print(json.dumps({"ready": side, "resident": most_resident()}), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        if "save" in command:
            np.save(command["save"], output)
            answer: dict[str, object] = {}
        else:
            answer = burst(forward, command["calls"])
        print(json.dumps(answer), flush=True)


def most_resident() -> int:
    """The most bytes that this process had in memory; what `getrusage` tells begins with its
    parent's."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) * 1024


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
