"""Whether a reader did with some bytes what readers must do with any.

It reads them, or raises TfgraphError: no other exception, within limits of time and memory, with
nothing printed and no file written.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import signal
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Of the CPU, for one input: the largest graph that a model file may ask for takes ten, and twice
# that in instrumented code.
SECONDS = 30.0


class TooSlow(BaseException):
    """Not an Exception, so that no reader takes it for a mistake in its input."""


class Printed(Exception):
    """Something was written to stdout."""


class Wrote(Exception):
    """A file was made, or is gone."""


@dataclass(frozen=True)
class Finding:
    """What a reader did wrong: the exception, and the innermost line of ours that raised it."""

    kind: str
    place: str
    trace: str

    @property
    def key(self) -> tuple[str, str]:
        """Findings of one key are taken for the same."""
        return self.kind, self.place


def judge(
    read: Callable[[Path, bytes], object], folder: Path, data: bytes, seconds: float = SECONDS
) -> Finding | None:
    """What `read` does wrong with `data`, if anything; it may write the input to `folder`."""
    printed = io.StringIO()
    try:
        with _limited(seconds), contextlib.redirect_stdout(printed):
            read(folder, data)
            _check(printed, folder)
    except TfgraphError as error:
        try:
            str(error)  # what a user would see can be shown
            _check(printed, folder)
        except Exception as wrong:
            return _finding(wrong)
    except (Exception, TooSlow) as wrong:
        return _finding(wrong)
    except BaseException as wrong:
        if type(wrong).__name__ != "PanicException":  # of Rust; it is not an Exception
            raise
        return _finding(wrong)
    return None


def quiet() -> None:
    """No warnings about inputs: there are thousands."""
    warnings.simplefilter("ignore")
    logging.getLogger("tfgraph").setLevel(logging.CRITICAL)


def _check(printed: io.StringIO, folder: Path) -> None:
    if printed.getvalue():
        raise Printed(printed.getvalue()[:200])
    left = [p.name for p in folder.iterdir() if not p.name.startswith("input")]
    if left:
        raise Wrote(", ".join(left))


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raises TooSlow in the block when it has taken so many seconds of the CPU."""

    def stop(*_: Any) -> None:
        raise TooSlow(f"more than {seconds} seconds")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _finding(wrong: BaseException) -> Finding:
    frames = traceback.extract_tb(wrong.__traceback__)
    ours = [f for f in frames if f"{os.sep}tfgraph{os.sep}" in f.filename]
    last = (ours or frames)[-1]
    trace = "".join(traceback.format_exception(wrong, limit=-30))
    return Finding(type(wrong).__name__, f"{Path(last.filename).name}:{last.lineno}", trace[-6000:])
