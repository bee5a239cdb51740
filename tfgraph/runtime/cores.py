"""This machine's CPU: its features, and how many threads to use.

The thread count respects the affinity mask and the CPU quota of control groups, as containers set
them. May import: the standard library.
"""

from __future__ import annotations

import os
from pathlib import Path

_TOPOLOGY = Path("/sys/devices/system/cpu")
_CGROUP = Path("/sys/fs/cgroup")
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


def default_threads() -> int:
    """One thread a physical core, no more than the CPU quota pays for; at least 1."""
    cores = {_siblings(cpu) for cpu in available_cores()}
    quota = _quota()
    return max(1, len(cores) if quota is None else min(len(cores), int(quota)))


def _siblings(cpu: int) -> str:
    """The hyper-threads that share a core with `cpu`, as the kernel lists them; else its number."""
    try:
        return (_TOPOLOGY / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _quota() -> float | None:
    """CPUs that the control group grants (version 2 or 1), or None where there is no limit."""
    try:
        quota, period = (_CGROUP / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        quota = (_CGROUP / "cpu/cpu.cfs_quota_us").read_text()
        period = (_CGROUP / "cpu/cpu.cfs_period_us").read_text()
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError):
        return None
