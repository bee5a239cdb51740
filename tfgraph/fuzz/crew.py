"""Batches of a run on several processes: compilation takes one core, and a machine has more.

A batch follows from its seeds, so it does not matter which process has it. One whose process ends,
as by a kernel that reads what is not its own, is named. May import: work, backends, errors.
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, cast

from tfgraph.backends.base import find_backend
from tfgraph.errors import CheckFailed, TfgraphError
from tfgraph.fuzz.work import Done, Work

Span = tuple[int, int]
"""The first seed, and how many."""


def nothing() -> None:
    """What a process does first, unless it is told otherwise."""


@dataclass
class _Member:
    process: BaseProcess
    pipe: Connection[Any, Any]
    span: Span | None = None

    def give(self, work: Work, span: Span | None) -> None:
        """A batch; none is left where it is None."""
        self.span = span
        if span is not None:
            self.pipe.send((work, span))

    def done(self) -> Done:
        """What it found. Raises CheckFailed where the process has ended, or what it raised."""
        try:
            found = self.pipe.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            raise self._ended() from None
        if isinstance(found, Exception):
            raise found
        return cast("Done", found)

    def _ended(self) -> CheckFailed:
        code = self.process.exitcode or 0
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        first, count = self.span or (0, 0)
        return CheckFailed(
            f"the process that ran the seeds {first} to {first + count - 1} ended by {how}",
            hint=f"--jobs 1 --seed {first} --graphs {count} runs them again",
        )


class Crew:
    """Processes that work on batches; with one job, this process. `prepare`, a function of a
    module, runs first in each, and each imports the backends named."""

    def __init__(
        self, jobs: int, backends: Sequence[str], prepare: Callable[[], None] = nothing
    ) -> None:
        self._members: list[_Member] = []
        context = get_context("spawn")  # a fork would copy locks that other threads hold
        for _ in range(jobs if jobs > 1 else 0):
            ours, theirs = context.Pipe()
            arguments = (theirs, tuple(backends), prepare)
            process = context.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._members.append(_Member(process, ours))

    def results(self, work: Work, spans: Iterator[Span]) -> Iterator[Done]:
        """What `work` finds in each of the spans, in the order in which they end. Each is drawn
        when a process is free for it."""
        if not self._members:
            yield from (work.do(*span) for span in spans)
            return
        for member in self._members:
            member.give(work, next(spans, None))
        while busy := {m.pipe: m for m in self._members if m.span is not None}:
            for pipe in wait(list(busy)):
                member = busy[cast("Connection[Any, Any]", pipe)]
                yield member.done()
                member.give(work, next(spans, None))

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for member in self._members:
            member.process.terminate()
            member.process.join()
            member.pipe.close()


def _serve(
    pipe: Connection[Any, Any], backends: Sequence[str], prepare: Callable[[], None]
) -> None:
    """A process of a crew: takes batches until nobody sends any."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    prepare()
    for name in backends:
        find_backend(name, witnesses=True)
    while True:
        try:
            work, span = pipe.recv()
        except (EOFError, ConnectionError):
            return
        try:
            found: Done | Exception = work.do(*span)
        except TfgraphError as error:
            found = error
        except Exception as error:
            found = RuntimeError("".join(traceback.format_exception(error)))
        pipe.send(found)
