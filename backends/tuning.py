"""What tuning found: which way of doing its work is fastest, kernel by kernel.

May import: the standard library.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Tuned:
    """A kernel that was tuned. `tried` schedules were measured, 0 where it was known before;
    `speedup` is that of the chosen one over the default, by medians."""

    kernel: str
    rows: tuple[int, ...]
    """The numbers of rows at which it was measured."""
    tried: int
    schedule: str
    changed: bool
    """Whether that is another one than the default."""
    speedup: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Tuning:
    """All of a model's kernels: those that were tuned, those that the time did not suffice for, and
    the file that now knows the first."""

    database: Path
    seconds: float
    tuned: tuple[Tuned, ...]
    missed: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The entry `tuning` of what `compile --json` prints."""
        return {
            "database": str(self.database),
            "seconds": self.seconds,
            "tuned": [entry.to_json() for entry in self.tuned],
            "missed": list(self.missed),
        }
