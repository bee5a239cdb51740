"""Where the arrays of a function lie, and what is done with them there: in the CPU's memory, or by
another class in a device's. May import: numpy, arrays, overlap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.runtime.arrays import aligned_empty, as_array
from tfgraph.runtime.overlap import sharing

if TYPE_CHECKING:
    from collections.abc import Sequence

    Array = np.ndarray[Any, np.dtype[Any]]


class Place:
    """The CPU's memory, whose arrays are NumPy's."""

    def read(self, given: Any, what: str, dtype: str, hint: str | None = None) -> Any:
        """What a caller gives for an array of a dtype, as it lies; `what` is what errors call it,
        `hint` what they advise for another dtype. Raises TfgraphError for anything else."""
        return as_array(given, what, dtype, hint)

    def values(self, array: Any) -> Array:
        """The elements of such an array, to look at."""
        values: Array = array
        return values

    def look(self, array: Any) -> tuple[object, ...]:
        """What tells whether an array is another than it was: one that `resize` gave other memory,
        too, and one that became read-only."""
        return array.shape, array.strides, array.dtype, array.flags.num

    def sharing(self, one: Any, other: Any) -> str | None:
        """Whether two arrays share an element, as a verb."""
        return sharing(one, other)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """A new array; what it holds is undefined."""
        return aligned_empty(shape, dtype)

    def copy_rows(self, target: Any, source: Any, rows: Sequence[int], length: int) -> None:
        """Of arrays [batch, capacity, ...]: entry i of `target` begins with the first `length` rows
        of entry rows[i] of `source`."""
        target[:, :length] = source[rows, :length]


HOST = Place()
