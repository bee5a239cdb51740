"""Options that several verbs have, and `verb`, which makes a function a command with all of them.

May import: typer, session, tfgraph.errors.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.cli.session import Session

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        show_default=False,
        help="model.yaml, file.onnx, a checkpoint's folder, file.py:name, or a graph as text",
    ),
]
ModelOrArtifact = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        show_default=False,
        help="a model (YAML, ONNX, a checkpoint, file.py:name, text), or an artifact",
    ),
]
InputOption = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="NAME=FILE.npy", help="an input; others are made up, seeded"),
]
InputsOption = Annotated[
    Path | None,
    typer.Option("--inputs", metavar="FILE", help="inputs by name: an .npz, or JSON of lists"),
]
InterveneOption = Annotated[
    list[str] | None,
    typer.Option(
        "--intervene",
        metavar="NAME=VALUE",
        help="scale a head or hidden unit, or replace a row; VALUE is a number or FILE.npy",
    ),
]
DimOption = Annotated[
    list[str] | None, typer.Option("--dim", metavar="NAME=SIZE", help="the size of a symbol")
]
SeedOption = Annotated[
    int, typer.Option("--seed", min=0, metavar="N", help="of inputs that are made up")
]
ThreadsOption = Annotated[
    int | None,
    typer.Option("--threads", min=1, metavar="N", help="threads of the kernels [default: cores]"),
]
DtypeOption = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="TYPE",
        help="of floats: float32, float16 or bfloat16 [default: the model's]",
    ),
]
PassesOption = Annotated[
    str | None,
    typer.Option("--passes", metavar="LIST", help="passes to run, such as simplify,cse,dce"),
]
StrictMasksOption = Annotated[
    bool,
    typer.Option("--strict-masks", help="of ONNX: a least number that is added hides no key"),
]


def show_version(wanted: bool) -> None:
    """Print the version and leave."""
    if wanted:
        from tfgraph.runtime.version import VERSION

        print(f"tfgraph {VERSION}")
        raise typer.Exit


VersionOption = Annotated[
    bool,
    typer.Option("--version", is_eager=True, callback=show_version, help="print the version"),
]

# In the order of the help; the parameters' names must not be those of a verb's own options.
_COMMON: dict[str, Any] = {
    "plugin": Annotated[
        list[Path] | None,
        typer.Option("--plugin", metavar="FILE", help="a Python file that adds ops, rules, ..."),
    ],
    "json": Annotated[bool, typer.Option("--json", help="print one JSON object")],
    "verbose": Annotated[bool, typer.Option("--verbose", "-v", help="say more")],
    "quiet": Annotated[bool, typer.Option("--quiet", "-q", help="print the result alone")],
    "no_color": Annotated[bool, typer.Option("--no-color", help="no colours, as with NO_COLOR")],
    "version": VersionOption,
}


def verb(function: Callable[..., int | None]) -> Callable[..., int]:
    """A command of a function whose first parameter is the session; it may return an exit code.

    The options that every verb has are added to its signature, which is what typer reads.
    """
    signature = inspect.signature(function, eval_str=True)
    own = list(signature.parameters.values())[1:]

    def command(context: typer.Context, **given: Any) -> int:
        session: Session = context.obj
        session.plugins = tuple(given.pop("plugin") or ())
        for name in _COMMON:
            given.pop(name, None)
        session.start_log()
        return function(session, **given) or 0

    first = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    common = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None if name == "plugin" else False,
            annotation=annotation,
        )
        for name, annotation in _COMMON.items()
    ]
    parameters = [first, *(p.replace(kind=p.KEYWORD_ONLY) for p in own), *common]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    return command
