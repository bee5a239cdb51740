"""`embedding` where a head is tied to the table: rows are read from the layout of the head's GEMM.

So the table, the largest weight of many language models, is stored once. A row is then spread over
a panel, a stride apart: more lines to read, which is little beside all else that a token costs.
May import: lower, emitters, kernels of this folder, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm.tirx.script import builder as T

from tfgraph.backends.tvm.cpu.emit import argument, body, function, hold, i64, loop, symbol
from tfgraph.backends.tvm.cpu.rows import each_row
from tfgraph.backends.tvm.emitters import tied_weight
from tfgraph.backends.tvm.lower import Lowering, emitter
from tfgraph.ir import DType, product, tensor

if TYPE_CHECKING:
    from tfgraph.ir import Graph, Node

Expr = Any


def _float32(graph: Graph, node: Node) -> bool:
    return node.inputs[1].type.dtype == DType.float32


@emitter("embedding", target="cpu", when=_float32)
def embedding(low: Lowering, node: Node) -> None:
    """The generic kernel, but for a table that a head of the module reads too."""
    ids, table = node.inputs
    if table not in low.module.tied:
        low.emit_generic(node)
        return
    vocabulary, width = (int(d) for d in table.type.shape)
    _, shape = low.kernels.packed(width, vocabulary)
    dtype = ids.type.dtype.value
    kernel = low.kernel(
        ("tied embedding", dtype, vocabulary, shape),
        lambda: tied_embedding("embedding", dtype, vocabulary, shape),
        "embedding",
    )
    rows = product(ids.type.shape)
    flat = low.reshape(low.value(ids), (rows,))
    (y,) = low.call(kernel, [flat, tied_weight(low, table)], [tensor("f32", rows, width)])
    low.put(node.output, low.reshape(y, node.output.type.shape))


def tied_embedding(name: str, dtype: str, vocabulary: int, shape: tuple[int, ...]) -> Any:
    """out (rows, k) = the columns `ids` (rows,) of a weight (k, vocabulary) in panels of `shape`
    [panels, k, columns]. An id out of range reads the nearest: telling the user is the caller's
    task."""
    _, width, columns = shape
    rows = symbol("rows")
    with function(name) as builder:
        ids = argument("ids", (rows,), dtype)
        table = argument("table", shape)
        out = argument("out", (rows, width))

        def copy(row: Expr) -> None:
            token = hold(T.max(T.min(T.cast(ids[row], "int64"), i64(vocabulary - 1)), i64(0)))
            panel, column = hold(T.floordiv(token, i64(columns))), hold(token % i64(columns))
            with loop(width) as i:
                T.buffer_store(out, table[panel, i, column], [row, i])

        with body():
            each_row(rows, width, copy)
    return builder.get()
