"""All that the command line prints: results on stdout, progress and notes on stderr, errors.

May import: the standard library, runtime.columns, errors; rich where progress is shown.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tfgraph.errors import TfgraphError, render
from tfgraph.runtime.columns import columns

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from typing import Self, TextIO

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_PREFIXES = ("", "Ki", "Mi", "Gi", "Ti")


class Output:
    """Where a verb prints. With `json` the only thing on stdout is one object; with `quiet` only
    what was asked for; `verbose` adds detail, and tracebacks to internal errors."""

    def __init__(self, *, json: bool, verbose: bool, quiet: bool, color: bool) -> None:
        self.json = json
        self.verbose = verbose
        self.quiet = quiet
        allowed = color and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._color = {stream: allowed and stream.isatty() for stream in (sys.stdout, sys.stderr)}
        self._pause: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, arguments: Sequence[str]) -> Self:
        """The output that the arguments ask for, found before they are parsed: mistakes in them
        are printed by it."""

        def given(*names: str) -> bool:
            return any(name in arguments for name in names)

        return cls(
            json=given("--json"),
            verbose=given("-v", "--verbose"),
            quiet=given("-q", "--quiet"),
            color=not given("--no-color"),
        )

    def print(self, text: str = "") -> None:
        """Part of the result, for people: nothing with `--json`."""
        if not self.json:
            self._pause()
            print(text)

    def rows(
        self, rows: Sequence[Sequence[str]], right: Sequence[int] = (), indent: int = 2
    ) -> None:
        """Part of the result as a table; the columns in `right` are aligned to the right."""
        for line in columns(rows, right, indent):
            self.print(line)

    def object(self, value: dict[str, Any]) -> None:
        """The result for programs: printed with `--json` only."""
        if self.json:
            self._pause()
            print(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False))

    def note(self, text: str) -> None:
        """A remark beside the result; not with `--quiet`."""
        if not self.quiet:
            self._pause()
            print(text, file=sys.stderr)

    def style(self, text: str, *styles: str, stream: TextIO | None = None) -> str:
        """The text in colours, where the stream is a terminal and colours are wanted."""
        if not self._color.get(stream or sys.stdout):
            return text
        return f"\x1b[{';'.join(_CODES[s] for s in styles)}m{text}\x1b[0m"

    def verdict(self, ok: bool | None) -> str:
        """ok, FAILED or not run."""
        if ok is None:
            return self.style("not run", "yellow")
        return self.style("ok", "green") if ok else self.style("FAILED", "bold", "red")

    @contextmanager
    def progress(self, doing: str) -> Generator[Callable[[str], None]]:
        """Show what is being done while it lasts; call the result to say something new. Shown on
        a terminal, or with `--verbose`."""
        shown = sys.stderr.isatty() and find_spec("rich")  # a machine that only runs has no rich
        if self.quiet or not (self.verbose or shown):
            yield lambda text: None
            return
        if self.verbose:
            self.note(f"{doing} ...")
            yield lambda text: self.note(f"{text} ...")
            return
        from rich.console import Console

        console = Console(stderr=True, no_color=not self._color[sys.stderr], highlight=False)
        status = console.status(doing)

        def say(text: str) -> None:
            status.update(text)
            status.start()

        status.start()
        self._pause = status.stop
        try:
            yield say
        finally:
            self._pause()
            self._pause = lambda: None

    def fail(self, error: TfgraphError) -> int:
        """Print an error of the user's; its exit code."""
        if self.json:
            related = [e.to_json() for e in error.related]
            more = {"related": related} if related else {}
            self.object({"error": {**error.to_json(), **more}})
        else:
            self._pause()
            print(self._painted(_printable(render(error))), file=sys.stderr)
        if self.verbose and error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        return error.exit_code

    def crash(self, error: Exception, version: str) -> int:
        """Print an error of ours; its exit code."""
        what = " ".join(f"{type(error).__name__}: {error}".split())
        if self.verbose:
            traceback.print_exception(error)
        if self.json:
            place = {"file": None, "line": None, "column": None}
            hint = "please report it, with what -v prints"
            self.object({"error": {"code": "internal", "message": what, **place, "hint": hint}})
        else:
            more = "" if self.verbose else "; -v shows where"
            text = f"internal error: {what} (tfgraph {version}; please report it{more})"
            print(self._painted(_printable(text)), file=sys.stderr)
        return 70

    def _painted(self, text: str) -> str:
        """Errors in red, hints in cyan."""
        lines: list[str] = []
        for line in text.splitlines():
            before, error, after = line.partition("error: ")
            if error and not line.startswith(" "):
                line = before + self.style("error:", "bold", "red", stream=sys.stderr) + " " + after
            elif line.startswith("hint: "):
                line = self.style("hint:", "cyan", stream=sys.stderr) + line.removeprefix("hint:")
            lines.append(line)
        return "\n".join(lines)

    def start_log(self) -> None:
        """Let the library's log go to stderr: warnings, and with `--verbose` more."""
        log = logging.getLogger("tfgraph")
        log.handlers = [_LogHandler(self)]
        log.propagate = False
        log.setLevel(
            logging.INFO if self.verbose else logging.ERROR if self.quiet else logging.WARNING
        )


class _LogHandler(logging.Handler):
    """Log records as notes."""

    def __init__(self, out: Output) -> None:
        super().__init__()
        self._out = out

    def emit(self, record: logging.LogRecord) -> None:
        prefix = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        self._out.note(prefix + _printable(record.getMessage()))


def size(number: float) -> str:
    """Bytes with a binary prefix: `1.5 MiB`."""
    power = 0
    while number >= 1024 and power < len(_PREFIXES) - 1:
        number, power = number / 1024, power + 1
    shown = f"{number:.0f}" if power == 0 or number >= 999.5 else f"{number:.3g}"
    return f"{shown} {_PREFIXES[power]}B"


def count(number: int) -> str:
    """A count with a decimal prefix: `3.42 M`."""
    for limit, prefix in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= limit:
            return f"{number / limit:.3g} {prefix}"
    return str(number)


def plural(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {noun}" + ("" if number == 1 else "es" if noun.endswith("s") else "s")


def at_sizes(sizes: dict[str, int]) -> str:
    """`batch=2 seq=128`."""
    return " ".join(f"{name}={n}" for name, n in sizes.items())


def _printable(text: str) -> str:
    """The text without control characters, which could move the cursor or change colours."""
    shown = (c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
    return "".join(shown)
