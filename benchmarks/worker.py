"""One side of a comparison, in a process of its own: runs when it is told to, and reports times.

    python benchmarks/worker.py SIDE FOLDER TASK INPUTS THREADS

A line of JSON on stdin is a command, one on stdout its answer: `{"calls": n}` gives `{"wall":
[seconds of each call], "cpu": seconds of all}`, `{"save": FILE}` writes the output to a .npy file.
One process for each side, because two thread pools in one slow each other down.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
from sides import SIDES, Forward, Job


def main() -> None:
    """Serve commands until stdin ends."""
    side, folder, task, inputs, threads = sys.argv[1:]
    answers = sys.stdout
    sys.stdout = sys.stderr  # where a runtime may say what it likes
    forward = SIDES[side].make(Job(Path(folder), task, Path(inputs), int(threads)))
    output = forward()
    print(json.dumps({"ready": side, "resident": most_resident()}), file=answers, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        if "save" in command:
            np.save(command["save"], output)
            answer: dict[str, object] = {}
        else:
            answer = burst(forward, command["calls"])
        print(json.dumps(answer), file=answers, flush=True)


def most_resident() -> int:
    """The most bytes that this process had in memory; what `getrusage` tells begins with its
    parent's."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) * 1024


def burst(forward: Forward, calls: int) -> dict[str, object]:
    """Time `calls` calls, after one that wakes threads and fills caches; a single one is so long
    that neither counts."""
    if calls > 1:
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
