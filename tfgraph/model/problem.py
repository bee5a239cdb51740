"""A mistake in a model file whose keys are right one by one. May import nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """Something that does not fit together: at a path, depending on some top-level keys."""

    path: tuple[str | int, ...]
    message: str
    depends: tuple[str, ...]
    hint: str | None = None
