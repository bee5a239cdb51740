"""The errors a user sees: a message, the place it is about, and a hint; rendered in one place.

Every mistake of a user ends in a `TfgraphError`. The command line prints it by `render` as

    model.yaml:7:12: error: heads: expected an integer, got 'seven'
        heads: seven
               ^
    hint: ...

and turns its class into an exit code. May import: the standard library.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WINDOW = 72
"""Columns of a line of source that are shown, so that the excerpt fits 80 columns."""

_CUT = "..."


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a user's file. `line` and `column` count from 1; 0 means unknown."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        parts = [self.file] + [str(n) for n in (self.line, self.column) if n]
        return ":".join(parts)


class TfgraphError(Exception):
    """A mistake in what the user gave: bad input or usage (exit code 2).

    `related` holds further errors found in the same file; all are rendered.
    """

    exit_code: ClassVar[int] = 2
    code: ClassVar[str] = "bad-input"

    def __init__(
        self,
        message: str,
        location: Location | None = None,
        hint: str | None = None,
        related: Sequence[TfgraphError] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.location = location
        self.hint = hint
        self.related = tuple(related)

    def __str__(self) -> str:
        """As `render`, without the word that the class says: Python prints `TfgraphError: ...`."""
        return "\n".join(_render_one(e, "") for e in (self, *self.related))

    def to_json(self) -> dict[str, object]:
        """The object that `--json` prints under "error"."""
        where = self.location
        return {
            "code": self.code,
            "message": self.message,
            "file": where.file if where else None,
            "line": (where.line or None) if where else None,
            "column": (where.column or None) if where else None,
            "hint": self.hint,
        }


class CheckFailed(TfgraphError):
    """A check ran and failed, such as a verification or a comparison (exit code 1)."""

    exit_code = 1
    code = "check-failed"


class MissingTool(TfgraphError):
    """A backend, device, compiler or tool that is not here (exit code 3)."""

    exit_code = 3
    code = "missing-tool"


def render(error: TfgraphError) -> str:
    """One error, and those related to it, as the text that the user reads."""
    return "\n".join(_render_one(e, "error: ") for e in (error, *error.related))


# What other tools call it, where the nearest spelling would be something else.
_OTHER_NAMES = {"gpu": "cuda", "float": "float32", "double": "float64", "half": "float16"}


def nearest(word: str, known: Iterable[str]) -> str | None:
    """A hint that names the nearest known spelling, or None when nothing is near."""
    names = list(known)
    other = _OTHER_NAMES.get(word)
    close = [other] if other in names else get_close_matches(word, names, n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else None


def _render_one(error: TfgraphError, word: str) -> str:
    place = f"{error.location}: " if error.location else ""
    lines = [f"{place}{word}{error.message}"]
    if error.location and error.location.line:
        lines += _excerpt(error.location)
    if error.hint:
        lines.append(f"hint: {error.hint}")
    return "\n".join(lines)


def _excerpt(where: Location) -> list[str]:
    """The source line and a caret under the column, when the file can still be read."""
    try:
        source = Path(where.file).read_text(encoding="utf-8").splitlines()[where.line - 1]
    except (OSError, IndexError, UnicodeDecodeError):
        return []
    shown, caret = _window(source.expandtabs(1).rstrip(), max(where.column - 1, 0))
    lines = [f"    {shown}"]
    if 0 < where.column <= len(source) + 1:
        lines.append("    " + " " * caret + "^")
    return lines


def _window(line: str, column: int) -> tuple[str, int]:
    """The part of a long line around a column, counted from 0, and the column in that part."""
    if len(line) <= WINDOW:
        return line, column
    room = WINDOW - 2 * len(_CUT)
    start = min(max(column - room // 2, 0), len(line) - room)
    before, after = _CUT * (start > 0), _CUT * (start + room < len(line))
    return before + line[start : start + room] + after, len(before) + column - start
