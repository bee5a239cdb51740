"""Verify an executable against the reference, at sizes chosen to find mistakes.

Each symbol is tried at its minimum, at an odd size above one kernel tile, at its example, and near
its maximum, with the others at their minimum; as near as the budget of floating point operations
allows, since the reference is slow. Masks that are generated are partial. May import: backends,
bounds, cost, ir, errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfgraph.api.bounds import Difference, difference
from tfgraph.backends.base import Executable, Weights, constraints_of
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.cost import cost
from tfgraph.ir import Dim, Graph, as_dim
from tfgraph.runtime.examples import example

FLOP_BUDGET = 15e9
"""Operations of the reference at one point, about a quarter of a second; the point of the examples
may take EXAMPLE_SHARE times as many."""

EXAMPLE_SHARE = 3

ODD = 67
"""Above every kernel's tile (64 rows), a prime, so that every tail is met."""


@dataclass(frozen=True)
class Verification:
    """The outcome: `ok` is None where nothing could run, and `reason` says why."""

    against: str
    ok: bool | None
    reason: str | None
    dims: tuple[dict[str, int], ...] = ()
    outputs: tuple[Difference, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The object in `compile --json`."""
        return {
            "against": self.against,
            "ok": self.ok,
            "reason": self.reason,
            "dims": [dict(d) for d in self.dims],
            "outputs": [
                {k: v for k, v in d.to_json().items() if k in ("name", "max_abs", "bound", "ok")}
                for d in self.outputs
            ],
        }

    @property
    def failure(self) -> str:
        """What failed, in words: the worst output."""
        worst = max((d for d in self.outputs if not d.ok), key=lambda d: d.max_abs)
        return (
            f"verification failed: output '{worst.name}' differs from {self.against} by "
            f"{worst.max_abs:.2e} at {list(worst.worst_index)}, bound {worst.bound:.2e}"
        )


def verify(
    executable: Executable, graph: Graph, weights: Weights, budget: float = FLOP_BUDGET
) -> Verification:
    """Run both at each point; for each output the difference that comes nearest to its bound."""
    reference = NumpyExecutable(graph, weights)
    points = plan(graph, budget)
    worst: dict[str, Difference] = {}
    for seed, sizes in enumerate(points):
        inputs = {
            port.name: example(port, sizes, seed, whole_first=False) for port in executable.inputs
        }
        expected = reference(dims=_extra(executable, sizes), **inputs)
        got = executable(dims=_extra(executable, sizes), **inputs)
        for name, array in expected.items():
            found = difference(name, array, got[name])
            if name not in worst or _severity(found) > _severity(worst[name]):
                worst[name] = found
    ok = all(d.ok for d in worst.values())
    return Verification("numpy", ok, None, tuple(points), tuple(worst.values()))


def plan(graph: Graph, budget: float = FLOP_BUDGET) -> list[dict[str, int]]:
    """The sizes to try, each once, in order."""
    names = sorted({s for v in graph.values() for d in v.type.shape for s in d.symbols})
    symbols = {name: graph.symbol(name) for name in names}
    low = {name: s.low for name, s in symbols.items()}
    flops = as_dim(cost(graph).total.flops)
    examples = {name: s.default for name, s in symbols.items()}
    points = [low, _fit(flops, examples, low, budget * EXAMPLE_SHARE)]
    for name, symbol in symbols.items():
        odd = min(max(ODD, symbol.low), symbol.high)
        points += [_fit(flops, {**low, name: n}, low, budget) for n in (odd, symbol.high)]
    unique = [p for i, p in enumerate(points) if p not in points[:i]]
    return [p for p in unique if _allowed(graph, p)]


def _fit(
    flops: Dim, sizes: Mapping[str, int], low: Mapping[str, int], budget: float
) -> dict[str, int]:
    """The sizes, moved towards the minimum until the reference fits the budget."""
    share = 1.0
    while True:
        tried = {n: max(low[n], int(low[n] + (size - low[n]) * share)) for n, size in sizes.items()}
        if tried == low or flops.evaluate(tried) <= budget:
            return tried
        share *= 0.8


def _allowed(graph: Graph, sizes: Mapping[str, int]) -> bool:
    for c in constraints_of(graph):
        left, right = c.left.evaluate(sizes), c.right.evaluate(sizes)
        if (left > right) if c.relation == "<=" else (left != right):
            return False
    return True


def _extra(executable: Executable, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes that no input's shape tells."""
    told = {d for port in executable.inputs for d in port.shape}
    return {name: size for name, size in sizes.items() if name not in told}


def _severity(d: Difference) -> float:
    return np.inf if not np.isfinite(d.max_abs) else d.max_abs / d.bound if d.bound else d.max_abs
