"""Rows of a table to which a head is tied: they are read from the layout of the head's GEMM.

So the table, the largest weight of many language models, is stored once. A row is then spread over
a panel, a stride apart: more lines to read, which is little beside all else that a token costs.
May import: emitters, lower, ops, ir.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfgraph.backends.tvm.emitters import tied_weight
from tfgraph.backends.tvm.lower import Lowering, emitter
from tfgraph.ir import DType, Value, tensor
from tfgraph.ops.embedding_sum import terms

if TYPE_CHECKING:
    from tfgraph.ir import Attr, Graph, Node


def _float32(graph: Graph, node: Node) -> bool:
    return node.output.type.dtype == DType.float32


@emitter("embedding", "embedding_sum", target="cpu", when=_float32)
def embedding(low: Lowering, node: Node) -> None:
    """The generic kernel, which is told of tables in panels, and how many rows each has."""
    operands: list[Value] = []
    rows: list[int] = []
    for ids, table in terms(node.inputs):
        tied = ids is not None and table in low.module.tied
        rows.append(int(table.type.shape[0]) if tied else 0)
        operands += [table] if ids is None else [ids, _packed(low, table) if tied else table]
    attrs: dict[str, Attr] = {**node.attrs, **({"rows": tuple(rows)} if any(rows) else {})}
    low.emit_generic(replace(node, operands=tuple(operands), attrs=attrs))


def _packed(low: Lowering, table: Value) -> Value:
    """A value that stands for the table in panels."""
    vocabulary, width = (int(d) for d in table.type.shape)
    _, shape = low.kernels.packed(width, vocabulary)
    panels = Value(table.name, tensor("f32", *shape))
    low.put(panels, tied_weight(low, table))
    return panels
