"""`cache_append` where the cache is a state: new rows are written into the state's array, a thread
an element. May import: lower, emitters, kernel, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import tirx

from tfgraph.backends.tvm.cuda.kernel import kernel, let, store, when
from tfgraph.backends.tvm.lower import Lowering, emitter
from tfgraph.backends.tvm.windows import place
from tfgraph.passes import NoMatch

if TYPE_CHECKING:
    from tfgraph.ir import Dim, Graph, Node

THREADS = 256


def _fits(graph: Graph, node: Node) -> bool:
    cache = node.inputs[0]
    if not any(
        i.value == cache and i.fill is not None and i.fill.kind == "state" for i in graph.inputs
    ):
        raise NoMatch("the cache is no state of the graph, so it is copied")
    return cache.type.shape[2].is_const


@emitter("cache_append", target="cuda", when=_fits)
def append_in_place(low: Lowering, node: Node) -> None:
    """The new rows, which may be columns of a merged projection, go where they belong."""
    cache, new = node.inputs
    source, pitch, offset = place(low, new)
    at: Dim = node.attrs["at"]  # type: ignore[assignment]
    width, dtype = int(cache.type.shape[2]), cache.type.dtype.value
    function = low.kernel(
        ("cache_append", width, pitch, offset, dtype),
        lambda: cache_append("cache_append", width, pitch, offset, dtype),
        "cache_append",
    )
    low.put(node.output, low.call_in_place(function, cache, [source, low.expr(at)]))


def cache_append(name: str, width: int, pitch: int, offset: int, dtype: str = "float32") -> Any:
    """Rows at .. at + seq - 1 of cache (batch, capacity, width) become columns offset ..
    offset + width - 1 of what is added (batch, seq, pitch)."""
    with kernel(name) as k:
        batch, seq = k.dim("batch"), k.dim("seq")
        cache = k.buffer("cache", (batch, k.dim("capacity"), width), dtype)
        new = k.buffer("added", (batch, seq, pitch), dtype)
        at = k.scalar("at")
        count = batch * seq * width
        with k.launch(blocks=(tirx.ceildiv(count, THREADS),), threads=THREADS) as (block, thread):
            element = let("element", tirx.Cast("int64", block) * THREADS + thread)
            with when(element < count):
                column = let("column", tirx.truncmod(element, width))
                row = let("row", tirx.truncdiv(element, width))
                entry, i = let("entry", tirx.truncdiv(row, seq)), let("i", tirx.truncmod(row, seq))
                store(cache, [entry, at + i, column], new[entry, i, column + offset])
    return k.function
