"""The command line: one file a verb, nothing but arguments and printing.

Exit codes: 0 done, 1 a check failed, 2 bad input or usage, 3 a backend or tool is missing, 70 a
mistake in tfgraph itself, 130 interrupted. Heavy imports stand inside the verbs, so that `--help`
is quick and `run ARTIFACT` needs little. May import: everything.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from tfgraph.cli.compare import compare
from tfgraph.cli.compile import compile
from tfgraph.cli.doctor import doctor
from tfgraph.cli.importing import import_app
from tfgraph.cli.init import init
from tfgraph.cli.inspect import inspect
from tfgraph.cli.options import Session, VersionOption
from tfgraph.cli.run import run
from tfgraph.cli.source import short_path
from tfgraph.errors import TfgraphError, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help needs no import of rich
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback()
def tfgraph(version: VersionOption = False) -> None:
    """A small graph compiler for Transformers."""


for _verb in (compile, run, compare, inspect, doctor, init):
    app.command(_verb.__name__)(_verb)
app.add_typer(import_app, name="import")

# Typer's own class for mistakes in the arguments is not exported; this is its base.
_UsageMistake: type[Exception] = typer.BadParameter.__mro__[1]


class UsageError(TfgraphError):
    """Arguments that cannot be parsed."""

    code = "usage"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; its exit code. Without `argv` it is that of this process."""
    if argv is None:
        _set_up_process()
    arguments = list(sys.argv[1:] if argv is None else argv)
    session = Session.of(arguments)
    try:
        code = _dispatch(arguments, session)
        sys.stdout.flush()
    except TfgraphError as error:
        code = session.fail(error)
    except BrokenPipeError:
        # Whoever read the output has enough. Python would complain when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + signal.SIGPIPE
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        code = session.fail(_caused(f"{where}{error.strerror or error}", error))
    except MemoryError as error:
        code = session.fail(_caused(f"not enough memory {error}".rstrip(), error))
    except KeyboardInterrupt:
        session.note("interrupted")
        code = 130
    except Exception as error:
        code = _unexpected(session, error)
    return code


def _unexpected(session: Session, error: Exception) -> int:
    """An error of an extension or of a graph's Python file is its author's, any other is ours."""
    from tfgraph.plugins import blame
    from tfgraph.runtime.version import VERSION

    blamed = blame(error)
    if blamed is None or blamed.location is None:
        return session.crash(error, VERSION)
    where = blamed.location
    blamed.location = replace(where, file=short_path(where.file))
    return session.fail(blamed)


def _set_up_process() -> None:
    """SIGTERM removes partial output as Ctrl-C does, and terminals that cannot show a letter get
    an escape rather than an error."""
    signal.signal(signal.SIGTERM, _terminate)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _terminate(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def _dispatch(arguments: list[str], session: Session) -> int:
    command: Any = typer.main.get_command(app)
    try:
        with command.make_context("tfgraph", arguments, obj=session) as context:
            return int(command.invoke(context) or 0)
    except typer.Exit as leave:
        return leave.exit_code
    except _UsageMistake as mistake:
        if type(mistake).__name__ == "NoArgsIsHelpError":  # its message is the help
            session.print(str(mistake))
            return 2
        raise _usage(mistake, command) from None


def _usage(mistake: Any, command: Any) -> TfgraphError:
    """A mistake in the arguments as an error of ours."""
    context = mistake.ctx
    message = str(mistake.format_message()).strip()
    # What typer's own validation prefixes its reasons with.
    message = message.replace(": Value error, ", ": ").replace(": Input should", ": should")
    possible = getattr(mistake, "possibilities", None)
    hint = f"did you mean '{possible[0]}'?" if possible else None
    if possible:
        message = message.partition(" (Possible")[0].partition(" (Did you")[0]
    if message.startswith("No such command"):
        word = message.partition("'")[2].partition("'")[0]
        group = context.command if context else command
        message = f"no such command: {word}"
        hint = nearest(word, group.commands)
    if hint is None and context is not None:
        hint = f"see `{context.command_path} --help`"
    return UsageError(message[:1].lower() + message[1:].rstrip("."), hint=hint)


def _caused(message: str, cause: BaseException) -> TfgraphError:
    error = TfgraphError(message)
    error.__cause__ = cause
    return error
