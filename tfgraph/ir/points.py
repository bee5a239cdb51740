"""Sizes of symbols that meet a graph's constraints. May import: graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tfgraph.ir.graph import Constraint, Symbol

_ROUNDS = 20
_TRIES = 5000


def settle(
    sizes: Mapping[str, int], symbols: Iterable[Symbol], constraints: Sequence[Constraint]
) -> dict[str, int] | None:
    """Sizes near the given ones, in range, that meet the constraints; None where none are found.

    Mends one violated constraint after another by moving one of its symbols as little as it takes.
    """
    settled = dict(sizes)
    ranges = {s.name: s for s in symbols}
    for _ in range(_ROUNDS):
        broken = next((c for c in constraints if not holds(c, settled)), None)
        if broken is None:
            return settled
        moved = _mend(broken, settled, ranges)
        if moved is None:
            return None
        settled.update([moved])
    return None


def holds(constraint: Constraint, sizes: Mapping[str, int]) -> bool:
    """Whether a constraint holds for these sizes."""
    left, right = constraint.left.evaluate(sizes), constraint.right.evaluate(sizes)
    return left <= right if constraint.relation == "<=" else left == right


def _mend(
    broken: Constraint, sizes: Mapping[str, int], ranges: Mapping[str, Symbol]
) -> tuple[str, int] | None:
    """The symbol and size nearest to the present one that make the constraint hold."""
    found: list[tuple[int, str, int]] = []
    for name in sorted(broken.left.symbols | broken.right.symbols):
        now = sizes[name]
        low, high = ranges[name].low, ranges[name].high
        for distance in range(1, _TRIES):
            tries = [n for n in (now - distance, now + distance) if low <= n <= high]
            fits = [n for n in tries if holds(broken, {**sizes, name: n})]
            if fits:
                found.append((distance, name, fits[0]))
                break
            if not tries:
                break
    return min(found)[1:] if found else None
