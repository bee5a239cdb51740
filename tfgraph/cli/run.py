"""`tfgraph run`, as typer reads it: an artifact or a model on inputs from files, or made up.

`lean` takes the same options where they are plain and name an artifact. May import: execute; for a
model api, backends.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfgraph.cli.options import (
    DimOption,
    DtypeOption,
    InputOption,
    ModelOrArtifact,
    SeedOption,
    ThreadsOption,
    verb,
)
from tfgraph.cli.session import Session
from tfgraph.cli.source import choose_target, is_artifact, read_source
from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from tfgraph.backends.base import Executable


@verb
def run(
    session: Session,
    model: ModelOrArtifact,
    inputs: InputOption = None,
    text: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="the inputs as text; several are a batch"),
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="with --text, encoder-decoders: the target so far"),
    ] = None,
    dim: DimOption = None,
    save: Annotated[
        Path | None, typer.Option(metavar="DIR", help="write each output as a .npy file")
    ] = None,
    seed: SeedOption = 0,
    threads: ThreadsOption = None,
    verify_weights: Annotated[
        bool,
        typer.Option(
            "--verify-weights/--no-verify-weights", help="check an artifact's weights file first"
        ),
    ] = True,
    target: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="for a model: numpy, cpu [default: its own, else cpu]"),
    ] = None,
    dtype: DtypeOption = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="print every value, as the reference computes it")
    ] = False,
) -> int:
    """Run an artifact or a model; inputs left out are made up, seeded."""
    from tfgraph.cli.execute import Request, execute, run_artifact

    request = Request(inputs, dim, save, seed, trace, text, prefix)
    if is_artifact(model):
        for_models = {"--trace": trace, "--target": target, "--dtype": dtype}
        if given := [option for option, value in for_models.items() if value]:
            raise TfgraphError(
                f"{given[0]} is for models; {model} is an artifact",
                hint="name what it was compiled from",
            )
        return run_artifact(session, model, request, threads, verify_weights)
    if not verify_weights:
        raise TfgraphError(
            f"--no-verify-weights is for artifacts; {model} is a model",
            hint="compile it first: tfgraph compile",
        )
    executable, constraints = _from_model(session, model, target, dtype, threads, trace)
    with executable:
        return execute(session, model, executable, constraints, request)


def _from_model(
    session: Session,
    spec: str,
    target: str | None,
    dtype: str | None,
    threads: int | None,
    trace: bool,
) -> tuple[Executable, list[str]]:
    if trace and target not in (None, "numpy"):
        raise TfgraphError(
            f"--trace is of the reference, not of {target}",
            hint="`tfgraph compare` names the first value that differs",
        )
    model = read_source(session, spec)
    from tfgraph.api import compile

    chosen = choose_target(model, "numpy" if trace else target, threads=threads, dtype=dtype)
    with session.progress(f"compiling for {chosen.name}"):
        made = compile(replace(model, functions={}), chosen, dtype=dtype)
    return made, [str(c) for c in model.graph.constraints]
