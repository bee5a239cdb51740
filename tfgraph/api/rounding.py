"""What rounding alone may do to a graph's output: honest arithmetic in its dtypes.

The exact result is computed, in float64 throughout with nothing rounded, and how far it moves when
every op reads operands that are a rounding error away. A kernel is backward stable if its result is
the exact one of such operands (Higham, Accuracy and Stability of Numerical Algorithms, 2002,
section 1.5): a right backend's error is of that size, and a wrong one's is not. May import:
part, backends, ops, ir.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tfgraph.api.part import untold
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.backends.rounding import UNITS
from tfgraph.ops import FloatArray, evaluate, in_float64

if TYPE_CHECKING:
    from tfgraph.ir import Graph
    from tfgraph.ops import OpDef

NDArray = np.ndarray[Any, Any]
Arrays = Mapping[str, NDArray]

_RUNS = 3
_SLACK = 8  # the moves are random, the worst case is not

# Ops that compute nothing, or jump: their operands are not moved.
_KEPT = {
    *("reshape", "transpose", "broadcast_to", "concat", "slice", "take", "take_at", "embedding"),
    *("where", "cast", "floor", "less", "equal", "topk", "empty", "maximum", "minimum", "max"),
}


@dataclass(frozen=True)
class Honest:
    """Errors against float64, the largest of any element: `error` that of the result in question,
    `reference` that of the reference, which rounds once an op; `allowed` is what rounding of
    operands, and underflow of results, may do."""

    error: float
    reference: float
    allowed: float

    @property
    def ok(self) -> bool:
        """Whether the error is no worse than honest arithmetic makes it."""
        return self.error <= self.allowed + self.reference


def is_float(array: NDArray) -> bool:
    """Whether the elements are floats, of bfloat16 too."""
    return str(array.dtype) in UNITS


def against_float64(
    graph: Graph,
    weights: Arrays,
    sizes: Mapping[str, int],
    arrays: Arrays,
    want: NDArray,
    got: NDArray,
) -> Honest | None:
    """Judge a result `got` of the graph's one output, for which the reference gives `want`. None
    where it is not of floats, or where the two are not finite in the same places: such a difference
    is no rounding error."""
    return Float64(graph, weights, sizes, arrays).judge(want, got)


@dataclass(frozen=True)
class Float64:
    """The graph's one output in float64, with nothing rounded, by which results are judged."""

    graph: Graph
    weights: Arrays
    sizes: Mapping[str, int]
    arrays: Arrays

    def judge(self, want: NDArray, got: NDArray) -> Honest | None:
        """See `against_float64`."""
        if want.shape != got.shape or want.dtype != got.dtype or not is_float(want):
            return None
        a, b = want.astype(np.float64), got.astype(np.float64)
        finite = np.isfinite(a)
        if not np.array_equal(finite, np.isfinite(b)):
            return None
        # Where exact arithmetic is not finite, as after an overflow that a dtype has not, all is.
        where = finite & np.isfinite(self.exact)

        def largest(x: NDArray) -> float:
            return float(np.max(np.abs(x - self.exact)[where], initial=0))

        with np.errstate(all="ignore"):
            moves = max(largest(moved) for moved in self.moved)
            underflow = _tiny(want.dtype)
            return Honest(largest(b), largest(a), underflow + _SLACK * moves)

    @cached_property
    def exact(self) -> NDArray:
        """The result."""
        run = NumpyExecutable(self.graph, self.weights, exact=True)
        (found,) = run(dims=untold(self.graph, self.sizes), **self._inputs).values()
        return found

    @cached_property
    def moved(self) -> list[NDArray]:
        """What it becomes when every op reads operands that are a rounding error away."""
        given = self._inputs | {p.value.name: self.weights[p.value.name] for p in self.graph.params}
        with np.errstate(all="ignore"):
            return [_moved(self.graph, given, self.sizes, seed) for seed in range(_RUNS)]

    @property
    def _inputs(self) -> dict[str, NDArray]:
        return {i.value.name: self.arrays[i.value.name] for i in self.graph.inputs}


def _tiny(dtype: np.dtype[Any]) -> float:
    """The least normal number, of bfloat16 too."""
    import ml_dtypes

    library: Any = ml_dtypes
    return float(library.finfo(dtype).tiny)


@dataclass(frozen=True, eq=False)
class Moved(FloatArray):
    """An array whose ops read operands that are a rounding error away, and round nothing."""

    rng: np.random.Generator | None = None
    unit: float = 0.0

    def apply(self, definition: OpDef, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        """The body of a core op in float64; of a composite op, each op in its body so."""
        composite = definition.kind == "composite"
        kept = composite or definition.name in _KEPT

        def move(x: Any) -> Any:
            if not isinstance(x, FloatArray):
                return x.map(move) if hasattr(x, "map") else x
            data = x.data
            if data.dtype.kind == "f" and not kept:
                assert self.rng is not None
                data = data * (1 + self.unit * self.rng.choice([-1, 1], data.shape))
            return self._of(data) if composite else FloatArray(data)

        with np.errstate(all="ignore"):
            result = definition.body(*map(move, operands), **attrs)
        if isinstance(result, tuple):
            results = cast("tuple[FloatArray, ...]", result)
            return tuple(self._of(r.data) for r in results)
        return self._of(result.data)

    def _of(self, data: NDArray) -> Moved:
        return Moved(data, self.rng, self.unit)


def _moved(graph: Graph, given: Arrays, sizes: Mapping[str, int], seed: int) -> NDArray:
    """The graph's output in float64 with moved operands."""
    rng = np.random.default_rng(seed)
    unit = max(UNITS[v.type.dtype.value] for v in graph.values() if v.type.dtype.is_float)
    arrays = {
        name: Moved(a.astype(np.float64) if is_float(a) else a, rng, unit)
        for name, a in given.items()
    }
    value = graph.outputs[0].value
    found = {name: a.data for name, a in arrays.items() if name == value.name}
    like = Moved(np.zeros(()), rng, unit)
    for node, results in evaluate(in_float64(graph), arrays, sizes, like):
        found |= {v.name: r.data for v, r in zip(node.outputs, results, strict=True) if v == value}
    return np.asarray(found[value.name], np.float64)
