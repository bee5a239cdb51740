"""Which of a kernel's schedules is the fastest, by times that were measured.

A search sees no clock: it asks for the times of some schedules, and goes by these alone. May
import: gemm_tile, schedule, target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from statistics import median, quantiles
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from tfgraph.backends.tvm.cpu.gemm_tile import tiles_of
from tfgraph.backends.tvm.cpu.schedule import AttentionSchedule, Schedule, most_vectors

if TYPE_CHECKING:
    from tfgraph.backends.tvm.target import CpuMachine

Times: TypeAlias = Mapping[int, Sequence[float]]
"""Seconds that calls took, by their number of rows."""

S = TypeVar("S", bound=Schedule | AttentionSchedule)

Measure: TypeAlias = Callable[[Sequence[S]], Mapping[S, Times]]
"""Times of schedules, which took turns: so what slows the machine meets them all."""

Steps: TypeAlias = Sequence[Callable[[S], Sequence[S]]]
"""What to try, one after another, each beside the best so far."""

TASK_ROWS = (16, 32, 64)
AHEAD = (0, 32, 64, 128)
TOGETHER = (4, 8, 16)
LEAST_GAIN = 1.01
"""What is less is not worth another artifact."""


@dataclass(frozen=True)
class Found(Generic[S]):
    """The schedule to take, how many times faster than the default it was (1 for the default
    itself), and how many were tried."""

    schedule: S
    speedup: float
    tried: int


def search(default: S, steps: Steps[S], measure: Measure[S]) -> Found[S]:
    """The best schedule, the default unless another one is faster beyond the noise.

    The best of many is partly the luckiest: so it has to win once more, against the default alone.
    """
    tried = {default}

    def best(schedules: Sequence[S]) -> S:
        tried.update(schedules)
        asked: list[S] = [default, *schedules]
        times = measure(list(dict.fromkeys(asked)))
        return max(times, key=lambda schedule: gain(times[schedule], times[default]))

    chosen = default
    for step in steps:
        chosen = best(step(chosen))
    if chosen != default:
        times = measure([default, chosen])
        if is_faster(times[chosen], times[default]):
            return Found(chosen, gain(times[chosen], times[default]), len(tried))
    return Found(default, 1.0, len(tried))


def gemm_steps(machine: CpuMachine) -> Steps[Schedule]:
    """Tiles and rows a task, then the distance of fetches."""
    return [lambda _: grains(machine), lambda best: [replace(best, ahead=n) for n in AHEAD]]


def attention_steps(machine: CpuMachine) -> Steps[AttentionSchedule]:
    """Queries a block, then how a tile of keys and values is shared."""
    return [
        lambda best: [replace(best, vectors=n + 1) for n in range(most_vectors(machine))],
        lambda best: [
            replace(best, together=n, copied=copied) for n in TOGETHER for copied in (False, True)
        ],
    ]


def grains(machine: CpuMachine) -> list[Schedule]:
    """Every tile with about as many rows a task as `TASK_ROWS`, whole tiles; the fewest also as
    they are."""
    rounded = [
        Schedule(tile, rows // tile.rows * tile.rows)
        for tile in tiles_of(machine)
        for rows in TASK_ROWS
    ]
    return list(dict.fromkeys([*map(Schedule, tiles_of(machine)), *rounded]))


def gain(times: Times, default: Times) -> float:
    """How many times faster than the default: of medians, the geometric mean over the rows."""
    each = [median(default[rows]) / median(times[rows]) for rows in default]
    return float(prod(each) ** (1 / len(each)))


def is_faster(times: Times, default: Times) -> bool:
    """Whether it is faster beyond the noise: for some number of rows the slower quarter begins
    where that of the default's faster calls has ended, for none it is the other way round, and all
    in all it gains something."""
    return (
        gain(times, default) >= LEAST_GAIN
        and any(_apart(times[rows], default[rows]) for rows in default)
        and not any(_apart(default[rows], times[rows]) for rows in default)
    )


def _apart(faster: Sequence[float], slower: Sequence[float]) -> bool:
    """Whether the third quartile of the one is below the first of the other."""
    return quantiles(faster, n=4)[2] < quantiles(slower, n=4)[0]
