"""A run of the fuzzer: batches of random graphs on every backend, until the time is up or enough
has failed. May import: api, backends, ops, ir, errors.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tfgraph import ops
from tfgraph.backends.base import Target, find_backend
from tfgraph.errors import MissingTool, TfgraphError
from tfgraph.fuzz.batch import points
from tfgraph.fuzz.graphs import random_case
from tfgraph.fuzz.inputs import Case
from tfgraph.fuzz.judge import Judge
from tfgraph.fuzz.save import Saved, save
from tfgraph.fuzz.shrink import Failure, failures
from tfgraph.ir import DType, Fill
from tfgraph.weights import Seeded

if TYPE_CHECKING:
    from tfgraph.ops import Traced

REFERENCE = "numpy"
FOLDER = Path("fuzz-failures")
FIRST, BATCH = 25, 125
"""Graphs that are compiled as one: they share kernels, whose compilation is what takes time. The
first batch is small, since nobody knows yet how fast this machine is."""

_FEWEST = 5  # graphs that are worth a batch
_FLOATS = (DType.float32, DType.float16, DType.bfloat16, DType.float64)
_SHRINK_SECONDS = 15.0


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    graphs: int
    seconds: float
    by_op: Mapping[str, int]

    @property
    def rate(self) -> float:
        """Graphs per second."""
        return self.graphs / max(self.seconds, 1e-9)


@dataclass
class Report:
    """What a run did. `by_op` counts the nodes of the graphs by op, the most frequent first, and
    `sizes` the values of each symbol; `dtypes` are the floats that all backends take; `sensitive`
    of `outputs` exceeded the bound and were right, see `tfgraph.fuzz.judge`."""

    seed: int
    backends: tuple[str, ...]
    dtypes: tuple[DType, ...]
    graphs: int = 0
    seconds: float = 0.0
    by_op: Counter[str] = field(default_factory=Counter[str])
    outputs: int = 0
    sensitive: int = 0
    failures: list[Saved] = field(default_factory=list[Saved])
    notes: list[str] = field(default_factory=list[str])

    @property
    def progress(self) -> Progress:
        """How far the run is."""
        return Progress(self.graphs, self.seconds, self.by_op)

    def to_json(self) -> dict[str, Any]:
        """The object that `fuzz --json` prints."""
        return {
            "graphs": self.graphs,
            "failures": [failure.to_json() for failure in self.failures],
            "by_op": dict(self.by_op.most_common()),
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "backends": list(self.backends),
            "dtypes": [dtype.value for dtype in self.dtypes],
            "outputs": self.outputs,
            "sensitive": self.sensitive,
        }


def run(
    backends: Sequence[str] = (REFERENCE, "cpu"),
    *,
    seconds: float | None = 60,
    graphs: int | None = None,
    seed: int = 0,
    folder: Path = FOLDER,
    plugins: Sequence[Path] = (),
    enough: int = 3,
    say: Callable[[Progress], None] = lambda progress: None,
) -> Report:
    """Random graphs of the seeds `seed`, `seed + 1`, ..., for so many seconds or so many graphs.

    NumPy is the reference, whether it is named or not. A batch that was begun is finished, and
    failures are shrunk, beyond the time; a run ends once there are `enough`. They are saved in
    `folder`; `plugins` are named in the commands that replay them. Raises TfgraphError for
    backends that do not exist, MissingTool where one cannot run here.
    """
    names = tuple(dict.fromkeys(name for name in backends if name != REFERENCE))
    if not names:
        raise TfgraphError(
            "there is nothing to compare with the reference",
            hint="name another backend, such as --backends numpy,cpu",
        )
    judges = [Judge(name) for name in names]
    report = Report(seed, (REFERENCE, *names), taken(names))
    start = time.monotonic()
    batch = FIRST
    while len(report.failures) < enough:
        if graphs is not None:
            batch = min(batch, graphs - report.graphs)
        if batch < 1:
            break
        first = seed + report.graphs
        cases = [random_case(first + i, report.dtypes) for i in range(batch)]
        for judge in judges:
            found = _failures(cases, judge, enough - len(report.failures))
            report.failures += [save(failure, judge, folder, plugins) for failure in found]
        _count(report, cases, judges)
        report.seconds = time.monotonic() - start
        say(report.progress)
        batch = _next(batch, report, seconds)
    return report


def _next(batch: int, report: Report, seconds: float | None) -> int:
    """How many graphs to take next: what the time left is enough for, 0 once it is over."""
    if seconds is None:
        return BATCH
    fits = int((seconds - report.seconds) * report.progress.rate)
    # Other families may be slower: a batch is at most twice as large as the one before.
    return min(BATCH, 2 * batch, fits) if fits >= _FEWEST else 0


def _failures(cases: Sequence[Case], judge: Judge, at_most: int) -> list[Failure]:
    """Those of a batch on one backend, on one thread and on all in turn: which tasks a thread takes
    must not matter."""
    judge.threads = None if judge.threads else 1
    if at_most < 1:
        return []
    sizes = points(cases[0].seed)
    return failures(cases, judge, sizes, at_most=at_most, seconds=_SHRINK_SECONDS)


def _count(report: Report, cases: Sequence[Case], judges: Sequence[Judge]) -> None:
    report.graphs += len(cases)
    report.by_op.update(node.op for case in cases for node in case.graph.nodes)
    report.outputs = sum(judge.outputs for judge in judges)
    report.sensitive = sum(judge.sensitive for judge in judges)
    report.notes = [note for judge in judges for note in judge.notes]


def taken(backends: Sequence[str]) -> tuple[DType, ...]:
    """The float types for which every backend compiles a linear and a norm; float32 always."""
    found = [DType.float32]
    for dtype in _FLOATS[1:]:
        with ops.graph("probe") as g:
            x = g.input("x", dtype, "n", 8)
            w = g.param("w", dtype, 8, 8, fill=Fill("ones"))
            g.output("y", cast("Traced", ops.rms_norm(ops.linear(x, w), eps=1e-5)))
        graph = g.build()
        try:
            for name in backends:
                backend = find_backend(name)
                backend.compile(graph, Seeded(graph.params), Target(name)).close()
        except MissingTool:
            raise
        except TfgraphError:
            continue
        found.append(dtype)
    return tuple(found)
