"""What the kernel says of this process, and Python code run in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = os.sysconf("SC_PAGE_SIZE")


def resident() -> int:
    """The bytes of memory that are resident."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def descriptors() -> int:
    """How many files are open."""
    return len(os.listdir("/proc/self/fd"))


def os_threads() -> dict[int, int]:
    """The threads of the system that this process has, and the nanoseconds each has run."""
    times: dict[int, int] = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            times[int(task.name)] = int((task / "schedstat").read_text().split()[0])
        except (OSError, ValueError):  # it has just ended
            continue
    return times


def python(code: str, *args: str, timeout: float = 120, **env: str) -> str:
    """What `code` prints in a new interpreter that imports the project and the helpers. Fails where
    it fails, and where it hangs."""
    path = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    done = subprocess.run(
        [sys.executable, "-c", code, *args],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **env},
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
