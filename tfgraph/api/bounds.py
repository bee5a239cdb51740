"""How far two results differ, and whether that is within a bound. May import: numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

NDArray = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Difference:
    """How two arrays of one value differ: anywhere, and at the worst element, that which comes
    nearest to its bound. Where each has a bound of its own, the largest difference may be at
    another."""

    name: str
    max_abs: float
    max_rel: float
    error: float
    """The difference at `worst_index`."""
    bound: float
    """What is allowed there."""
    ok: bool
    worst_index: tuple[int, ...]
    is_bounded: bool = True
    """Whether every element has a bound; where one is infinite, anything is right."""

    @property
    def severity(self) -> float:
        """How many times its bound, to order differences; the difference itself where that is 0."""
        return self.error / self.bound if self.bound else self.error

    @property
    def worst(self) -> str:
        """The worst element, in words; and the largest difference, where that is at another."""
        return of_worst(self.error, self.bound, self.worst_index) + (
            "" if self.max_abs == self.error else f"; the largest error is {self.max_abs:.2e}"
        )

    def to_json(self) -> dict[str, Any]:
        """The object in `--json`; what is not a number is null."""
        finite = {k: v if np.isfinite(v) else None for k, v in self._numbers().items()}
        return {"name": self.name, **finite, "ok": self.ok, "worst_index": list(self.worst_index)}

    def _numbers(self) -> dict[str, float]:
        return {"max_abs": self.max_abs, "max_rel": self.max_rel, "bound": self.bound}


def of_worst(error: float, bound: float, index: tuple[int, ...]) -> str:
    """The difference at an element beside its bound: `1.20e-03 at [0, 3], 46 times its bound
    2.60e-05`."""
    told = f"{error:.2e} at {list(index)}"
    if 0 < bound < np.inf and np.isfinite(error):
        return f"{told}, {error / bound:.3g} times its bound {bound:.2e}"
    return f"{told}, its bound {bound:.2e}"


def difference(name: str, reference: NDArray, other: NDArray, bound: float | NDArray) -> Difference:
    """Compare an array with its reference, where they may differ by `bound`: one for all elements,
    or one for each. See `tfgraph.rounding`.

    NaN equals NaN in the same place, an infinity one of the same sign; integers and bools must be
    equal. An infinite bound says that anything is right there. A difference in shape or dtype is
    infinite. The worst element is the one that comes nearest to its bound.
    """
    if reference.shape != other.shape or reference.dtype != other.dtype:
        return Difference(name, np.inf, np.inf, np.inf, 0.0, False, ())
    if not reference.size:
        return Difference(name, 0.0, 0.0, 0.0, 0.0, True, ())
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
    largest = float(apart.max()), float(relative.max())
    return Difference(
        name, *largest, float(apart[worst]), float(allowed[worst]), ok, worst, bounded
    )
