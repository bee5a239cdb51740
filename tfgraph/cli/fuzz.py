"""`tfgraph fuzz`: random graphs on the reference and on backends, until one of these is wrong.

May import: fuzz, backends, errors.
"""

from __future__ import annotations

import secrets
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfgraph.cli.options import verb
from tfgraph.cli.output import plural
from tfgraph.cli.session import Session

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from tfgraph.fuzz import Progress, Report, Saved

_SHOWN = 8  # ops that the summary names


@verb
def fuzz(
    session: Session,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            min=0,
            metavar="N",
            show_default=False,
            help="for how long [default: 60, or as long as --graphs takes]",
        ),
    ] = None,
    graphs: Annotated[
        int | None, typer.Option("--graphs", min=1, metavar="N", help="how many graphs, at most")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, metavar="N", help="of the first graph [default: any]"),
    ] = None,
    backends: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="what to compare with numpy [default: numpy,cpu]"),
    ] = None,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="compare each kernel alone too, by its own bound")
    ] = False,
    enough: Annotated[
        int, typer.Option("--failures", min=1, metavar="N", help="to stop after")
    ] = 3,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, metavar="N", help="processes [default: one a core]"),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="DIR", help="for failures [default: fuzz-failures]"),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option("--replay", metavar="DIR", help="a saved failure, to be judged once more"),
    ] = None,
) -> int:
    """Run random graphs on backends, and shrink what differs to a model file."""
    session.load_plugins()
    from tfgraph.backends.base import find_backend
    from tfgraph.fuzz.run import FOLDER, run
    from tfgraph.plugins import load_plugins
    from tfgraph.runtime.cores import default_threads

    chosen = backends or ("numpy,cpu" if replay is None else "")
    names = [name.strip() for name in chosen.split(",") if name.strip()]
    for name in names:
        find_backend(name, witnesses=True)
    if replay is not None:
        return _replay(session, replay, names)
    if graphs is None and seconds is None:
        seconds = 60
    first = secrets.randbelow(10**9) if seed is None else seed
    with session.progress(f"fuzzing {', '.join(names)} from seed {first}") as say:
        report = run(
            names,
            seconds=seconds,
            graphs=graphs,
            seed=first,
            folder=FOLDER if save is None else save,
            plugins=session.plugins,
            enough=enough,
            kernels=kernels,
            jobs=default_threads() if jobs is None else jobs,
            prepare=partial(load_plugins, session.plugins),
            say=lambda progress: say(_told(progress)),
        )
    session.object(report.to_json())
    _print(session, report)
    return 1 if report.failures else 0


def _told(progress: Progress) -> str:
    """`1250 graphs, 12.3 a second: linear 812, add 640, softmax 310`."""
    mix = sorted(progress.by_op.items(), key=lambda item: -item[1])[:3]
    ops = ", ".join(f"{op} {n}" for op, n in mix)
    return f"{plural(progress.graphs, 'graph')}, {progress.rate:.1f} a second: {ops}"


def _print(session: Session, report: Report) -> None:
    for failure in report.failures:
        _print_failure(session, failure)
    found = plural(len(report.failures), "failure") if report.failures else "no difference"
    if session.quiet:
        session.print(found)
        return
    last = report.seed + report.graphs - 1
    common = report.by_op.most_common()
    mix = ", ".join(f"{op} {n}" for op, n in common[:_SHOWN])
    more = f", and {len(common) - _SHOWN} more" if len(common) > _SHOWN else ""
    rate = f"{report.progress.rate:.1f} a second"
    alone = f"{report.kernels} results alone, {report.unbounded} with elements without a bound"
    session.rows(
        [
            ("backends", ", ".join(report.backends)),
            ("dtypes", ", ".join(dtype.value for dtype in report.dtypes)),
            ("graphs", f"{report.graphs} in {report.seconds:.0f} s, {rate}"),
            ("seeds", f"{report.seed} to {last}" if report.graphs else "none"),
            ("ops", mix + more),
            ("outputs", f"{report.outputs}, of which {report.sensitive} needed a second look"),
            *([("kernels", alone)] if report.kernels else []),
            *((name, _refusals(report.graphs, found)) for name, found in report.refused.items()),
        ],
        indent=0,
    )
    for note in report.notes if session.verbose else ():
        session.note(f"ill-conditioned, and right: {note}")
    session.print(session.style(found, "red" if report.failures else "green"))


def _refusals(graphs: int, refused: Counter[str]) -> str:
    """`113 of 125 graphs; the rest: 8 ONNX has no such op, 4 its Erf is of float32`."""
    taken = f"{graphs - refused.total()} of {graphs} graphs"
    why = ", ".join(f"{n} {reason}" for reason, n in refused.most_common())
    return f"{taken}; the rest: {why}" if why else taken


def _print_failure(session: Session, failure: Saved) -> None:
    sizes = " ".join(f"{name}={size}" for name, size in failure.sizes.items())
    head = f"{failure.backend} is wrong"
    session.print(f"{session.style(head, 'bold', 'red')}: seed {failure.seed}")
    rows = [
        ("output", f"{failure.output or 'none'} at {sizes}"),
        ("why", failure.why),
        ("saved in", str(failure.folder)),
        ("replay", failure.replay),
    ]
    session.rows(rows if failure.compare is None else [*rows, ("compare", failure.compare)])
    for line in failure.text.splitlines():
        session.print(f"  {line}")
    session.print()


def _replay(session: Session, folder: Path, names: Sequence[str]) -> int:
    """Judge a saved failure again, on its own backend or on the one that is named."""
    from tfgraph.fuzz import replay
    from tfgraph.fuzz.run import REFERENCE
    from tfgraph.text import print_graph

    others = [name for name in names if name != REFERENCE]
    found = replay(folder, others[0] if others else None)
    wrong = [{"output": w.output or None, "why": w.why} for w in found.wrong]
    session.object({"seed": found.seed, "backend": found.backend, "wrong": wrong})
    if not session.quiet:
        session.print(print_graph(found.graph))
    for w in found.wrong:
        session.print(f"{found.backend} is wrong: output {w.output or 'none'}: {w.why}")
    if not wrong:
        session.print(f"{found.backend} is right")
    return 1 if wrong else 0
