"""The memory that is free, and the refusal of a size that does not fit, before any is taken.

May import: the standard library, groups, errors.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tfgraph.errors import Location, TfgraphError
from tfgraph.runtime.groups import groups, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ALWAYS_FITS = 64 << 20
"""Bytes below which the machine isn't asked: reading what is free takes longer than small runs."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")

# The limit, the use and the statistics of a control group, and which of those can be given up.
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = ("memory.max", "memory.current", "inactive_file")


def refuse_absurd(
    need: int, what: str, sizes: Mapping[str, int], location: Location | None = None
) -> None:
    """Raise TfgraphError unless `need` bytes are free; `what` needs them at these sizes."""
    if need <= ALWAYS_FITS:
        return
    free = available_memory()
    if need > free:
        at = ", ".join(f"{name}={size}" for name, size in sizes.items())
        names = " and ".join(sizes)
        raise TfgraphError(
            f"{what} needs {shown(need)}{f' at {at}' * bool(at)}; {shown(free)} are free",
            location,
            f"take smaller sizes: --dim {next(iter(sizes))}=SIZE, or a smaller example of {names}"
            if sizes
            else "the model itself fixes this size",
        )


def available_memory(root: Path = Path("/")) -> int:
    """The bytes that this process may still take without swapping: those of the machine, or of the
    control groups that it runs in. `root` is where the system's files are."""
    machine = _fields(root / "proc/meminfo").get("MemAvailable:")
    if machine is None:
        machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:
        machine_bytes = machine * 1024
    return max(0, min([machine_bytes, *_left_in_groups(root)]))


def shown(size: int) -> str:
    """A number of bytes with a binary prefix: 1.5 GiB."""
    unit = max(size.bit_length() - 1, 0) // 10
    if unit >= len(_UNITS):
        return f"more than 1000 {_UNITS[-1]}"
    number = size / (1 << 10 * unit)
    return f"{f'{number:.3g}' if number < 999.5 else f'{number:.0f}'} {_UNITS[unit]}"


def _left_in_groups(root: Path) -> Iterator[int]:
    """What is left of each group's limit, the groups around it included."""
    for version, folder in groups("memory", root):
        limit, use, reclaimable = _V1 if version == 1 else _V2
        most, now = text(folder / limit).strip(), text(folder / use).strip()
        if most.isdecimal() and now.isdecimal():  # "max" where there is no limit
            cached = _fields(folder / "memory.stat").get(reclaimable, 0)
            yield int(most) - int(now) + cached


def _fields(path: Path) -> dict[str, int]:
    """The lines `name number` of a file."""
    words = [line.split() for line in text(path).splitlines()]
    return {w[0]: int(w[1]) for w in words if len(w) > 1 and w[1].isdecimal()}
