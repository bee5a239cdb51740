"""What rounding alone may do to a graph's output: honest arithmetic in its dtypes.

The exact result is computed, in float64 throughout with nothing rounded, and how far it moves when
every op reads operands that are a rounding error away. A kernel is backward stable if its result is
the exact one of such operands (Higham, Accuracy and Stability of Numerical Algorithms, 2002,
section 1.5): a right backend's error is of that size, and a wrong one's is not. May import:
float64, backends.rounding, ops, ir.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.api.float64 import Disturbed, is_float, outputs_in_float64
from tfgraph.backends.rounding import UNITS
from tfgraph.ops import FloatArray

if TYPE_CHECKING:
    from tfgraph.ir import Graph
    from tfgraph.ops import OpDef

NDArray = np.ndarray[Any, Any]
Arrays = Mapping[str, NDArray]

_RUNS = 3
_FLOAT64 = 2.0**-50  # how far float64 itself may be off: eight roundings
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
            least = _tiny(want.dtype) + _FLOAT64 * float(
                np.max(np.abs(self.exact)[where], initial=0)
            )
            return Honest(largest(b), largest(a), least + _SLACK * moves)

    @cached_property
    def exact(self) -> NDArray:
        """The result."""
        return self._in(FloatArray(np.zeros(())))

    @cached_property
    def moved(self) -> list[NDArray]:
        """What it becomes when every op reads operands that are a rounding error away."""
        types = [v.type.dtype for v in self.graph.values()]
        unit = max(UNITS[dtype.value] for dtype in types if dtype.is_float)
        domains = [Moved(np.zeros(()), np.random.default_rng(i), unit) for i in range(_RUNS)]
        return [self._in(domain).astype(np.float64) for domain in domains]

    def _in(self, domain: FloatArray) -> NDArray:
        given = self.weights, self._inputs, self.sizes
        (found,) = outputs_in_float64(self.graph, *given, domain).values()
        return found

    @property
    def _inputs(self) -> dict[str, NDArray]:
        return {i.value.name: self.arrays[i.value.name] for i in self.graph.inputs}


def _tiny(dtype: np.dtype[Any]) -> float:
    """The least normal number, of bfloat16 too."""
    import ml_dtypes

    library: Any = ml_dtypes
    return float(library.finfo(dtype).tiny)


@dataclass(frozen=True, eq=False)
class Moved(Disturbed):
    """An array whose ops read operands that are a rounding error away, and round nothing."""

    rng: np.random.Generator
    unit: float

    def operand(self, definition: OpDef, data: NDArray) -> NDArray:
        """Each element one rounding up or down."""
        if data.dtype.kind != "f" or definition.name in _KEPT:
            return data
        moved: NDArray = data * (1 + self.unit * self.rng.choice([-1, 1], data.shape))
        return moved
