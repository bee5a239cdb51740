"""What a comparison runs on: a model read, its weights, and inputs at sizes that agree.

May import: source, backends, ops, runtime, weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.api.dtype import in_dtype
from tfgraph.api.source import Opened, open_source
from tfgraph.backends.base import Weights, constraints_of, input_ports, symbol_ranges
from tfgraph.ops import verify
from tfgraph.runtime.examples import complete
from tfgraph.runtime.inputs import check_dims
from tfgraph.weights import Seeded

if TYPE_CHECKING:
    from tfgraph.api.source import Source
    from tfgraph.ir import DType

NDArray = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Fed:
    """A model with all that its graph reads: `feeds` by input name, `sizes` by symbol."""

    opened: Opened
    weights: Weights
    feeds: Mapping[str, NDArray]
    sizes: Mapping[str, int]
    passes: str
    """Those to run on the graph."""


def feed(
    source: Source,
    weights: Weights | None,
    inputs: Mapping[str, NDArray] | None,
    dims: Mapping[str, int] | None,
    seed: int,
    dtype: str | DType | None = None,
    passes: str | None = None,
) -> Fed:
    """The model, in that type, with the inputs that are given, and others by its generators, at
    sizes that agree with these and `dims`, else at the symbols' examples. Raises TfgraphError, also
    for a graph that is not valid."""
    typed = in_dtype(open_source(source, weights), dtype, passes)
    opened = typed.opened
    graph = opened.graph
    verify(graph)
    arrays = Seeded(graph.params) if opened.weights is None else opened.weights
    symbols = symbol_ranges(graph)
    constraints = [str(c) for c in constraints_of(graph)]
    feeds, sizes = complete(
        input_ports(graph), symbols, constraints, inputs or {}, check_dims(dims, symbols), seed
    )
    return Fed(opened, arrays, feeds, sizes, typed.passes)
