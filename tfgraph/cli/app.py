"""The verbs, read by typer. May import: everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from tfgraph.cli.bench import bench
from tfgraph.cli.compare import compare
from tfgraph.cli.compile import compile
from tfgraph.cli.doctor import doctor
from tfgraph.cli.export import export
from tfgraph.cli.fuzz import fuzz
from tfgraph.cli.generate import generate
from tfgraph.cli.importing import import_app
from tfgraph.cli.init import init
from tfgraph.cli.inspect import inspect
from tfgraph.cli.options import VersionOption
from tfgraph.cli.run import run
from tfgraph.errors import TfgraphError, nearest

if TYPE_CHECKING:
    from tfgraph.cli.session import Session

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help needs no import of rich
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback()
def tfgraph(version: VersionOption = False) -> None:
    """A small graph compiler for Transformers."""


for _verb in (compile, run, generate, compare, inspect, bench, fuzz, export, doctor, init):
    app.command(_verb.__name__)(_verb)
app.add_typer(import_app, name="import")

# Typer's own class for mistakes in the arguments is not exported; this is its base.
_UsageMistake: type[Exception] = typer.BadParameter.__mro__[1]


class UsageError(TfgraphError):
    """Arguments that cannot be parsed."""

    code = "usage"


def dispatch(arguments: list[str], session: Session) -> int:
    """Run the verb that the arguments name; its exit code."""
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
