"""What this machine can do: its CPU by name, multiply-adds and bytes read in a second.

May import: backends, cache.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tfgraph.backends.tvm.cpu.probe import Probe


@dataclass(frozen=True)
class Machine:
    """The roof: floating point operations (a multiply-add is two) and bytes in a second (Williams
    et al. 2009, Roofline)."""

    flops: float
    bytes: float

    def least(self, flops: int, moved: int) -> float:
        """The seconds that so much work takes at least, with its bytes in memory."""
        return max(flops / self.flops, moved / self.bytes)

    def bound(self, flops: int, moved: int) -> str:
        """Which of both takes longer: `flops` or `bytes`."""
        return "flops" if flops / self.flops > moved / self.bytes else "bytes"

    def or_faster(self, other: Machine) -> Machine:
        """The most that either of two measurements found: a busy machine seems slow."""
        return Machine(max(self.flops, other.flops), max(self.bytes, other.bytes))


def measure_machine(probe: Probe) -> Machine:
    """Measure both limits: some tenths of a second."""
    return Machine(probe.rate("multiply_add"), probe.rate("read"))


def cpu_name() -> str:
    """The CPU as the kernel calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    found = {key.strip(): value.strip() for key, value in fields.items()}
    name = found.get("model name", "unknown CPU")
    where = [f"{key} {found[key]}" for key in ("cpu family", "model") if key in found]
    return f"{name} ({', '.join([*where, f'{os.cpu_count()} CPUs'])})"
