"""Runs mutants in child processes, some at once, and says what became of each."""

from __future__ import annotations

import ast
import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutants.child import fork, run
from mutants.edit import Mutant
from mutants.memory import Memory


@dataclass(frozen=True)
class Fate:
    """What became of a mutant: `killed` by a test, `survived`, or `stillborn`: not even the module
    can be imported, which says nothing about tests."""

    mutant: Mutant | None
    fate: str
    by: str
    cpu: float


@dataclass(frozen=True)
class Module:
    """A module that is mutated, and the tests that look at it."""

    name: str
    path: Path
    tree: ast.Module
    stages: Sequence[Sequence[str]]

    def work(
        self, mutant: Mutant | None, first: Sequence[str], seconds: int
    ) -> Callable[[], dict[str, Any]]:
        """For a child: change the tree, which is its own copy, and run the tests."""

        def work() -> dict[str, Any]:
            if mutant is not None:
                mutant.apply()
            return run(self.name, self.path, self.tree, first, self.stages, seconds)

        return work


def run_all(
    jobs: Iterable[tuple[Module, Mutant | None]], workers: int, seconds: int, memory: Memory
) -> Iterator[Fate]:
    """What became of each, as they end. Raises RuntimeError where tests cannot be run."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        running: dict[int, tuple[Mutant | None, Path]] = {}
        todo = enumerate(jobs)
        try:
            while True:
                while len(running) < workers and (job := next(todo, None)) is not None:
                    number, (module, mutant) = job
                    result = Path(folder) / f"{number}.json"
                    first = memory.first(mutant) if mutant is not None else []
                    running[fork(module.work(mutant, first, seconds), result)] = mutant, result
                if not running:
                    return
                pid, _ = os.wait()
                fate = _fate(*running.pop(pid))
                if fate.mutant is not None:
                    memory.note(fate.mutant.id, fate.by)
                yield fate
        finally:
            for pid in running:  # stopped by the keyboard, or by an error
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _fate(mutant: Mutant | None, result: Path) -> Fate:
    """What a child wrote; one that wrote nothing was ended by its limits, or crashed."""
    found: dict[str, Any] = {"fate": "killed", "by": "no end, or a crash", "cpu": 0.0}
    if result.exists():
        found = json.loads(result.read_text())
    if found["fate"] == "error":
        log = result.with_suffix(".log").read_text()[-2000:]
        raise RuntimeError(f"{mutant and mutant.id}: {found['by']}\n{log}")
    result.unlink(missing_ok=True)
    result.with_suffix(".log").unlink(missing_ok=True)
    return Fate(mutant, found["fate"], found["by"], found["cpu"])
