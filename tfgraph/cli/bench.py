"""`tfgraph bench`: where the time of an artifact goes, and how near that is to the machine's limit.

May import: bench, cache, inputs, options, output, session; runtime, errors.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfgraph.cli.options import DimOption, ThreadsOption, verb
from tfgraph.cli.output import at_sizes
from tfgraph.cli.session import Session
from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SMALL = 0.001
"""Kernels that take less of the time than this are one line together, unless `--verbose`."""


@verb
def bench(
    session: Session,
    artifact: Annotated[Path, typer.Argument(metavar="ARTIFACT", show_default=False)],
    dim: DimOption = None,
    function: Annotated[
        str, typer.Option(metavar="NAME", help="of a model that generates: main, step, ...")
    ] = "main",
    runs: Annotated[int, typer.Option(min=1, metavar="N", help="timed with and without")] = 20,
    threads: ThreadsOption = None,
) -> int:
    """Time each kernel of an artifact, beside what the machine can do."""
    from tfgraph.backends.tvm.cpu.probe import Probe
    from tfgraph.bench import cpu_name, measure_machine, profile
    from tfgraph.cache import default_cache, using
    from tfgraph.cli.inputs import parse_dims
    from tfgraph.runtime.cores import default_threads
    from tfgraph.runtime.format import read_manifest
    from tfgraph.runtime.model import load

    target = read_manifest(artifact)["target"]
    if target != "cpu":
        raise TfgraphError(
            f"{artifact} is for {target}: kernels are timed on the CPU alone",
            hint="`nsys profile tfgraph run ARTIFACT` times those of a GPU",
        )
    with load(artifact, threads=threads) as model:
        called = model.functions.get(function, model)
        dims = parse_dims(dim, called.symbols)
        used = threads or default_threads()
        with session.progress("measuring the machine") as say, using(default_cache()):
            probe = Probe(threads)
            before = measure_machine(probe)
            say(f"running {artifact.name}")
            found = profile(model, function, dims, runs)
            machine = before.or_faster(measure_machine(probe))
    plain = found.to_json(machine)
    limits = {"gflops": machine.flops / 1e9, "gigabytes_per_second": machine.bytes / 1e9}
    about = {"artifact": str(artifact), "cpu": cpu_name(), "threads": used, "limits": limits}
    session.object({**about, **plain})
    at = f" at {at_sizes(dict(found.sizes))}" if found.sizes else ""
    title = artifact.name if function == "main" else f"{artifact.name}: {function}"
    first, third = plain["quartiles_ms"]
    session.print(f"{session.style(title, 'bold')}{at}")
    session.rows(
        [
            ["run", f"{plain['ms']:.3f} ms, half of {runs} in {first:.3f} to {third:.3f}"],
            ["kernels", f"{plain['kernels_ms']:.3f} ms, each timed by itself"],
            [
                "limit",
                f"{limits['gflops']:.0f} GFLOP/s, {limits['gigabytes_per_second']:.1f} GB/s read, "
                f"{used} thread{'s' if used > 1 else ''}",
            ],
        ]
    )
    session.print()
    _print_kernels(session, plain["kernels"])
    return 0


def _print_kernels(session: Session, kernels: list[dict[str, Any]]) -> None:
    head = ["kernel", "calls", "ms", "share", "GFLOP/s", "GB/s", "of limit", ""]
    shown = [k for k in kernels if session.verbose or k["share"] >= _SMALL]
    rows = [head, *map(_row, shown)]
    rest = [k for k in kernels if k not in shown]
    if rest:
        calls, ms, share = (sum(k[key] for k in rest) for key in ("calls", "ms", "share"))
        rows.append([f"{len(rest)} more", f"{calls}", f"{ms:.3f}", f"{share:.1%}"])
    session.rows(rows, right=range(1, len(head) - 1))


def _row(kernel: Mapping[str, Any]) -> list[str]:
    of_limit = kernel["of_limit"]
    return [
        kernel["kernel"],
        f"{kernel['calls']}",
        f"{kernel['ms']:.3f}",
        f"{kernel['share']:.1%}",
        f"{kernel['gflops']:.1f}" if kernel["flops"] else "",
        f"{kernel['gigabytes_per_second']:.1f}" if kernel["bytes"] else "",
        "" if of_limit is None else f"{of_limit:.0%}",
        "" if of_limit is None else f"by {kernel['bound']}",
    ]
