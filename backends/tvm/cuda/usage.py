"""What each kernel uses on an architecture, as `ptxas -v` tells it. May import: the standard
library.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass

_KERNEL = re.compile(r"Function properties for (\w+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class Usage:
    """Registers of a thread; bytes of static shared memory of a block; bytes of a thread's stack,
    and of registers that are stored there and loaded again for want of others."""

    registers: int
    shared: int
    stack: int
    spill_stores: int
    spill_loads: int

    @property
    def spills(self) -> bool:
        """Whether registers did not suffice."""
        return bool(self.spill_stores or self.spill_loads)

    def to_json(self) -> dict[str, int]:
        """Its entry in the manifest."""
        return asdict(self)


def read_usage(log: str) -> dict[str, Usage]:
    """What ptxas said of each kernel, by its name."""
    found: dict[str, Usage] = {}
    name, stack = "", (0, 0, 0)
    for line in log.splitlines():
        if kernel := _KERNEL.search(line):
            name = kernel[1]
        elif frame := _STACK.search(line):
            stack = int(frame[1]), int(frame[2]), int(frame[3])
        elif used := _USED.search(line):
            shared = _SHARED.search(line)
            found[name] = Usage(int(used[1]), int(shared[1]) if shared else 0, *stack)
    return dict(sorted(found.items()))
