"""Where a step of generation keeps the keys and values of all tokens so far.

May import: ops, ir.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from tfgraph import ops
from tfgraph.ir import Fill

if TYPE_CHECKING:
    from tfgraph.ir import Dim
    from tfgraph.ops import Array, Traced


@dataclass(frozen=True)
class Cache:
    """States [batch, capacity, width] of the graph, whose rows from `at` on the new tokens take.

    What stands behind the new rows is of no meaning: masks hide it.
    """

    batch: Dim
    capacity: Dim
    at: Dim

    def append(self, layer: str, part: str, new: Array) -> Traced:
        """The state LAYER.PART with `new` [batch, rows, width] in it, which is also its output."""
        builder, name = ops.current(), f"{layer}.{part}"
        width = new.shape[2]
        fill = Fill("state")
        state = builder.input(name, new.dtype, self.batch, self.capacity, width, fill=fill)
        rows = cast("Traced", ops.cache_append(state, new, at=self.at))
        builder.output(name, rows)
        return rows
