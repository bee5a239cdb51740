"""Which tests are tried first: the one that killed a mutant last time, and those that kill most.

Only their order changes, never what runs: a mutant survives where all tests pass.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from mutants.edit import Mutant

_MOST = 8
"""How many of those that kill most are tried: few, since most take longer than one."""


@dataclass
class Memory:
    """What killed which mutant, in a file that may be lost."""

    path: Path
    killers: dict[str, str] = field(default_factory=dict[str, str])
    """The test that killed a mutant, by the mutant's id."""
    kills: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """How many each test killed, by the file of the mutants."""

    @classmethod
    def load(cls, path: Path) -> Memory:
        """What is known from other runs: nothing where there was none."""
        memory = cls(path)
        if path.exists():
            for mutant, test in json.loads(path.read_text()).items():
                memory.note(mutant, test)
        return memory

    def first(self, mutant: Mutant) -> list[str]:
        """The tests to try before all others."""
        known = [self.killers[mutant.id]] if mutant.id in self.killers else []
        often = [test for test, _ in self.kills[mutant.file].most_common(_MOST)]
        return list(dict.fromkeys([*known, *often]))

    def note(self, mutant: str, test: str) -> None:
        """A mutant was killed by a test, `FILE::NAME`."""
        if "::" in test:
            self.killers[mutant] = test
            self.kills[mutant.partition(" ")[0]][test] += 1

    def save(self) -> None:
        """Write it for the next run."""
        self.path.write_text(json.dumps(self.killers, indent=0, sort_keys=True))
