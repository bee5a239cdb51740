"""`cache_append` where the cache is a state: new rows are written into the caller's array.

May import: lower, windows, kernels of this folder, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from tvm.tirx.script import builder as T

from tfgraph.backends.tvm.cpu.emit import argument, body, function, hold, scalar_argument, symbol
from tfgraph.backends.tvm.cpu.rows import Part, each_part, each_row
from tfgraph.backends.tvm.lower import Lowering, emitter
from tfgraph.backends.tvm.windows import place
from tfgraph.ir import DType
from tfgraph.passes import NoMatch

if TYPE_CHECKING:
    from tfgraph.backends.tvm.cpu.kernels import CpuKernels
    from tfgraph.ir import Dim, Graph, Node

Expr = Any


def _fits(graph: Graph, node: Node) -> bool:
    cache = node.inputs[0]
    if not any(
        i.value == cache and i.fill is not None and i.fill.kind == "state" for i in graph.inputs
    ):
        raise NoMatch("the cache is no state of the graph, so it is copied")
    return cache.type.dtype == DType.float32 and cache.type.shape[2].is_const


@emitter("cache_append", target="cpu", when=_fits)
def append_in_place(low: Lowering, node: Node) -> None:
    """The new rows, which may be columns of a merged projection, go where they belong."""
    cache, new = node.inputs
    source, pitch, offset = place(low, new)
    kernels = cast("CpuKernels", low.kernels)
    at: Dim = node.attrs["at"]  # type: ignore[assignment]
    width = int(cache.type.shape[2])
    kernel = low.kernel(
        ("cache_append", width, pitch, offset),
        lambda: cache_append("cache_append", width, pitch, offset, kernels.machine.lanes),
        "cache_append",
    )
    low.put(node.output, low.call_in_place(kernel, cache, [source, low.expr(at)]))


def cache_append(name: str, width: int, pitch: int, offset: int, lanes: int) -> Any:
    """Rows at .. at + seq - 1 of cache (batch, capacity, width) become columns offset ..
    offset + width - 1 of new (batch, seq, pitch)."""
    batch, capacity, seq = symbol("batch"), symbol("capacity"), symbol("seq")
    with function(name) as builder:
        cache = argument("cache", (batch, capacity, width))
        new = argument("new", (batch, seq, pitch))
        at = scalar_argument("at")

        def copy(row: Expr) -> None:
            entry = hold(T.floordiv(row, seq))
            i = hold(row - entry * seq)

            def part_of(_unrolled: int, part: Part) -> None:
                source = Part(part.start + offset, part.count, part.lanes)
                part.store(cache, source.load(new, entry, i), entry, at + i)

            each_part(width, lanes, part_of)

        with body():
            each_row(batch * seq, width, copy)
    return builder.get()
