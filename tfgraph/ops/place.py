"""Places in the user's files: the line that called into this library. May import: ir, errors."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tfgraph.errors import Location

if TYPE_CHECKING:
    from types import CodeType, FrameType, TracebackType

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
        if not _ours(frame.f_code):
            return _location(frame.f_code, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    return None


def caller_location() -> Location | None:
    """The line that called the function that asks; None where that is the library's own."""
    frame = inspect.currentframe()
    asking = frame.f_back if frame else None
    caller = asking.f_back if asking else None
    if caller is None or _ours(caller.f_code):
        return None
    return _location(caller.f_code, caller.f_lasti, caller.f_lineno)


def raised_location(trace: TracebackType | None) -> Location | None:
    """The user's line that called into this library when the error of this trace was raised; None
    where the trace starts within the library."""
    found: Location | None = None
    while trace is not None and not _ours(trace.tb_frame.f_code):
        found = _location(trace.tb_frame.f_code, trace.tb_lasti, trace.tb_lineno)
        trace = trace.tb_next
    return found


def _ours(code: CodeType) -> bool:
    made = code.co_filename == "<string>" and code.co_name == "__init__"  # of a dataclass
    return made or in_library(code.co_filename)


def _location(code: CodeType, instruction: int, line: int | None) -> Location:
    positions = list(code.co_positions())[instruction // 2]
    return Location(code.co_filename, line or 0, (positions[2] or 0) + 1)
