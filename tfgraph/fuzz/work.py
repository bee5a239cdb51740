"""A batch of a run: the graphs of some seeds, judged on every backend; what fails is saved.

May import: graphs, batch, judge, alone, witnesses, shrink, save, backends, ir.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tfgraph.backends.base import WITNESSES
from tfgraph.fuzz.alone import KernelJudge, kernel_failures
from tfgraph.fuzz.batch import points
from tfgraph.fuzz.graphs import random_case
from tfgraph.fuzz.judge import Judge
from tfgraph.fuzz.save import Saved, save
from tfgraph.fuzz.shrink import failures
from tfgraph.fuzz.swarm import FAMILY
from tfgraph.fuzz.witnesses import one_by_one

if TYPE_CHECKING:
    from tfgraph.fuzz.inputs import Case
    from tfgraph.ir import DType

_SHRINK_SECONDS = 15.0


@dataclass
class Done:
    """What became of graphs. `by_op` counts their nodes by op; `sensitive` of `outputs` exceeded
    the bound and were right, see `tfgraph.fuzz.judge`; `kernels` results were compared alone,
    `unbounded` of them with elements that may be anything, as roundings turn what they depend on.
    `refused` are the graphs that a witness did not take: how many by backend and reason."""

    graphs: int = 0
    by_op: Counter[str] = field(default_factory=Counter[str])
    outputs: int = 0
    sensitive: int = 0
    kernels: int = 0
    unbounded: int = 0
    failures: list[Saved] = field(default_factory=list[Saved])
    notes: list[str] = field(default_factory=list[str])
    refused: dict[str, Counter[str]] = field(default_factory=dict[str, "Counter[str]"])

    def add(self, more: Done) -> None:
        """Count a batch too."""
        self.graphs += more.graphs
        self.by_op += more.by_op
        self.outputs += more.outputs
        self.sensitive += more.sensitive
        self.kernels += more.kernels
        self.unbounded += more.unbounded
        self.failures += more.failures
        self.notes += more.notes
        for name, reasons in more.refused.items():
            self.refused[name] = self.refused.get(name, Counter()) + reasons


@dataclass(frozen=True)
class Work:
    """How batches are judged. A batch has `enough` failures at most; with `kernels` each kernel is
    compared alone too."""

    backends: tuple[str, ...]
    dtypes: tuple[DType, ...]
    folder: Path
    plugins: Sequence[Path] = ()
    enough: int = 3
    kernels: bool = False

    def do(self, first: int, count: int) -> Done:
        """Judge the graphs of the seeds from `first` on. Raises MissingTool, OSError."""
        cases = [random_case(first + i, self.dtypes) for i in range(count)]
        done = Done(count, Counter(node.op for case in cases for node in case.graph.nodes))
        for backend in self.backends:
            # On one thread and on all in turn: which tasks a thread takes must not matter.
            if len(done.failures) >= self.enough:
                break
            judge = Judge(backend, threads=None if first // FAMILY % 2 else 1)
            self._judge(cases, judge, done)
            done.outputs += judge.outputs
            done.sensitive += judge.sensitive
            done.notes += judge.notes
        return done

    def _judge(self, cases: Sequence[Case], judge: Judge, done: Done) -> None:
        sizes = points(cases[0].seed)

        def left() -> int:
            return self.enough - len(done.failures)

        if judge.backend in WITNESSES:
            found, refused = one_by_one(cases, judge, sizes, left(), _SHRINK_SECONDS)
            done.refused[judge.backend] = refused
        else:
            found = failures(cases, judge, sizes, at_most=left(), seconds=_SHRINK_SECONDS)
        done.failures += [save(f, judge, self.folder, self.plugins) for f in found]
        if self.kernels and judge.backend not in WITNESSES:
            alone = KernelJudge(judge.backend, judge.threads, strict=True)
            wrong, ran, unbounded = kernel_failures(cases, alone, sizes, left(), _SHRINK_SECONDS)
            done.failures += [save(f, alone, self.folder, self.plugins) for f in wrong]
            done.kernels += ran
            done.unbounded += unbounded
