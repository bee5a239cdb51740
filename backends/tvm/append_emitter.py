"""The emitter of what puts new rows into caches that are states. May import: windows, kernels,
lower, passes, ops, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgraph.backends.tvm.kernels import AppendShape, Columns, TurnShape
from tfgraph.backends.tvm.lower import Lowering, emitter, one_float
from tfgraph.backends.tvm.windows import window_of
from tfgraph.ops.cache import APPENDS
from tfgraph.passes import NoMatch

if TYPE_CHECKING:
    from tfgraph.ir import Dim, Graph, Node, Value


def _fits(graph: Graph, node: Node) -> bool:
    states = {i.value for i in graph.inputs if i.fill is not None and i.fill.kind == "state"}
    if not states.issuperset(node.inputs[i] for i in APPENDS[node.op]):
        raise NoMatch("the cache is no state of the graph, so it is copied")
    return one_float(graph, node) and all(v.type.shape[-1].is_const for v in node.inputs)


@emitter(*APPENDS, when=_fits, floats=True)
def append(low: Lowering, node: Node) -> None:
    """The new rows, which may be columns of a merged projection, go where they belong."""
    numbers = APPENDS[node.op]
    caches, new = ([node.inputs[i] for i in which] for which in (numbers, numbers.values()))
    sources, rows = zip(*(_columns(low, value) for value in new), strict=True)
    arguments, turn = list[Any](), None
    if node.op == "rotary_append_kv":
        query, cos, sin = node.inputs[2], *node.inputs[5:]
        source, queries = _columns(low, query)
        turn = TurnShape(
            queries,
            heads=int(node.attrs["heads"]),  # type: ignore[arg-type]
            kv_heads=int(node.attrs["kv_heads"]),  # type: ignore[arg-type]
            half=int(cos.type.shape[-1]),
            interleaved=bool(node.attrs["interleaved"]),
            by_entry=cos.type.rank == 3,
        )
        arguments = [source, low.value(cos), low.value(sin)]
    shape = AppendShape(rows, turn, caches[0].type.dtype.value)
    kernel = low.kernel((node.op, shape), lambda: low.kernels.append(node.op, shape), node.op)
    at: Dim = node.attrs["at"]  # type: ignore[assignment]
    results = [value.type for value in node.outputs[: -len(caches)]]
    made = low.call_in_place(kernel, caches, [*sources, *arguments, low.expr(at)], results)
    for value, var in zip(node.outputs, made, strict=True):
        low.put(value, var)


def _columns(low: Lowering, value: Value) -> tuple[Any, Columns]:
    base, pitch, offset = window_of(low.graph, value)
    return low.value(base), Columns(int(value.type.shape[-1]), pitch, offset)
