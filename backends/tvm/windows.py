"""Windows: columns of a wider value, such as Q, K and V of one merged product, which kernels read
where they are. May import: attention_fit, lower, ir.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfgraph.backends.tvm.attention_fit import attention_misfit
from tfgraph.backends.tvm.lower import Lowering, emitter, one_float

if TYPE_CHECKING:
    from tfgraph.ir import Attr, Graph, Node, Value


@emitter("slice", when=lambda graph, node: _is_window(graph, node.output))
def window(low: Lowering, node: Node) -> None:
    """Columns that only attention, rotary and caches read: they read them where they are."""


def _is_window(graph: Graph, value: Value) -> bool:
    """Whether a value is a constant range of columns that only kernels read which may."""
    node = graph.producer.get(value)
    if node is None or node.op != "slice" or value.type.rank != 3:
        return False
    columns = node.attrs["axis"] in (-1, 2) and node.attrs["start"].is_const  # type: ignore[union-attr]
    users = graph.users.get(value, ())
    return (
        columns
        and value not in graph.output_values
        and node.inputs[0].type.shape[-1].is_const
        and all(_reads_windows(graph, user, value) for user in users)
    )


def _reads_windows(graph: Graph, user: Node, value: Value) -> bool:
    """Whether the kernel of a node reads this operand as columns of something wider."""
    if user.op == "rotary":
        return one_float(graph, user) and value not in user.inputs[1:]
    if user.op == "cache_append":
        return user.inputs[0] != value
    if user.op in ("append_kv", "rotary_append_kv"):
        return value not in (*user.inputs[:2], *user.inputs[5:])
    return user.op == "attention" and not attention_misfit(user)


@emitter("rotary")
def rotary(low: Lowering, node: Node) -> None:
    """The generic kernel; x may be a window of a merged result."""
    x, *tables = node.inputs
    base, _, start = window_of(low.graph, x)
    if base == x:
        low.emit_generic(node)
        return
    attrs: dict[str, Attr] = {**node.attrs, "start": start}
    low.emit_generic(replace(node, operands=(base, *tables), attrs=attrs))


def window_of(graph: Graph, value: Value) -> tuple[Value, int, int]:
    """Where a value's columns are: the value that holds them, its width, the first column."""
    if _is_window(graph, value):
        node = graph.producer[value]
        base = node.inputs[0]
        return base, int(base.type.shape[-1]), int(node.attrs["start"])  # type: ignore[arg-type]
    return value, int(value.type.shape[-1]), 0
