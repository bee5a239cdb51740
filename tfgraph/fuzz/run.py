"""A run of the fuzzer: batches of random graphs on every backend, until the time is up or enough
has failed. May import: api, backends, ops, ir, errors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tfgraph import ops
from tfgraph.backends.base import Target, find_backend
from tfgraph.errors import MissingTool, TfgraphError
from tfgraph.fuzz.crew import Crew, nothing
from tfgraph.fuzz.swarm import FAMILY
from tfgraph.fuzz.work import Done, Work
from tfgraph.ir import DType, Fill
from tfgraph.weights import Seeded

if TYPE_CHECKING:
    from tfgraph.ops import Traced

REFERENCE = "numpy"
FOLDER = Path("fuzz-failures")
_FEWEST = 5  # graphs that are worth a batch
_FLOATS = (DType.float32, DType.float16, DType.bfloat16, DType.float64)


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


@dataclass(kw_only=True)
class Report(Done):
    """What a run did, of all its batches. `dtypes` are the floats that all backends take."""

    seed: int
    backends: tuple[str, ...]
    dtypes: tuple[DType, ...]
    seconds: float = 0.0

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
            "kernels": self.kernels,
            "unbounded": self.unbounded,
            "refused": {name: dict(found.most_common()) for name, found in self.refused.items()},
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
    kernels: bool = False,
    jobs: int = 1,
    prepare: Callable[[], None] = nothing,
    say: Callable[[Progress], None] = lambda progress: None,
) -> Report:
    """Random graphs of the seeds `seed`, `seed + 1`, ..., for so many seconds or so many graphs.

    NumPy is the reference, whether it is named or not; witnesses may be named too. With `kernels`
    each kernel of a backend is compared alone as well. A batch that was begun is finished, and
    failures are shrunk, beyond the time; a run ends once there are `enough`. They are saved in
    `folder`; `plugins` are named in the commands that replay them. Batches run on so many `jobs`:
    processes, each of which calls `prepare`, a function of a module, to know what this one does.
    Raises TfgraphError for backends that do not exist, MissingTool where one cannot run here,
    CheckFailed where a process ends.
    """
    names = tuple(dict.fromkeys(name for name in backends if name != REFERENCE))
    if not names:
        raise TfgraphError(
            "there is nothing to compare with the reference",
            hint="name another backend, such as --backends numpy,cpu",
        )
    start = time.monotonic()
    if graphs is not None:
        jobs = min(jobs, (seed + graphs - 1) // FAMILY - seed // FAMILY + 1)
    with Crew(jobs, names, prepare) as crew:
        report = Report(seed=seed, backends=(REFERENCE, *names), dtypes=taken(names))
        work = Work(names, report.dtypes, folder, plugins, enough, kernels)

        def room() -> int:
            """How many graphs one process has time for, as long as those before them took."""
            if len(report.failures) >= enough:
                return 0
            if seconds is None or not report.graphs:
                return FAMILY
            each = report.seconds * jobs / report.graphs
            return int((seconds - (time.monotonic() - start)) / each)

        for done in crew.results(work, _spans(seed, graphs, room)):
            report.seconds = time.monotonic() - start
            report.add(done)
            say(report.progress)
    report.failures.sort(key=lambda failure: failure.seed)
    return report


def _spans(seed: int, graphs: int | None, room: Callable[[], int]) -> Iterator[tuple[int, int]]:
    """The seeds of a family at a time: its graphs share kernels, whose compilation takes time, and
    are compiled as one. At the end there may be room for a part of one."""
    first, last = seed, None if graphs is None else seed + graphs
    while first != last:
        end = (first // FAMILY + 1) * FAMILY
        left = (end if last is None else min(end, last)) - first
        count = min(left, room())
        if count < min(left, _FEWEST):
            return
        yield first, count
        first += count


def taken(backends: Sequence[str]) -> tuple[DType, ...]:
    """The float types for which every backend compiles a linear and a norm; float32 always."""
    found: list[DType] = []
    for dtype in _FLOATS:
        with ops.graph("probe") as g:
            x = g.input("x", dtype, "n", 8)
            w = g.param("w", dtype, 8, 8, fill=Fill("ones"))
            g.output("y", cast("Traced", ops.rms_norm(ops.linear(x, w), eps=1e-5)))
        graph = g.build()
        try:
            for name in backends:
                backend = find_backend(name, witnesses=True)
                backend.compile(graph, Seeded(graph.params), Target(name)).close()
        except MissingTool:  # of a kernel for another dtype, or of the whole library
            if dtype == DType.float32:
                raise
            continue
        except TfgraphError:
            if dtype != DType.float32:
                continue
        found.append(dtype)
    return tuple(found)
