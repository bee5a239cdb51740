"""`tfgraph export MODEL`: an ONNX file, checked and verified. May import: api, errors."""

from __future__ import annotations

import textwrap
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfgraph.cli.options import ModelArgument, verb
from tfgraph.cli.output import plural, size
from tfgraph.cli.report import print_model, print_verification
from tfgraph.cli.session import Session
from tfgraph.cli.source import read_source, short_path
from tfgraph.errors import render

if TYPE_CHECKING:
    from tfgraph.api.export import ExportReport

_STAGES = {
    "write": "writing",
    "check": "running ONNX's checker",
    "verify": "verifying in ONNX Runtime",
}


@verb
def export(
    session: Session,
    model: ModelArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="[default: NAME.onnx]"),
    ] = None,
    opset: Annotated[
        int | None,
        typer.Option(metavar="N", help="version of ONNX's operators, 13 to 28 [default: 24]"),
    ] = None,
    external_above: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES", min=0, help="weights of more stand beside FILE [default: 2 GiB]"
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="run it in ONNX Runtime")
    ] = True,
) -> int:
    """Write a model as an ONNX file of standard operators, and verify it in ONNX Runtime."""
    read = read_source(session, model)
    from tfgraph.api.export import ExportFailed, export_onnx
    from tfgraph.onnx.export import DEFAULT_OPSET, EXTERNAL_BYTES

    if not session.quiet:
        print_model(session, model, read)
    try:
        with session.progress("exporting") as say:
            report = export_onnx(
                read,
                output,
                opset=DEFAULT_OPSET if opset is None else opset,
                check=verify,
                external_bytes=EXTERNAL_BYTES if external_above is None else external_above,
                progress=lambda stage: say(_STAGES.get(stage, stage)),
            )
    except ExportFailed as failure:
        if not session.json:
            raise
        session.note(render(failure))
        session.object(failure.report.to_json())
        return failure.exit_code
    session.object(report.to_json())
    if session.quiet:
        session.print(str(report.path))
    else:
        _print_report(session, report)
    return 0


def _print_report(session: Session, report: ExportReport) -> None:
    assert report.path is not None
    counts = Counter(report.operators)
    nodes = plural(counts.total(), "node")
    session.print(f"{session.style('onnx', 'bold')}    opset {report.opset}, {nodes}")
    for line in textwrap.wrap(", ".join(f"{name} {n}" for name, n in counts.most_common()), 76):
        session.print(f"  {line}")
    session.print(f"{session.style('check', 'bold')}   {session.verdict(True)}, ONNX's checker")
    print_verification(session, report.verification)
    for path in filter(None, (report.path, report.data)):
        shown = session.style(short_path(path), "bold")
        session.print(f"{session.style('wrote', 'bold')}   {shown}, {size(path.stat().st_size)}")
