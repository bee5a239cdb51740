"""Compile a graph: run the passes, build with a backend, write the artifact, verify it.

May import: source, dtype, fuse, verifying, backends, passes, weights, ir, errors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.api.dtype import in_dtype
from tfgraph.api.fuse import AfterPass, fuse
from tfgraph.api.source import Opened, open_source
from tfgraph.api.verify import Verification
from tfgraph.api.verifying import NOT_ASKED, Verifying
from tfgraph.api.weights import as_seeded
from tfgraph.backends.artifact import record_verification, write_artifact
from tfgraph.backends.base import (
    Backend,
    CompilingBackend,
    Executable,
    Target,
    Weights,
    find_backend,
    input_ports,
    symbol_ranges,
)
from tfgraph.backends.staging import Staging
from tfgraph.cache import Cache, using
from tfgraph.errors import CheckFailed, MissingTool, TfgraphError
from tfgraph.ir import DType, Graph
from tfgraph.ir import dtype as dtype_of
from tfgraph.passes import PassReport, Tap
from tfgraph.passes.proof import Proof
from tfgraph.runtime.cores import check_threads
from tfgraph.runtime.format import SUFFIX
from tfgraph.runtime.model import load
from tfgraph.runtime.text import largest_id
from tfgraph.runtime.tokens import IDS, TARGET
from tfgraph.weights import Seeded

if TYPE_CHECKING:
    from tfgraph.api.source import Source

log = logging.getLogger("tfgraph")
Progress = Callable[[str], None]


@dataclass(frozen=True)
class CompileReport:
    """What `build` did. `artifact` is None where a failed verification left none."""

    artifact: Path | None
    target: Target
    graph: Graph
    compiled: Graph
    passes: tuple[PassReport, ...]
    verification: Verification
    sha256: str
    weight_bytes: int
    proof: Proof | None = None
    """Of all passes: how sure it is that the artifact's graph means what was read."""
    taps: tuple[Tap, ...] = ()
    tap_nodes: int = 0
    """The nodes of `compiled` that recompute tapped values; the passes made the others."""

    def to_json(self) -> dict[str, Any]:
        """The object that `compile --json` prints."""
        return {
            "artifact": None if self.artifact is None else str(self.artifact),
            "target": self.target.name,
            "arch": self.target.arch,
            "symbols": {
                name: {"min": s.low, "max": s.high, "example": s.example}
                for name, s in symbol_ranges(self.graph).items()
            },
            "passes": [report.to_json() for report in self.passes],
            "taps": [tap.to_json() for tap in self.taps],
            "proof": None if self.proof is None else self.proof.to_json(),
            "verify": self.verification.to_json(),
            "sha256": self.sha256,
        }


class VerificationFailed(CheckFailed):
    """The artifact does not compute what the graph means; `report` is what would be returned."""

    def __init__(self, report: CompileReport) -> None:
        kept = "" if report.artifact is None else f"kept as {report.artifact}; "
        hint = f"{kept}tfgraph compare names the first value that differs"
        super().__init__(f"verification failed: {report.verification.failure}", hint=hint)
        self.report = report


def compile(
    source: Source,
    target: str | Target | None = None,
    *,
    output: str | Path | None = None,
    weights: Weights | None = None,
    passes: str | None = None,
    dtype: str | DType | None = None,
    tap: str | Sequence[str] = (),
    threads: int | None = None,
) -> Executable:
    """A graph as a callable: `compile(graph)(x=array)` gives the outputs by name.

    `source` is a Graph, a Model, or the path of one (`model.yaml`, `file.py:name`, `graph.tfg`);
    the target is that of the model, or the CPU, unless given. With `output` a verified artifact is
    written there, which `load` reads again. `weights` are arrays by parameter name, all of them and
    no others, of the parameters' shapes and dtypes; without, they are the model's, or seeded. With
    a `dtype`, float32, float16 or bfloat16, the model's floats become of that type, inputs, outputs
    and weights too, which are rounded once.
    `tap` are patterns of values that become further outputs, see `tfgraph.passes.find_taps`; the
    model's other functions have none. `threads` is that of `load`; the reference uses NumPy's.
    Raises TfgraphError for weights that do not fit, taps that name nothing and a graph that the
    target cannot run, MissingTool where this machine cannot, VerificationFailed.
    """
    opened = open_source(source, weights)
    chosen = opened.choose(target, dtype)
    if check_threads(threads) is not None:
        chosen = replace(chosen, threads=threads)
    backend = find_backend(chosen.name)
    if output is not None:
        return _written(opened, backend, chosen, Path(output), passes, dtype, tap)
    typed = in_dtype(opened, dtype, passes)
    opened, passes = typed.opened, typed.passes
    compiled = fuse(opened.graph, chosen, passes, tap=tap).compiled
    others = _functions(opened, backend)
    fused = {name: fuse(graph, chosen, passes).compiled for name, graph in others.items()}
    more = (fused,) if fused else ()
    made = backend.compile(compiled, _weights(opened), chosen, *more)
    made.tokenizer_json = _tokenizer(opened)
    made.generation = opened.generation or made.generation
    made.no_generation = _no_generation(opened, backend)
    return made


def _functions(opened: Opened, backend: Backend) -> Mapping[str, Graph]:
    """The model's other functions, where the backend takes them."""
    return opened.functions if backend.has_functions else {}


def _tokenizer(opened: Opened) -> bytes | None:
    """The model's tokenizer; with a warning where it gives ids that the model does not take."""
    data = opened.tokenizer_json()
    limits = [p.limit for p in input_ports(opened.graph) if p.name in (IDS, TARGET)]
    taken = min((limit for limit in limits if isinstance(limit, int)), default=None)
    most = None if data is None else largest_id(data)
    if taken is not None and most is not None and most >= taken:
        log.warning(
            "%s: its tokenizer gives ids up to %d, and the model takes 0 to %d: texts with others "
            "are refused",
            opened.graph.name,
            most,
            taken - 1,
        )
    return data


def _no_generation(opened: Opened, backend: Backend) -> str | None:
    """Why what is compiled does not generate, where that is known and so."""
    left_out = bool(opened.functions) and not backend.has_functions
    return f"target '{backend.name}' takes `main` alone" if left_out else opened.no_generation


def _written(
    opened: Opened,
    backend: Backend,
    target: Target,
    output: Path,
    passes: str | None,
    dtype: str | DType | None,
    tap: str | Sequence[str],
) -> Executable:
    """The artifact at `output`, loaded."""
    if isinstance(backend, CompilingBackend):
        target = backend.settle(target)
        reason = backend.runs_here(target)
        if reason is not None:
            hint = "tfgraph.build writes an artifact without running it"
            raise MissingTool(f"target '{target.name}' cannot run here: {reason}", hint=hint)
    _build(opened, target, output, passes=passes, dtype=dtype, tap=tap)
    return load(output, threads=target.threads)


def build(
    source: Source,
    target: str | Target | None = None,
    output: str | Path | None = None,
    *,
    weights: Weights | None = None,
    passes: str | None = None,
    dtype: str | DType | None = None,
    tap: str | Sequence[str] = (),
    check: bool = True,
    prove: bool = True,
    keep_failed: bool = False,
    origin: Sequence[str] | None = None,
    progress: Progress = lambda stage: None,
    after: AfterPass | None = None,
    cache: Cache | None = None,
) -> CompileReport:
    """Compile a graph into an artifact directory (default `NAME.TARGET.tfgraph` here); `source`,
    `target`, `weights`, `dtype` and `tap` are those of `compile`.

    The artifact appears whole, after it was verified against the reference, or not at all. Raises
    VerificationFailed; with `keep_failed` the artifact is then kept under `NAME.failed.tfgraph`.
    With `prove` each pass must keep what the graph means, else it raises Refuted; see
    `tfgraph.passes.proof`. `origin` is how the command line names the source of a graph: the model
    and its plugins, without folders. `progress` hears what is being done; `after` sees the graph
    around each pass. With a `cache`, see `tfgraph.cache`, what an earlier compilation found of the
    same bytes holds; it knows nothing of ops, rules and passes that are not tfgraph's own.
    """
    with using(cache):
        return _build(
            open_source(source, weights),
            target,
            output,
            passes=passes,
            dtype=dtype,
            tap=tap,
            check=check,
            prove=prove,
            keep_failed=keep_failed,
            origin=origin,
            progress=progress,
            after=after,
        )


def _build(
    opened: Opened,
    target: str | Target | None,
    output: str | Path | None,
    *,
    passes: str | None,
    dtype: str | DType | None,
    tap: str | Sequence[str],
    check: bool = True,
    prove: bool = True,
    keep_failed: bool = False,
    origin: Sequence[str] | None = None,
    progress: Progress = lambda stage: None,
    after: AfterPass | None = None,
) -> CompileReport:
    """See `build`."""
    chosen = opened.choose(target, dtype)
    backend = find_backend(chosen.name)
    if not isinstance(backend, CompilingBackend):
        raise TfgraphError(
            f"target '{chosen.name}' makes no artifact", hint="compile with --target cpu"
        )
    target = backend.settle(chosen)
    final = Path(output or f"{opened.graph.name}.{target.name}{SUFFIX}")
    command = _command(opened, target, passes or opened.passes, dtype, tap, origin)
    progress("passes")
    typed = in_dtype(opened, dtype, passes, after, prove)
    opened, passes = typed.opened, typed.passes
    arrays, functions = _weights(opened), _functions(opened, backend)
    seeded = as_seeded(arrays)
    if seeded is not None:
        seeded.make_ahead()
    tokenizer = _tokenizer(opened)
    main = fuse(opened.graph, target, passes, after, tap, prove)
    graph, compiled, reports = main.graph, main.compiled, [*typed.reports, *main.passes]
    fused = {n: fuse(g, target, passes, prove=prove).compiled for n, g in functions.items()}
    written = {"main": (graph, compiled)}
    written |= {name: (g, fused[name]) for name, g in functions.items()}
    zeroed = compiled if main.changes_empty_rows else None
    with (
        Staging(final) as staging,
        Verifying(backend, written, arrays, target, zeroed) as verifying,
    ):
        progress("compile")
        built = backend.build(compiled, arrays, target, *((fused,) if fused else ()))
        if check:
            verifying.begin()
        reports += [built.notes] if built.notes else []
        write_artifact(
            staging.folder,
            graph,
            compiled,
            built,
            target,
            reports,
            tokenizer=tokenizer,
            generation=opened.generation,
            no_generation=_no_generation(opened, backend),
            command=command,
            taps={t.output for t in main.taps if t.added},
            writing=staging.writing,
        )
        progress("verify")
        outcome = verifying.outcome(staging.folder) if check else NOT_ASKED
        with staging.writing():
            sha256 = record_verification(staging.folder, outcome.record())
        failed = outcome.ok is False
        place: Path | None = final
        if failed:
            name = f"{final.name.removesuffix(SUFFIX)}.failed{SUFFIX}"
            place = final.with_name(name) if keep_failed else None
        if place is not None:
            staging.publish(place)
    size = sum(int(np.prod(w.shape)) * np.dtype(w.dtype).itemsize for w in built.weights)
    report = CompileReport(
        place,
        target,
        graph,
        compiled,
        tuple(reports),
        outcome,
        sha256,
        size,
        _proof(typed.reports, main.proof),
        main.taps,
        main.tap_nodes,
    )
    if failed:
        raise VerificationFailed(report)
    return report


def _proof(reports: Sequence[PassReport], proof: Proof | None) -> Proof | None:
    """That of the passes before a change of the type, too, which changes no meaning."""
    found = [report.proof for report in reports if report.proof is not None]
    return None if proof is None else reduce(Proof.and_then, found, proof)


def _command(
    opened: Opened,
    target: Target,
    passes: str,
    dtype: str | DType | None,
    tap: str | Sequence[str],
    origin: Sequence[str] | None,
) -> list[str] | None:
    """The command that makes the artifact again, in the folder of its model; None where it was made
    of a graph. Without folders, since the same inputs give the same bytes wherever they are."""
    if origin is None and opened.file is not None:
        origin = [opened.file]
    if not origin:
        return None
    options = {
        "--target": target.name,
        "--arch": target.arch,
        "--mcpu": target.mcpu,
        "--dtype": None if dtype is None else dtype_of(dtype).value,
        "--passes": None if passes == opened.passes else passes,
    }
    given = [word for name, value in options.items() if value for word in (name, value)]
    patterns = [tap] if isinstance(tap, str) else tap
    given += [word for pattern in patterns for word in ("--tap", pattern)]
    given += [f"--{name}" for name in ("tf32", "shared") if getattr(target, name)]
    given += ["--no-tf32"] * (opened.choose(target.name, dtype).tf32 and not target.tf32)
    return ["tfgraph", "compile", *origin, *given]


def _weights(opened: Opened) -> Weights:
    graph = opened.graph
    if opened.weights is not None:
        return opened.weights
    if graph.params:
        log.info("%s has no weights file: its parameters are seeded", graph.name)
    return Seeded(graph.params)
