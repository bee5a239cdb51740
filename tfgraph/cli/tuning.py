"""The options of `compile --tune`, and what it prints. May import: api, backends, cache, errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfgraph.cache import SCHEDULES, default_cache
from tfgraph.cli.output import plural
from tfgraph.cli.source import short_path
from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from tfgraph.backends.base import Target
    from tfgraph.backends.tuning import Tuned, Tuning
    from tfgraph.cli.session import Session
    from tfgraph.model import Model

SECONDS = 60.0

TuneOption = Annotated[
    bool, typer.Option("--tune", help="measure here how kernels are fastest, and keep it")
]
SecondsOption = Annotated[
    float | None,
    typer.Option("--tune-seconds", min=0, metavar="N", help=f"for --tune [default: {SECONDS:g}]"),
]
DatabaseOption = Annotated[
    Path | None,
    typer.Option(
        "--tune-database", metavar="FILE", help="what --tune finds [default: in the cache's folder]"
    ),
]


def with_schedules(
    target: Target, wanted: bool, seconds: float | None, database: Path | None, cached: bool
) -> Target:
    """The target with the file of the user's schedules, `database` or that beside the cache.
    Raises TfgraphError for options that do not go together."""
    if seconds is not None and not wanted:
        raise TfgraphError("--tune-seconds is for --tune")
    if target.name != "cpu":
        if wanted or database is not None:
            name = "--tune" if wanted else "--tune-database"
            raise TfgraphError(
                f"{name} is for --target cpu: the kernels of {target.name} leave nothing to choose"
            )
        return target
    if database is None and cached:
        cache = default_cache()
        database = None if cache is None else cache.folder / SCHEDULES
    if database is None and wanted:
        raise TfgraphError(
            "--tune has no file to keep what it finds: there is no cache",
            hint="name one with --tune-database FILE",
        )
    return replace(target, schedules=database)


def tune(
    session: Session, model: Model, target: Target, passes: str, seconds: float | None
) -> Tuning:
    """Tune the model's kernels, a line on stderr for each, and say what the time did not reach."""
    from tfgraph.api.tune import tune as run

    budget = SECONDS if seconds is None else seconds

    def heard(tuned: Tuned) -> None:
        session.note(_line(tuned))

    with session.progress(f"tuning, {budget:g} s at most"):
        found = run(model, target, passes=passes, seconds=budget, heard=heard)
    if found.missed:
        session.note(
            f"tune    {budget:g} s did not suffice for {', '.join(found.missed)}: "
            "the same command goes on there, --tune-seconds gives it more"
        )
    which = plural(len(found.tuned), "kernel")
    session.note(f"tune    {which}, {found.seconds:.1f} s, in {short_path(found.database)}")
    return found


def _line(tuned: Tuned) -> str:
    tried = f"{tuned.tried} tried" if tuned.tried else "known"
    gained = f"{tuned.speedup:.2f}x" if tuned.changed and tuned.speedup else ""
    chosen = tuned.schedule if tuned.changed else "as it was"
    return f"tune    {tuned.kernel:<26} {tried:>8}  {gained:>6}  {chosen}"
