"""The command line: one file a verb, nothing but arguments and printing.

Exit codes: 0 done, 1 a check failed, 2 bad input or usage, 3 a backend or tool is missing, 70 a
mistake in tfgraph itself, 130 interrupted. Heavy imports stand inside the verbs, so that `--help`
is quick; `run` and `generate` of artifacts go by `lean`, past typer. May import: everything.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from tfgraph.cli.session import Session
from tfgraph.errors import TfgraphError
from tfgraph.runtime.packages import missing_package

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; its exit code. Without `argv` it is that of this process."""
    if argv is None:
        _set_up_process()
    arguments = list(sys.argv[1:] if argv is None else argv)
    session = Session.of(arguments)
    try:
        code = _outcome(arguments, session)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output, be it of an error, has enough. Python would complain when it
        # flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + signal.SIGPIPE
    return code


def _outcome(arguments: list[str], session: Session) -> int:
    """Run a verb; its exit code, with errors said."""
    try:
        return _dispatch(arguments, session)
    except TfgraphError as error:
        return session.fail(error)
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return session.fail(_caused(f"{where}{error.strerror or error}", error))
    except MemoryError as error:
        return session.fail(_caused(f"not enough memory {error}".rstrip(), error))
    except KeyboardInterrupt:
        session.note("interrupted")
        return 130
    except Exception as error:
        return _unexpected(session, error)


def _unexpected(session: Session, error: Exception) -> int:
    """An error of an extension or of a graph's Python file is its author's; a package that is not
    installed is named; any other error is ours."""
    from tfgraph.runtime.version import VERSION

    blamed = None
    if "tfgraph.plugins" in sys.modules:  # else nothing of theirs was loaded
        from tfgraph.plugins import blame

        blamed = blame(error)
    missing = missing_package(error) if isinstance(error, ModuleNotFoundError) else None
    if blamed is None and missing is not None:
        return session.fail(missing)
    if blamed is None or blamed.location is None:
        return session.crash(error, VERSION)
    from tfgraph.cli.source import short_path

    where = blamed.location
    blamed.location = replace(where, file=short_path(where.file))
    return session.fail(blamed)


def _set_up_process() -> None:
    """SIGTERM removes partial output as Ctrl-C does, and terminals that cannot show a letter get
    an escape rather than an error."""
    gc.set_threshold(10_000)  # imports leave nothing to collect: a twentieth of `compile`
    signal.signal(signal.SIGTERM, _terminate)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _terminate(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def _dispatch(arguments: list[str], session: Session) -> int:
    from tfgraph.cli.lean import run_lean

    code = run_lean(arguments, session)
    if code is None:
        from tfgraph.cli.app import dispatch

        code = dispatch(arguments, session)
    return code


def _caused(message: str, cause: BaseException) -> TfgraphError:
    error = TfgraphError(message)
    error.__cause__ = cause
    return error
