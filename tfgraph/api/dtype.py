"""A model in another float type: its graphs, and its weights, rounded when they are read.

What another tool wrote out in its own ops is recovered first, in the type that it was written in:
its constants are exact there, and its masks within range. May import: source, weights, passes,
ops, ir, errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfgraph.api.source import Opened, open_source
from tfgraph.api.weights import as_seeded
from tfgraph.backends.base import Weights
from tfgraph.errors import TfgraphError
from tfgraph.ir import DType, Graph
from tfgraph.ir import dtype as dtype_of
from tfgraph.ops import verify
from tfgraph.ops.with_dtype import with_dtype
from tfgraph.passes import Pass, PassReport, parse_pipeline, run_pipeline
from tfgraph.weights import Rounded, Seeded

if TYPE_CHECKING:
    from tfgraph.model import Model

AfterPass = Callable[[Pass, Graph, Graph], None]
DTYPES = (DType.float32, DType.float16, DType.bfloat16)
"""The types that a model may be compiled in."""


@dataclass(frozen=True)
class Typed:
    """A model in a type, the passes that are left to run on it, and what those before them did."""

    opened: Opened
    passes: str
    reports: tuple[PassReport, ...] = ()


def in_dtype(
    opened: Opened,
    dtype: str | DType | None,
    passes: str | None = None,
    after: AfterPass | None = None,
    prove: bool = False,
) -> Typed:
    """A model in that type; of None as it is. `passes` are to run on the graph, by default its own:
    those up to the last that recovers run here. Raises TfgraphError for a type that is none of
    `DTYPES`, and for constants that the type does not hold."""
    passes = passes or opened.passes
    kind = None if dtype is None else check_dtype(dtype)
    if kind is None or _is_in(opened.graph, kind):
        return Typed(opened, passes)
    parsed = parse_pipeline(passes)
    recovers = [i for i, p in enumerate(parsed) if p.name.startswith("recover-")]
    first = recovers[-1] + 1 if recovers else 0
    graph, reports = opened.graph, list[PassReport]()
    if first:
        verify(graph)
        graph, reports = run_pipeline(graph, parsed[:first], after, prove)
    graph = with_dtype(graph, kind)
    functions = {name: with_dtype(function, kind) for name, function in opened.functions.items()}
    left = ",".join(map(str, parsed[first:])) or "dce"
    made = replace(
        opened,
        graph=graph,
        functions=functions,
        weights=_weights(opened.weights, graph),
        passes=left,
        onnx=None,
    )
    return Typed(made, left, tuple(reports))


def model_in_dtype(model: Model, dtype: str | DType | None, passes: str | None = None) -> Model:
    """A model in that type, see `in_dtype`; no file holds it."""
    typed = in_dtype(open_source(model), dtype, passes)
    if dtype is None or typed.opened.graph is model.graph:
        return model
    made = typed.opened
    return replace(
        model,
        graph=made.graph,
        functions=made.functions,
        weights=made.weights or {},
        passes=typed.passes,
        path=None,
    )


def check_dtype(dtype: str | DType) -> DType:
    """The type, if a model may be compiled in it. Raises TfgraphError."""
    kind = dtype_of(dtype)
    if kind not in DTYPES:
        names = ", ".join(d.value for d in DTYPES)
        raise TfgraphError(f"dtype {kind.value}: models are compiled in {names}")
    return kind


def _is_in(graph: Graph, dtype: DType) -> bool:
    """Whether the floats that a graph reads are of that type."""
    given = [*(i.value for i in graph.inputs), *(p.value for p in graph.params)]
    return {v.type.dtype for v in given if v.type.dtype.is_float} == {dtype}


def _weights(weights: Weights | None, graph: Graph) -> Weights | None:
    if weights is None:
        return None
    seeded = as_seeded(weights)
    return Rounded(graph.params, weights) if seeded is None else Seeded(graph.params, seeded.seed)
