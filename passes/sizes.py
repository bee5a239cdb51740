"""Sizes at which two graphs are compared: small ones, three or more of each symbol.

May import: ops, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgraph.ir.points import settle
from tfgraph.ops.limits import implied_constraints

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgraph.ir import Graph, Symbol

SIZES = (5, 3, 7, 2, 4, 6)
"""Of symbols, in turn: each symbol gets another one in each attempt."""

THREE = 3
"""Sizes of each symbol at least, where its range and the constraints leave as many."""

_NEAR = 36
"""Of so many sizes in a row one is a prime, up to 30,000."""


class Sizes:
    """Sizes of all symbols of two graphs of the same inputs, other ones in each attempt."""

    def __init__(self, before: Graph, after: Graph) -> None:
        graphs = (before, after)
        values = [v for g in graphs for v in g.values()]
        names = {s for v in values for d in v.type.shape for s in d.symbols}
        names |= {s.name for g in graphs for s in g.symbols}
        self._lengths = {s for v in values for d in v.type.shape[1:] for s in d.symbols}
        self._symbols = [before.symbol(name) for name in sorted(names)]
        self._constraints = [c for g in graphs for c in (*g.constraints, *implied_constraints(g))]
        self._choices = {s.name: _choices(s) for s in self._symbols}
        self._seen: dict[str, set[int]] = {s.name: set() for s in self._symbols}

    def at(self, attempt: int, length: int | None = None) -> dict[str, int] | None:
        """Within ranges and constraints, None where none are found; with `length` that of all
        symbols that are more than the size of a batch."""
        wanted = {
            name: choices[(i + attempt) % len(choices)] + self._further(name, attempt)
            for i, (name, choices) in enumerate(self._choices.items())
        }
        if length is not None:
            wanted = {name: length if name in self._lengths else 2 for name in wanted}
        within = {s.name: min(max(wanted[s.name], s.low), s.high) for s in self._symbols}
        return settle(within, self._symbols, self._constraints)

    def count(self, sizes: Mapping[str, int]) -> None:
        """These have been drawn."""
        for name, size in sizes.items():
            self._seen[name].add(size)

    @property
    def enough(self) -> bool:
        """Whether each symbol has had three sizes, or all that are in its range."""
        return not any(map(self._lacks, self._choices))

    def _lacks(self, name: str) -> bool:
        return len(self._seen[name]) < min(THREE, len(self._choices[name]))

    def _further(self, name: str, attempt: int) -> int:
        """A constraint may ask for a multiple: small sizes are all taken to the same one then."""
        return 8 * max(0, attempt + 1 - len(SIZES)) if self._lacks(name) else 0


def _choices(symbol: Symbol) -> list[int]:
    """The usual sizes that are in range; of too few, those at its low end, primes first."""
    usual = [n for n in SIZES if symbol.low <= n <= symbol.high]
    if len(usual) >= THREE:
        return usual
    near = range(symbol.low, min(symbol.high, symbol.low + _NEAR) + 1)
    others = sorted((n for n in near if n not in usual), key=lambda n: not _is_prime(n))
    return [*usual, *others[:THREE]]


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))
