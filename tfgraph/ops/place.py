"""Places in the user's files: the line that called into this library. May import: ir, errors."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tfgraph.errors import Location

if TYPE_CHECKING:
    from types import FrameType

_HOUSE = Path(__file__).resolve().parents[1]
# Where the code is laid out as in the repository, passes and backends stand beside `tfgraph/`.
_FOLDERS = (_HOUSE, _HOUSE.parent / "passes", _HOUSE.parent / "backends")
_LIBRARY = tuple(f"{folder}{os.sep}" for folder in _FOLDERS)


def in_library(file: str) -> bool:
    """Whether a file of code is this library's."""
    return file.startswith(_LIBRARY)


def user_location() -> Location | None:
    """The innermost frame outside of this library: the user's line."""
    frame: FrameType | None = inspect.currentframe()
    while frame is not None:
        code = frame.f_code
        if not in_library(code.co_filename):
            positions = list(code.co_positions())[frame.f_lasti // 2]
            return Location(code.co_filename, frame.f_lineno, (positions[2] or 0) + 1)
        frame = frame.f_back
    return None
