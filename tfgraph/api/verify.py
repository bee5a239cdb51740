"""Verify an executable against the reference, at sizes chosen to find mistakes.

Tried are: every symbol at its minimum; at its example; every length at an odd size above one kernel
tile in a batch of 3; a batch of an odd size above one tile; and each symbol near its maximum with
the others at their minimum, as near as the budgets of floating point operations and of memory
allow, since the reference is slow and wide. Masks that are generated are partial. May import:
backends, bounds, empty_rows, moves, cost, ir, errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np

from tfgraph.api.allowed import Allowed
from tfgraph.api.bounds import Difference, difference
from tfgraph.api.empty_rows import settle_empty_rows
from tfgraph.api.moves import after_rounding, measured, moves_of, to_measure
from tfgraph.api.weights import given_weights
from tfgraph.backends.base import Executable, Target, Weights, constraints_of
from tfgraph.backends.memory import peak, reference_steps
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.cost import cost
from tfgraph.ir import Dim, Graph, Symbol, as_dim, product
from tfgraph.ir.points import settle
from tfgraph.runtime.examples import example

FLOP_BUDGET = 15e9
"""Operations of the reference at one point, about a quarter of a second; those of the
examples and of the odd lengths may take LARGE_SHARE times as many."""

LARGE_SHARE = 3

FUNCTION_SHARE = 1 / 4
"""The part of these budgets that each function beside `main` takes: its layers are the same."""

BOUND_SHARE = 1 / 15
"""The part of FLOP_BUDGET at which errors are carried along, which costs some twenty times what the
result costs."""

BYTE_BUDGET = 512 << 20
"""Bytes that the reference may take at any point beyond what it takes at the minimum; the same on
every machine, so that the points are."""

ODD = 67
"""Above every kernel's tile (64 rows), a prime, so that every tail is met."""


_OF_OUTPUTS = ("name", "max_abs", "bound", "ok")


@dataclass(frozen=True)
class Verification:
    """The outcome: `ok` is None where nothing could run, and `reason` says why; `instead` is then
    what was checked in its place.

    `worst_at` is, for each output, the index in `dims` of the sizes where it differs most.
    """

    against: str
    ok: bool | None
    reason: str | None
    dims: tuple[dict[str, int], ...] = ()
    outputs: tuple[Difference, ...] = ()
    worst_at: tuple[int, ...] = ()
    instead: str | None = None
    empty_rows: int = 0
    """Rows of outputs that were compared with the graph after the passes, since they depend on rows
    with no allowed key: see `tfgraph.api.empty_rows`."""
    remembered: bool = False
    """Whether an earlier compilation of the same bytes was verified, and this one not again."""

    def to_json(self) -> dict[str, Any]:
        """The object in `compile --json`."""
        return {
            "against": self.against,
            "ok": self.ok,
            "reason": self.reason,
            "instead": self.instead,
            "dims": [dict(d) for d in self.dims],
            "empty_rows": self.empty_rows,
            "remembered": self.remembered,
            "outputs": [
                {
                    **{k: v for k, v in d.to_json().items() if k in _OF_OUTPUTS},
                    "dims": dict(self.dims[at]),
                }
                for d, at in zip(self.outputs, self.worst_at, strict=True)
            ],
        }

    def record(self) -> dict[str, Any]:
        """What the artifact keeps. Not the errors, unless it failed: their last digits depend on
        the machine's NumPy, and the same inputs shall give the same bytes."""
        reason = self.failure if self.ok is False else self.reason
        dims = [dict(d) for d in self.dims]
        return {"against": self.against, "ok": self.ok, "reason": reason, "dims": dims}

    @property
    def worst(self) -> tuple[Difference, int]:
        """The output that failed worst, and the index in `dims` of where it did, which is also the
        seed of the inputs."""
        failed = [(d, at) for d, at in zip(self.outputs, self.worst_at, strict=True) if not d.ok]
        return max(failed, key=lambda item: item[0].max_abs)

    @property
    def failure(self) -> str:
        """What failed, in words: the worst output, and the sizes."""
        worst, at = self.worst
        sizes = ", ".join(f"{name}={size}" for name, size in self.dims[at].items())
        return (
            f"output '{worst.name}' differs from {self.against} by {worst.max_abs:.2e} at "
            f"{list(worst.worst_index)}{f' of {sizes}' * bool(sizes)}, bound {worst.bound:.2e}"
        )


def verify(
    executable: Executable,
    graph: Graph,
    weights: Weights,
    target: Target | None = None,
    budget: float = FLOP_BUDGET,
    zeroed: Graph | None = None,
    allowed: Allowed | None = None,
) -> Verification:
    """Run both at each point; for each output the difference that comes nearest to its bound.

    Where no sizes meet the graph's constraints, or the reference gives NaN, nothing is shown. Where
    roundings may turn a comparison, what that does is measured. `weights` are all of the graph's,
    checked as those of `compile` are. The kernels are those of `target`; of None they may add in
    any order. `zeroed` is the graph after passes that made rows with no allowed key zeros;
    `allowed` what `allowed_of` gives for all of this, where that is known.
    """
    given = given_weights(graph, weights)
    reference = NumpyExecutable(graph, given)
    need = Need.of(graph)
    points = plan(graph, budget, need=need)
    allowed = allowed or allowed_of(graph, given, target, budget, need)
    values, after = {o.name: o.value for o in graph.outputs}, after_rounding(graph)
    worst: dict[str, tuple[Difference, int]] = {}
    empty_rows = 0
    reason = None if points else "no sizes were found that meet the constraints"
    for seed, (sizes, inputs, expected) in enumerate(_references(reference, points, need.memory)):
        got = executable(dims=_extra(executable, sizes), **inputs)
        found = _differences(expected, got, allowed)
        if zeroed is not None and not all(d.ok for d in found.values()):
            expected, rows = settle_empty_rows(expected, zeroed, given, inputs, sizes)
            found = _differences(expected, got, allowed)
            empty_rows += rows
        apart = {values[n].name for n, d in found.items() if to_measure(d, values[n], after)}
        moves = moves_of(graph, reference.weights, inputs, sizes, apart) if apart else {}
        found = {n: measured(d, values[n], after, moves) for n, d in found.items()}
        for name, array in expected.items():
            if name not in worst or found[name].severity > worst[name][0].severity:
                worst[name] = found[name], seed
            if array.dtype.kind == "f" and np.isnan(array).any():
                shown = ", ".join(f"{n}={size}" for n, size in sizes.items())
                reason = f"the reference gives NaN in output '{name}'" + (
                    f" at {shown}" * bool(shown)
                )
    outputs, worst_at = tuple(d for d, _ in worst.values()), tuple(at for _, at in worst.values())
    ok = all(d.ok for d in outputs)
    verdict = None if ok and reason else ok
    return Verification(
        "numpy", verdict, reason, tuple(points), outputs, worst_at, empty_rows=empty_rows
    )


def allowed_of(
    graph: Graph,
    weights: Weights,
    target: Target | None,
    budget: float = FLOP_BUDGET,
    need: Need | None = None,
) -> Allowed:
    """How far from the reference `verify` lets the kernels of `target` be, whatever they give."""
    small = plan(graph, budget * BOUND_SHARE, 1, need)[:3]
    return Allowed(graph, given_weights(graph, weights), target, small)


def _references(
    reference: NumpyExecutable, points: Sequence[dict[str, int]], memory: Dim
) -> Iterator[tuple[dict[str, int], dict[str, Any], dict[str, Any]]]:
    """Each point with inputs, whose seed is its number, and what the reference makes of them: as
    many together as BYTE_BUDGET allows."""
    least = memory.evaluate(points[0]) if points else 0
    numbered = list(enumerate(points))
    while numbered:
        needs = accumulate(memory.evaluate(sizes) - least for _, sizes in numbered)
        count = max(1, sum(need <= BYTE_BUDGET for need in needs))
        now, numbered = numbered[:count], numbered[count:]
        given = [{p.name: example(p, sizes, seed) for p in reference.inputs} for seed, sizes in now]
        extra = [_extra(reference, sizes) for _, sizes in now]
        found = reference.together(list(zip(given, extra, strict=True)))
        yield from zip((sizes for _, sizes in now), given, found, strict=True)


def _differences(
    expected: Mapping[str, Any], got: Mapping[str, Any], allowed: Allowed
) -> dict[str, Difference]:
    return {
        name: difference(name, array, got[name], allowed.bound(name, array))
        for name, array in expected.items()
    }


def budget_of(function: str) -> float:
    """The operations that `verify` spends on a function of a model."""
    return FLOP_BUDGET * (1 if function == "main" else FUNCTION_SHARE)


def together(functions: Mapping[str, Verification]) -> Verification:
    """One outcome of all functions of a model; outputs of those but `main` are `NAME: OUTPUT`."""
    main = functions["main"]
    for name, found in functions.items():
        if name != "main":
            main = replace(
                main,
                ok=_both(main.ok, found.ok),
                reason=main.reason or (found.reason and f"{name}: {found.reason}"),
                dims=main.dims + found.dims,
                outputs=main.outputs
                + tuple(replace(d, name=f"{name}: {d.name}") for d in found.outputs),
                worst_at=main.worst_at + tuple(at + len(main.dims) for at in found.worst_at),
            )
    return main


def _both(a: bool | None, b: bool | None) -> bool | None:
    return None if None in (a, b) and False not in (a, b) else bool(a and b)


@dataclass(frozen=True)
class Need:
    """What the reference needs: operations, and bytes with the inputs."""

    flops: Dim
    memory: Dim

    @staticmethod
    def of(graph: Graph) -> Need:
        """Counted once for all sizes."""
        inputs = (8 * product(i.value.type.shape) for i in graph.inputs)
        memory = sum(inputs, start=peak(reference_steps(graph)))
        return Need(as_dim(cost(graph).total.flops), memory)


def plan(
    graph: Graph,
    budget: float = FLOP_BUDGET,
    large: int = LARGE_SHARE,
    need: Need | None = None,
) -> list[dict[str, int]]:
    """The sizes to try, each once, in order, all of them within ranges and constraints."""
    names = sorted({s for v in graph.values() for d in v.type.shape for s in d.symbols})
    symbols = [graph.symbol(name) for name in names]
    batch = _batch_sizes(graph)
    low = {s.name: s.low for s in symbols}
    lengths = [s for s in symbols if s.name not in batch]
    odd = {s.name: _odd(s, 3) for s in symbols}
    odd |= {s.name: _odd(s, ODD + 4 * i) for i, s in enumerate(lengths)}
    wide = {s.name: _odd(s, ODD) if s.name in batch else s.low for s in symbols}
    need = need or Need.of(graph)
    most = need.memory.evaluate(low) + BYTE_BUDGET

    def fit(sizes: Mapping[str, int], share: int = 1) -> dict[str, int]:
        return _fit([(need.flops, budget * share), (need.memory, most)], sizes, low)

    points = [
        low,
        fit({s.name: s.default for s in symbols}, large),
        fit(odd, large),
        fit(wide),
        *(fit({**low, s.name: s.high}) for s in symbols),
    ]
    constraints = constraints_of(graph)
    settled = [settle(point, symbols, constraints) for point in points]
    found = [point for point in settled if point is not None]
    return [p for i, p in enumerate(found) if p not in found[:i]]


def _batch_sizes(graph: Graph) -> set[str]:
    """The symbols that are the first size of inputs, and no further one of any."""
    shapes = [i.value.type.shape for i in graph.inputs]
    first = {str(shape[0]) for shape in shapes if shape}
    return first - {s for shape in shapes for size in shape[1:] for s in size.symbols}


def _odd(symbol: Symbol, size: int) -> int:
    """The largest odd size in range up to `size`, or the minimum."""
    nearest = min(max(size, symbol.low), symbol.high)
    return max(nearest - 1 + nearest % 2, symbol.low)


def _fit(
    budgets: Sequence[tuple[Dim, float]], sizes: Mapping[str, int], low: Mapping[str, int]
) -> dict[str, int]:
    """The sizes, moved towards the minimum until the reference fits the budgets."""
    share = 1.0
    while True:
        tried = {n: max(low[n], int(low[n] + (size - low[n]) * share)) for n, size in sizes.items()}
        if tried == low or all(need.evaluate(tried) <= most for need, most in budgets):
            return tried
        share *= 0.8


def _extra(executable: Executable, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes that no input's shape tells."""
    told = {d for port in executable.inputs for d in port.shape}
    return {name: size for name, size in sizes.items() if name not in told}
