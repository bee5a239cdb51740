"""How a GEMM, and attention, go through their work. May import: gemm_tile, target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfgraph.backends.tvm.cpu.gemm_tile import Tile, tile_for

if TYPE_CHECKING:
    from tfgraph.backends.tvm.target import CpuMachine

SCHEDULE = "tfgraph.schedule"
"""The attribute of a kernel that tells its schedule."""


@dataclass(frozen=True)
class Schedule:
    """The order and the grain of a GEMM's work. None of it changes a bit of the result: every
    element adds the same products in the same order.

    `tile` is what is summed in registers at a time; weights lie in panels of its width. `rows` are
    those that a task computes of one panel: few share a small GEMM among many threads, and keep the
    results in the first-level cache for the epilogue; many read the panel less often. `ahead` is
    how many rows of a panel the weights are fetched ahead: the CPU's own prefetching stops at every
    page. 0: they are not.
    """

    tile: Tile
    rows: int = 16
    ahead: int = 64

    def __str__(self) -> str:
        return f"{self.tile}, {self.rows} rows, {self.ahead} ahead"


def default_schedule(machine: CpuMachine, n: int) -> Schedule:
    """That of a weight of `n` columns of which nothing is known: the tile that pads it least."""
    return Schedule(tile_for(machine, n))


@dataclass(frozen=True)
class AttentionSchedule:
    """The order and the grain of attention's work. None of it changes a bit of the result: each
    query is computed alone, and takes keys in the same groups.

    `vectors` of queries are a block. `together` is the most blocks that go through a tile of keys
    and values one after another: these are then in the second-level cache, where rows that lie a
    power of two apart push each other out. With `copied` the values are first put side by side, for
    all of these blocks: each is read in eight or more steps, and the first-level cache is small.
    """

    vectors: int = 2
    together: int = 16
    copied: bool = False

    def __str__(self) -> str:
        vectors = "1 vector" if self.vectors == 1 else f"{self.vectors} vectors"
        copied = ", values copied" * self.copied
        return f"{vectors} of queries, {self.together} blocks together{copied}"


def most_vectors(machine: CpuMachine) -> int:
    """For so many vectors of queries there are registers for the sums of a group of keys."""
    return 3 if machine.registers >= 32 else 2
