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
from functools import cache
from heapq import nlargest
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

WINDOW = 72
"""Columns of a line of source that are shown, so that the excerpt fits 80 columns."""

_CUT = "..."
_LONGEST_NAME, _MOST_NAMES, _MOST_COMPARED = 200, 100_000, 100


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
        return _render_all(self, "")

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
    return _render_all(error, "error: ")


# What other tools call it, where the nearest spelling would be something else.
_OTHER_NAMES = {"gpu": "cuda", "float": "float32", "double": "float64", "half": "float16"}


def nearest(word: str, known: Iterable[str]) -> str | None:
    """A hint that names the nearest known spelling, or None when nothing is near."""
    names = list(known)
    other = _OTHER_NAMES.get(word)
    close = [other] if other in names else _close(word, names)
    return f"did you mean '{close[0]}'?" if close else None


def _close(word: str, names: Sequence[str]) -> list[str]:
    """The nearest name. A comparison takes up to the product of both lengths, and files may hold a
    million names of any length: only some are compared, and hints left out where there are more."""
    if len(word) > _LONGEST_NAME or len(names) > _MOST_NAMES:
        return []
    likely = [n for n in names if len(word) <= 2.4 * len(n) and len(n) <= 2.4 * len(word)]
    if len(likely) > _MOST_COMPARED:
        likely = nlargest(_MOST_COMPARED, likely, key=lambda n: _shared_ends(word, n))
    return get_close_matches(word, likely, n=1, cutoff=0.6)


def _shared_ends(a: str, b: str) -> int:
    """How many letters two names begin and end with alike."""

    def front(pairs: Iterable[tuple[str, str]]) -> int:
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    return front(zip(a, b, strict=False)) + front(zip(a[::-1], b[::-1], strict=False))


def _render_all(error: TfgraphError, word: str) -> str:
    lines = cache(_lines)  # of each file once, and as it is now
    return "\n".join(_render_one(e, word, lines) for e in (error, *error.related))


def _lines(file: str) -> list[str]:
    """The lines of a file; none when it can't be read any more."""
    try:
        return Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []


def _render_one(error: TfgraphError, word: str, lines_of: Callable[[str], list[str]]) -> str:
    place = f"{error.location}: " if error.location else ""
    lines = [f"{place}{word}{error.message}"]
    if error.location and error.location.line:
        lines += _excerpt(error.location, lines_of(error.location.file))
    if error.hint:
        lines.append(f"hint: {error.hint}")
    return "\n".join(lines)


def _excerpt(where: Location, source_lines: Sequence[str]) -> list[str]:
    """The source line and a caret under the column, where the file still has it."""
    if where.line > len(source_lines):
        return []
    source = source_lines[where.line - 1]
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
