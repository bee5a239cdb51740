"""From the start of a process to its first result, and the most memory until then: `--start`.

May import: measure, prepare, report.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measure import Worker, difference, quartiles
from prepare import make_ready
from report import row, with_quartiles
from workloads import WORKLOADS, Workload

DEFAULT = (WORKLOADS["minilm-1x128"], WORKLOADS["bert-base-1x128"])
SIDES_OF_START = ("tfgraph", "tfgraph-unverified", "onnxruntime", "openvino", "numpy")


def measure_starts(
    workloads: Sequence[Workload], sides: Sequence[str], base: Path, threads: int, rounds: int
) -> list[dict[str, Any]]:
    """Start each side `rounds` times, in turns, behind a start that brings files into memory."""
    found: list[dict[str, Any]] = []
    for workload in workloads:
        ready = make_ready(workload, base)
        places = ready.sides(sides)
        seconds: dict[str, list[float]] = {side: [] for side in places}
        resident: dict[str, list[float]] = {side: [] for side in places}
        computed = {}
        for i in range(rounds + 1):
            for side in places:
                worker = Worker(side, ready.folder, workload.task, ready.inputs, threads)
                if i == 0:
                    computed[side] = worker.output(ready.folder)
                else:
                    seconds[side].append(worker.seconds)
                    resident[side].append(worker.resident)
                worker.close()
        worst = difference(workload.name, computed)
        found.append(
            {
                "workload": workload.name,
                "rounds": rounds,
                "max_abs_difference": worst,
                "weights_mb": ready.weights / 1e6,
                "sides": {
                    side: {
                        "seconds": quartiles(seconds[side]),
                        "peak_mb": quartiles(resident[side])[1] / 1e6,
                    }
                    for side in places
                },
            }
        )
    return found


def start_table(results: Sequence[dict[str, Any]]) -> str:
    """In Markdown; *beyond weights* is the memory that is not the weights, once."""
    lines = [
        row("workload", "side", "seconds to the first result", "peak MB", "beyond weights MB"),
        row(*["---"] * 5),
    ]
    for result in results:
        for side, found in result["sides"].items():
            lines.append(
                row(
                    result["workload"],
                    side,
                    with_quartiles(found["seconds"]),
                    f"{found['peak_mb']:.0f}",
                    f"{found['peak_mb'] - result['weights_mb']:.0f}",
                )
            )
    return "\n".join(lines)
