"""`tfgraph compile MODEL`: write an artifact, verified, and say what was done.

May import: api, backends, passes, text, errors.
"""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfgraph.cache import Cache, default_cache
from tfgraph.cli.options import (
    DtypeOption,
    InterveneOption,
    ModelArgument,
    PassesOption,
    StrictMasksOption,
    ThreadsOption,
    verb,
)
from tfgraph.cli.output import plural, size
from tfgraph.cli.report import (
    print_memory,
    print_model,
    print_passes,
    print_taps,
    print_verification,
)
from tfgraph.cli.session import Session
from tfgraph.cli.source import choose_passes, choose_target, read_source, short_path
from tfgraph.cli.tuning import DatabaseOption, SecondsOption, TuneOption, with_schedules
from tfgraph.cli.tuning import tune as tune_kernels
from tfgraph.errors import TfgraphError, nearest, render

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tfgraph.api import CompileReport
    from tfgraph.ir import Graph
    from tfgraph.passes import Pass

_STAGES = {"passes": "running the passes", "compile": "compiling", "verify": "verifying"}


@verb
def compile(
    session: Session,
    model: ModelArgument,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="cpu, cuda, opencl, metal or webgpu [default: the model file's, else cpu]",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="[default: NAME.TARGET.tfgraph]"),
    ] = None,
    arch: Annotated[
        str | None,
        typer.Option(metavar="ARCHS", help="CUDA architectures, such as sm_80 or sm_80,sm_90"),
    ] = None,
    mcpu: Annotated[
        str | None, typer.Option(metavar="CPU", help="LLVM's name of a CPU [default: this one]")
    ] = None,
    dtype: DtypeOption = None,
    tf32: Annotated[
        bool | None,
        typer.Option(
            "--tf32/--no-tf32",
            help="CUDA: products of float32 round their factors to tf32 [default: the file's]",
        ),
    ] = None,
    passes: PassesOption = None,
    strict_masks: StrictMasksOption = False,
    tap: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN", help="values as further outputs; or 'attention', or 'hidden'"
        ),
    ] = None,
    print_after: Annotated[
        list[str] | None,
        typer.Option(metavar="PASS", help="show what a pass changes, as a diff; or 'all'"),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="check against the reference")
    ] = True,
    prove: Annotated[
        bool, typer.Option("--prove/--no-prove", help="check each pass exactly")
    ] = True,
    keep_failed: Annotated[
        bool, typer.Option("--keep-failed", help="keep what fails as NAME.failed.tfgraph")
    ] = False,
    shared: Annotated[
        bool, typer.Option("--shared", help="also link kernels/model.so, for C++ programs")
    ] = False,
    cache: Annotated[
        bool, typer.Option("--cache/--no-cache", help="take what is known of the same bytes")
    ] = True,
    tune: TuneOption = False,
    tune_seconds: SecondsOption = None,
    tune_database: DatabaseOption = None,
    intervene: InterveneOption = None,
    threads: ThreadsOption = None,
) -> int:
    """Compile a model into an artifact, and verify it."""
    _check_output(output)
    from tfgraph.cli.inputs import read_edits
    from tfgraph.weights import Seeded

    edits = read_edits(intervene)
    read = read_source(session, model)
    read = read.intervene(edits) if edits else read
    if isinstance(read.weights, Seeded) and not tune:  # which is to measure on idle cores
        read.weights.make_ahead()  # while the compiler is imported
    options: dict[str, Any] = {"arch": arch, "mcpu": mcpu, "threads": threads}
    chosen = choose_target(read, target, dtype=dtype, tf32=tf32, **options)
    if shared and chosen.name != "cpu":
        raise TfgraphError(f"--shared is for --target cpu, not {chosen.name}")
    chosen = replace(chosen, shared=shared)
    chosen = with_schedules(chosen, tune, tune_seconds, tune_database, cache)
    from tfgraph.api import VerificationFailed, build
    from tfgraph.passes import parse_pipeline

    pipeline = choose_passes(read, passes, strict_masks)
    passes = pipeline if strict_masks else passes
    names = [p.name for p in parse_pipeline(pipeline)]
    wanted = _passes_to_show(print_after or (), names)
    if not session.quiet:
        print_model(session, model, read, dtype)
    tuning = tune_kernels(session, read, chosen, pipeline, tune_seconds) if tune else None
    known = default_cache() if cache and _is_all_ours(session, model) else None
    where = f"for {chosen.name}" + (f" {chosen.arch}" if chosen.arch else "")
    try:
        with session.progress(f"compiling {where}") as say:
            report = build(
                read,
                chosen,
                output,
                passes=pipeline,
                dtype=dtype,
                tap=tap or (),
                check=verify,
                prove=prove,
                keep_failed=keep_failed,
                origin=_origin(session, model, intervene or ()),
                progress=lambda stage: say(f"{_STAGES.get(stage, stage)} {where}"),
                after=_show_diffs(session, wanted, names),
                cache=known,
            )
    except VerificationFailed as failure:
        failure.hint = _reproduce(session, model, passes, dtype, intervene or (), failure.report)
        if not session.json:
            raise
        session.note(render(failure))
        session.object(failure.report.to_json())
        return failure.exit_code
    more = {} if tuning is None else {"tuning": tuning.to_json()}
    session.object(report.to_json() | more)
    if session.quiet:
        session.print(str(report.artifact))
    else:
        _print_report(session, report)
        if known is not None and known.found:
            session.print(f"{session.style('cache', 'bold')}   found {_found(known)}")
    return 0


def _is_all_ours(session: Session, model: str) -> bool:
    """Whether nothing but tfgraph's own code decides what is made: only that is part of a key."""
    from tfgraph.plugins import any_loaded

    return not session.plugins and not any_loaded() and ".py" not in Path(model).name


def _found(cache: Cache) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in sorted(cache.found.items()))


def _origin(session: Session, model: str, edits: Sequence[str]) -> list[str]:
    """How a command names the model from its own folder: artifacts hold no other."""
    plugins = [word for plugin in session.plugins for word in ("--plugin", plugin.name)]
    pairs = [edit.partition("=") for edit in edits]
    short = [f"{name}={Path(value).name}" for name, _, value in pairs]
    return [Path(model).name, *plugins, *_interventions(short)]


def _interventions(edits: Sequence[str]) -> list[str]:
    return [word for edit in edits for word in ("--intervene", edit)]


def _reproduce(
    session: Session,
    model: str,
    passes: str | None,
    dtype: str | None,
    edits: Sequence[str],
    report: CompileReport,
) -> str:
    """The `compare` that meets the same difference."""
    worst, at = report.verification.worst
    kept = "" if report.artifact is None else f"kept as {short_path(report.artifact)}; "
    if worst.name not in {output.name for output in report.graph.outputs}:
        return f"{kept}that is another function than the whole model, which `compare` runs"
    if any(tap.added and tap.output == worst.name for tap in report.taps):
        passes = "dce"  # so that nothing is fused, and `compare` sees what the tap is made of
    line = ["tfgraph", "compare", model, "--backends", f"numpy,{report.target.name}"]
    for symbol, number in report.verification.dims[at].items():
        line += ["--dim", f"{symbol}={number}"]
    line += ["--seed", str(at)] if at else []
    line += [] if dtype is None else ["--dtype", dtype]
    line += [] if passes is None else ["--passes", passes]
    line += _interventions(edits)
    for plugin in session.plugins:
        line += ["--plugin", str(plugin)]
    return f"{kept}to find the first value that differs: {shlex.join(line)}"


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


def _show_diffs(
    session: Session, wanted: frozenset[str], names: Sequence[str]
) -> Callable[[Pass, Graph, Graph], None]:
    """What `build` calls after each pass: prints the change of the graph's text. `names` are those
    of all passes that run."""
    runs = Counter[str]()

    def show(item: Pass, before: Graph, after: Graph) -> None:
        runs[item.name] += 1
        if item.name not in wanted:
            return
        name = str(item) + (f" (run {runs[item.name]})" if names.count(item.name) > 1 else "")
        from difflib import unified_diff

        from tfgraph.text import print_graph

        old, new = (print_graph(graph).splitlines() for graph in (before, after))
        lines = list(unified_diff(old, new, f"before {name}", f"after {name}", lineterm=""))
        for line in lines or [f"{name} changes nothing"]:
            if session.json:
                session.note(line)
            else:
                styles = {"+": ("green",), "-": ("red",), "@": ("cyan",)}.get(line[:1], ())
                session.print(session.style(line, *styles) if styles else line)

    return show


def _cubins(manifest: dict[str, Any]) -> str:
    """For which GPUs there is code, and what made it."""
    images: list[dict[str, str]] = manifest["cuda"]["images"]
    if not images:
        return "none: no nvcc or NVRTC; pip install 'tfgraph[cuda]'"
    archs = {kind: [i["arch"] for i in images if i["kind"] == kind] for kind in ("cubin", "ptx")}
    made = f"by {manifest['tools']['cuda']}"
    return f"{', '.join(archs['cubin'])}, and PTX of {archs['ptx'][0]} for later GPUs, {made}"


def _print_report(session: Session, report: CompileReport) -> None:
    from tfgraph.backends.base import symbol_ranges
    from tfgraph.runtime.format import read_manifest

    target, artifact = report.target, report.artifact
    if artifact is None:
        return
    line = target.name
    if target.arch:
        line += f" {target.arch} ({target.arch_origin})" + " tf32" * target.tf32
    manifest = read_manifest(artifact)
    if "cpu" in manifest:
        line += f" {manifest['cpu']['mcpu']} ({'--mcpu' if target.mcpu else 'this machine'})"
    session.print(f"{session.style('target', 'bold')}  {line}")
    if "cuda" in manifest:
        session.print(f"{session.style('cubins', 'bold')}  {_cubins(manifest)}")
    fused = len(report.compiled.nodes) - report.tap_nodes
    print_passes(session, len(report.graph.nodes), fused, report.passes)
    print_taps(session, report)
    examples = {name: s.example for name, s in symbol_ranges(report.graph).items()}
    print_memory(session, report.compiled, report.weight_bytes, examples)
    if report.proof is not None:
        session.print(f"{session.style('prove', 'bold')}   {session.verdict(True)}, {report.proof}")
    print_verification(session, report.verification)
    files = [p for p in artifact.rglob("*") if p.is_file()]
    total = size(sum(p.stat().st_size for p in files))
    shown = short_path(artifact)
    session.print(
        f"{session.style('wrote', 'bold')}   {session.style(shown, 'bold')}, "
        f"{plural(len(files), 'file')}, {total}"
    )
    session.print(f"        sha256 {report.sha256}")
