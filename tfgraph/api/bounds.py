"""How far two results differ, and whether that is within a bound. May import: numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

NDArray = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Difference:
    """How two arrays of one value differ. `worst_index` is where `max_abs` is reached."""

    name: str
    max_abs: float
    max_rel: float
    bound: float
    ok: bool
    worst_index: tuple[int, ...]
    is_bounded: bool = True
    """Whether every element has a bound; where one is infinite, anything is right."""

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


def difference(name: str, reference: NDArray, other: NDArray, bound: float | NDArray) -> Difference:
    """Compare an array with its reference, where they may differ by `bound`: one for all elements,
    or one for each. See `tfgraph.rounding`.

    NaN equals NaN in the same place, an infinity one of the same sign; integers and bools must be
    equal. An infinite bound says that anything is right there. A difference in shape or dtype is
    infinite. The worst element is the one that comes nearest to its bound.
    """
    if reference.shape != other.shape or reference.dtype != other.dtype:
        return Difference(name, np.inf, np.inf, 0.0, False, ())
    if not reference.size:
        return Difference(name, 0.0, 0.0, 0.0, True, ())
    a, b = reference.astype(np.float64), other.astype(np.float64)
    allowed = np.broadcast_to(np.asarray(bound, np.float64), a.shape)
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        apart = np.where(same, 0.0, np.abs(a - b))
        apart = np.where(np.isnan(apart), np.inf, apart)
        relative = np.where(same, 0.0, apart / np.maximum(np.abs(a), np.finfo(np.float64).tiny))
        share = np.where(np.isposinf(allowed), 0.0, apart / allowed)
        share = np.where(same, 0.0, share)
    ranked = apart if np.ndim(bound) == 0 else share
    worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(ranked)), apart.shape))
    ok = bool((same | (share <= 1)).all())
    bounded = bool((same | np.isfinite(allowed)).all())
    numbers = float(apart[worst]), float(relative.max()), float(allowed[worst])
    return Difference(name, *numbers, ok, worst, bounded)
