"""This machine's CPU: its features, and how many threads to use.

The thread count respects the affinity mask and the CPU quota of control groups, as containers set
them. May import: the standard library.
"""

from __future__ import annotations

import operator
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError
from tfgraph.runtime.groups import groups, text

if TYPE_CHECKING:
    from collections.abc import Iterator

_CPUINFO = Path("/proc/cpuinfo")


def cpu_flags() -> frozenset[str]:
    """The CPU features that the kernel lists in /proc/cpuinfo; empty where there is no such file.

    Code compiled for a `CpuMachine` may be loaded where these hold all of its `features`.
    """
    try:
        lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return frozenset(flags.partition(":")[2].split())


def available_cores() -> list[int]:
    """The logical CPUs this process may be scheduled on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def check_threads(threads: int | None) -> int | None:
    """`threads` if that many may run. Raises TfgraphError unless it is None or from 1 to the number
    of CPUs that this process may use: each is a thread of the system."""
    if threads is None:
        return None
    most = len(available_cores())
    try:
        count = operator.index(threads)
    except TypeError:
        count = 0
    if not 1 <= count <= most:
        raise TfgraphError(
            f"threads: expected 1 to {most}, the CPUs this process may use; got {threads!r}"
        )
    return count


def cpu_budget(root: Path = Path("/")) -> int:
    """The CPUs that all threads of this process together may keep busy: those that it may be
    scheduled on, no more than the quotas of its control groups pay for; at least 1."""
    return max(1, min([len(available_cores()), *map(int, _quotas(root))]))


def default_threads(root: Path = Path("/")) -> int:
    """One thread a physical core, no more than the CPU quota pays for; at least 1. `root` is where
    the system's files are."""
    cores = {_siblings(cpu, root) for cpu in available_cores()}
    return max(1, min([len(cores), *map(int, _quotas(root))]))


def _siblings(cpu: int, root: Path) -> str:
    """The hyper-threads that share a core with `cpu`, as the kernel lists them; else its number."""
    listed = text(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    return listed.strip() or str(cpu)


def _quotas(root: Path) -> Iterator[float]:
    """The CPUs that each control group grants which has a limit: time a period / the period."""
    for version, folder in groups("cpu", root):
        if version == 2:
            words = text(folder / "cpu.max").split()  # "max 100000" where there is no limit
        else:
            files = ("cpu.cfs_quota_us", "cpu.cfs_period_us")  # -1 where there is no limit
            words = [text(folder / name).strip() for name in files]
        if len(words) == 2 and all(word.isdecimal() and int(word) for word in words):
            yield int(words[0]) / int(words[1])
