"""The control groups that this process runs in, as containers and service managers set them.

May import: the standard library.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def groups(controller: str, root: Path = Path("/")) -> Iterator[tuple[int, Path]]:
    """The version, 1 or 2, and the folder of each group that limits `controller` ("cpu",
    "memory"), from the innermost to those around it. `root` is where the system's files are.

    A container often sees its own group as the top one, and at /proc a path that is not there:
    so every folder on the way up is given, and the caller passes over files that are missing.
    """
    for line in text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = root / "sys/fs/cgroup"
        if controllers:  # version 1 has a tree for each controller, or for some together
            together = base / controllers
            base = together if together.is_dir() else base / controller
        group = base / path.lstrip("/")
        for folder in (group, *group.parents):
            yield (1 if controllers else 2), folder
            if folder == base:
                break


def text(path: Path) -> str:
    """What a file holds; nothing where it can't be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
