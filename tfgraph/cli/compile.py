"""`tfgraph compile MODEL`: write an artifact, verified, and say what was done.

May import: api, backends, passes, text, errors.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfgraph.cli.options import (
    ModelArgument,
    PassesOption,
    Session,
    ThreadsOption,
    verb,
)
from tfgraph.cli.output import at_sizes, plural, size
from tfgraph.cli.report import print_memory, print_model, print_passes
from tfgraph.cli.source import choose_target, read_source, short_path
from tfgraph.errors import TfgraphError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tfgraph.api import CompileReport, Verification
    from tfgraph.ir import Graph
    from tfgraph.passes import Pass

_STAGES = {"passes": "running the passes", "compile": "compiling", "verify": "verifying"}


@verb
def compile(
    session: Session,
    model: ModelArgument,
    target: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="cpu or cuda [default: the model file's, else cpu]"),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="[default: NAME.TARGET.tfgraph]"),
    ] = None,
    arch: Annotated[
        str | None, typer.Option(metavar="ARCH", help="CUDA architecture, such as sm_80")
    ] = None,
    mcpu: Annotated[
        str | None, typer.Option(metavar="CPU", help="LLVM's name of a CPU [default: this one]")
    ] = None,
    passes: PassesOption = None,
    print_after: Annotated[
        list[str] | None,
        typer.Option(metavar="PASS", help="show what a pass changes, as a diff; or 'all'"),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="check against the reference")
    ] = True,
    keep_failed: Annotated[
        bool, typer.Option("--keep-failed", help="keep what fails as NAME.failed.tfgraph")
    ] = False,
    threads: ThreadsOption = None,
) -> int:
    """Compile a model into an artifact, and verify it."""
    _check_output(output)
    read = read_source(session, model)
    chosen = choose_target(read, target, arch=arch, mcpu=mcpu, threads=threads)
    from tfgraph.api import VerificationFailed, build
    from tfgraph.passes import DEFAULT_PIPELINE, parse_pipeline

    pipeline = DEFAULT_PIPELINE if passes is None else passes
    wanted = _passes_to_show(print_after or (), [p.name for p in parse_pipeline(pipeline)])
    if not session.quiet:
        print_model(session, model, read)
    where = f"for {chosen.name}" + (f" {chosen.arch}" if chosen.arch else "")
    try:
        with session.progress(f"compiling {where}") as say:
            report = build(
                read.graph,
                chosen,
                output,
                weights=read.weights,
                passes=pipeline,
                check=verify,
                keep_failed=keep_failed,
                progress=lambda stage: say(f"{_STAGES.get(stage, stage)} {where}"),
                after=_show_diffs(session, wanted),
            )
    except VerificationFailed as failure:
        if not session.json:
            raise
        session.note(str(failure))
        session.object(failure.report.to_json())
        return failure.exit_code
    session.object(report.to_json())
    if session.quiet:
        session.print(str(report.artifact))
    else:
        _print_report(session, report)
    return 0


def _check_output(output: Path | None) -> None:
    """Refuse a place that holds something else before any work is done."""
    if output is not None and output.exists() and not (output / "manifest.json").is_file():
        raise TfgraphError(f"{output} exists and is not an artifact", hint="choose another -o")


def _passes_to_show(wanted: Sequence[str], names: Sequence[str]) -> frozenset[str]:
    for name in wanted:
        if name != "all" and name not in names:
            raise TfgraphError(
                f"--print-after {name}: no such pass runs",
                hint=nearest(name, names) or f"passes are {', '.join(dict.fromkeys(names))}",
            )
    return frozenset(names if "all" in wanted else wanted)


def _show_diffs(session: Session, wanted: frozenset[str]) -> Callable[[Pass, Graph, Graph], None]:
    """What `build` calls after each pass: prints the change of the graph's text."""

    def show(item: Pass, before: Graph, after: Graph) -> None:
        if item.name not in wanted:
            return
        from difflib import unified_diff

        from tfgraph.text import print_graph

        old, new = (print_graph(graph).splitlines() for graph in (before, after))
        lines = list(unified_diff(old, new, f"before {item}", f"after {item}", lineterm=""))
        for line in lines or [f"{item} changes nothing"]:
            if session.json:
                session.note(line)
            else:
                styles = {"+": ("green",), "-": ("red",), "@": ("cyan",)}.get(line[:1], ())
                session.print(session.style(line, *styles) if styles else line)

    return show


def _print_report(session: Session, report: CompileReport) -> None:
    from tfgraph.backends.base import symbol_ranges
    from tfgraph.runtime.format import read_manifest

    target, artifact = report.target, report.artifact
    if artifact is None:
        return
    line = target.name
    if target.arch:
        line += f" {target.arch} ({target.arch_origin})"
    elif "cpu" in (manifest := read_manifest(artifact)):
        line += f" {manifest['cpu']['mcpu']} ({'--mcpu' if target.mcpu else 'this machine'})"
    session.print(f"{session.style('target', 'bold')}  {line}")
    print_passes(session, report.graph, report.compiled, report.passes)
    examples = {name: s.example for name, s in symbol_ranges(report.graph).items()}
    print_memory(session, report.compiled, report.weight_bytes, examples)
    _print_verification(session, report.verification)
    files = [p for p in artifact.rglob("*") if p.is_file()]
    total = size(sum(p.stat().st_size for p in files))
    shown = short_path(artifact)
    session.print(
        f"{session.style('wrote', 'bold')}   {session.style(shown, 'bold')}, "
        f"{plural(len(files), 'file')}, {total}"
    )
    session.print(f"        sha256 {report.sha256}")


def _print_verification(session: Session, outcome: Verification) -> None:
    head = session.style("verify", "bold")
    if outcome.ok is None:
        reason = (outcome.reason or "").removeprefix("not run: ")
        session.print(f"{head}  {session.verdict(None)}: {reason}")
        return
    at = f" at {plural(len(outcome.dims), 'size')}" if len(outcome.dims) > 1 else ""
    session.print(f"{head}  {session.verdict(outcome.ok)} against {outcome.against}{at}")
    rows = [("output", "max error", "bound", "")]
    rows += [
        (d.name, f"{d.max_abs:.2e}", f"{d.bound:.2e}", session.verdict(d.ok))
        for d in outcome.outputs
    ]
    for sizes in filter(None, outcome.dims):
        session.print(f"  {at_sizes(sizes)}")
    session.rows(rows, right=(1, 2))
