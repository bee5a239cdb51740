"""How far two results may differ, and how far they do. One table, no test passes its own.

May import: numpy, ir.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tfgraph.ir import Graph, Value

NDArray = np.ndarray[Any, Any]

RELATIVE = {"float64": 1e-12, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""The bound of a value, as a share of the root mean square of its elements, by dtype.

Of a softmax that is the root mean square of each row's largest element. Its elements err by what
they are themselves, an error of e in the scores moving p by at most 2 p e, and most of them are far
smaller than those of which the row consists.
"""


@dataclass(frozen=True)
class Difference:
    """How two arrays of one value differ. `worst_index` is where `max_abs` is reached."""

    name: str
    max_abs: float
    max_rel: float
    bound: float
    ok: bool
    worst_index: tuple[int, ...]

    @property
    def severity(self) -> float:
        """How many times its bound, to order differences; the difference itself where that is 0."""
        return self.max_abs / self.bound if self.bound else self.max_abs

    def to_json(self) -> dict[str, Any]:
        """The object in `--json`; what is not a number is null."""
        finite = {k: v if np.isfinite(v) else None for k, v in self._numbers().items()}
        return {"name": self.name, **finite, "ok": self.ok, "worst_index": list(self.worst_index)}

    def _numbers(self) -> dict[str, float]:
        return {"max_abs": self.max_abs, "max_rel": self.max_rel, "bound": self.bound}


def softmax_axis(graph: Graph, value: Value) -> int | None:
    """The axis over which the value is a softmax; None if it is none."""
    node = graph.producer.get(value)
    axis = node.attrs["axis"] if node is not None and node.op == "softmax" else None
    return axis if isinstance(axis, int) else None


def difference(
    name: str, reference: NDArray, other: NDArray, softmax: int | None = None
) -> Difference:
    """Compare an array with its reference, a softmax over that axis if one is given.

    NaN equals NaN in the same place, an infinity one of the same sign; integers and bools must be
    equal. A difference in shape or dtype is infinite.
    """
    if reference.shape != other.shape or reference.dtype != other.dtype:
        return Difference(name, np.inf, np.inf, 0.0, False, ())
    if not reference.size:
        return Difference(name, 0.0, 0.0, 0.0, True, ())
    a, b = reference.astype(np.float64), other.astype(np.float64)
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        apart = np.where(same, 0.0, np.abs(a - b))
        apart = np.where(np.isnan(apart), np.inf, apart)
        sizes = a if softmax is None else a.max(softmax)
        finite = sizes[np.isfinite(sizes)]
        scale = float(np.sqrt(np.mean(finite * finite))) if finite.size else 0.0
        relative = np.where(same, 0.0, apart / np.maximum(np.abs(a), np.finfo(np.float64).tiny))
    bound = RELATIVE.get(str(reference.dtype), 0.0) * scale
    worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(apart)), apart.shape))
    largest = float(apart[worst])
    return Difference(name, largest, float(relative.max()), bound, largest <= bound, worst)
