"""Time over length and over batch: `--scaling`. May import: measure, prepare, report, workloads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measure import measure
from prepare import make_ready
from report import to_json
from workloads import Workload, encoder, prefill

LENGTHS = tuple(2**i for i in range(4, 13))
"""Of one sequence: 16 to 4096."""
BATCHES = tuple(2**i for i in range(7))
"""Of sequences of `LENGTH`: 1 to 64."""
LENGTH = 128
DECODERS = ("gpt2", "llama-small")


def points(model: str, lengths: Sequence[int], batches: Sequence[int]) -> list[Workload]:
    """The workloads: of a decoder prompts, of other models the whole model."""
    made = prefill if model in DECODERS else encoder
    sizes = dict.fromkeys([(1, length) for length in lengths] + [(b, LENGTH) for b in batches])
    return [made(model, batch, length) for batch, length in sizes]


def measure_scaling(
    model: str,
    sides: Sequence[str],
    base: Path,
    threads: int,
    rounds: int,
    cores: float,
    lengths: Sequence[int] = LENGTHS,
    batches: Sequence[int] = BATCHES,
) -> list[dict[str, Any]]:
    """What `to_json` gives for each point. The model is that of `examples/` with more positions."""
    reach = {"batch": max(BATCHES), "seq": max(LENGTHS)}
    found: list[dict[str, Any]] = []
    for workload in points(model, lengths, batches):
        ready = make_ready(workload, base, reach)
        places = ready.sides(sides)
        result = measure(workload, places, ready.work, threads, rounds, cores, ready.weights)
        found.append(to_json(result))
    return found
