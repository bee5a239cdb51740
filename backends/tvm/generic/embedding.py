"""Generic kernels of rows of tables: as they are, and sums of them.

May import: tvm, tfgraph.backends.tvm.generic, ops.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from tvm.tirx.script import builder as T

from tfgraph.backends.tvm.generic.kernel import Kernel, Moved, Tensor, constant, emitter
from tfgraph.backends.tvm.generic.loops import Indices, i64
from tfgraph.ir import DType, exact
from tfgraph.ops.embedding_sum import terms

Expr = Any


@emitter("embedding")
def _embedding(kernel: Kernel) -> None:
    ids, table = kernel.operands
    kernel.move(table, _row_at(kernel, 0, ids, table))


@emitter("embedding_sum")
def _embedding_sum(kernel: Kernel) -> None:
    """Elementwise, in one pass: what is added, one after another, to the first times the scale."""
    scale = kernel.attr("scale")

    def total(first: Expr, *others: Expr) -> Expr:
        scaled = first if scale == exact(1) else first * constant(scale, DType.float32)
        return reduce(lambda a, b: a + b, others, scaled)

    def term(number: int, ids: Tensor | None, table: Tensor) -> Tensor:
        if ids is None:
            return table
        width = kernel.result.type.shape[-1]
        type_ = table.type.with_shape((*ids.type.shape, width))
        shape = (*ids.shape, kernel.result.shape[-1])
        place = _row_at(kernel, number, ids, table)
        return Moved(type_, table.buffer, shape, False, table, place)

    given = terms(kernel.operands)
    kernel.map(total, [term(number, *pair) for number, pair in enumerate(given)])


def _row_at(
    kernel: Kernel, number: int, ids: Tensor, table: Tensor
) -> Callable[[Indices], Indices]:
    """Where in a table an element of its rows at `ids` stands.

    An id out of range reads the nearest row: a kernel never touches memory that is not its own.
    Telling the user is the caller's task. With the attribute `rows`, which lowering adds, a table
    lies in panels, [panels, width, columns], where its number of rows is not 0: row i is column
    i % columns of panel i // columns.
    """
    given: Any = kernel.node.attrs.get("rows")
    packed = 0 if given is None else int(given[number])
    rows = i64(packed) if packed else table.shape[0]

    def place(indices: Indices) -> Indices:
        found = T.cast(ids[indices[:-1]], "int64")
        row = kernel.loops.hold(T.max(T.min(found, rows - 1), i64(0)), "row")
        if not packed:
            return row, indices[-1]
        columns = table.shape[2]
        return T.truncdiv(row, columns), indices[-1], T.truncmod(row, columns)

    return place
