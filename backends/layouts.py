"""How a weight lies in an artifact, undone: for who wants to know whether it is the model's.

May import: numpy.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

NDArray = np.ndarray[Any, Any]
_PACKED = re.compile(r"(transposed-)?packed(\d+)")


def unpacked(layout: str, stored: NDArray, shape: tuple[int, ...]) -> NDArray | None:
    """The weight of `shape` that was stored; None of a layout or a shape that is not known.

    `plain` is as it is, `columns` of [k, n] is [n, k] with zeros behind each column. `packedC` of
    [k, n] is [panels][k][C], the last panel padded with zeros;
    `transposed-` says that the transpose of a table [n, k] was packed.
    """
    if layout in ("plain", "transposed-plain"):
        found = stored if layout == "plain" else stored.T
        return found if found.shape == shape else None
    if layout in ("columns", "transposed-columns"):
        n, k = shape[::-1] if layout == "columns" else shape
        if stored.ndim != 2 or len(stored) != n or stored.shape[1] < k:
            return None
        return stored[:, :k].T if layout == "columns" else stored[:, :k]
    match = _PACKED.fullmatch(layout)
    if match is None or stored.ndim != 3 or len(shape) != 2:
        return None
    k, n = shape[::-1] if match[1] else shape
    panels, rows, columns = stored.shape
    if rows != k or not (panels - 1) * columns < n <= panels * columns:
        return None
    matrix = stored.transpose(1, 0, 2).reshape(k, panels * columns)[:, :n]
    return matrix.T if match[1] else matrix
