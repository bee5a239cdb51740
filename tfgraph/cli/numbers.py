"""An array in a few numbers, as tables show it. Imports numpy."""

from __future__ import annotations

from typing import Any

import numpy as np

_FIRST = 4


def summary(array: np.ndarray[Any, Any]) -> dict[str, str]:
    """min, max, mean and the first entries as text. NaN counts: it shows."""
    if not array.size:
        return {"min": "-", "max": "-", "mean": "-", "first": "empty"}
    wide = array.astype(np.float64)
    with np.errstate(all="ignore"):
        numbers = {"min": wide.min(), "max": wide.max(), "mean": wide.mean()}
    shown = {k: f"{v:.4g}" for k, v in numbers.items()}
    first = " ".join(f"{v:.4g}" for v in wide.reshape(-1)[:_FIRST])
    return {**shown, "first": first + (" ..." if array.size > _FIRST else "")}


def summary_json(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """The same as numbers; what is not finite is null."""
    wide = array.astype(np.float64)
    empty = not array.size

    def plain(number: float) -> float | None:
        return float(number) if np.isfinite(number) else None

    with np.errstate(all="ignore"):
        return {
            "min": None if empty else plain(wide.min()),
            "max": None if empty else plain(wide.max()),
            "mean": None if empty else plain(wide.mean()),
            "first": [plain(v) for v in wide.reshape(-1)[:_FIRST]],
        }
