"""What a workload takes at least, counted from its graph: operations of matrix products, and bytes
that a decoded token has to read. May import: tfgraph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfgraph.api.export import FUSED
from tfgraph.cost import node_cost
from tfgraph.ir import Graph, Mask, Node, as_dim
from tfgraph.ir.mask import Causal
from tfgraph.passes import parse_pipeline, run_pipeline

PRODUCTS = frozenset({"linear", "matmul", "weighted_sum", "attention"})


@dataclass(frozen=True)
class Work:
    """`flops`: of matrix products, a multiply-add as two; of causal attention those that are seen.
    `bytes`: the weights that are read, of tables only the rows, and the keys and values of earlier
    tokens, once."""

    flops: int
    bytes: int


def count_work(graph: Graph, sizes: Mapping[str, int]) -> Work:
    """Count at some sizes of all symbols."""
    fused, _ = run_pipeline(graph, parse_pipeline(FUSED))
    flops, read = 0, 0
    past = {item.value for item in fused.inputs if item.value.name.startswith("past.")}
    for node in fused.nodes:
        if fused.weight_values.issuperset(node.outputs):
            continue
        line = node_cost(fused, node)
        read += as_dim(line.weight_bytes).evaluate(sizes)
        for value in past.intersection(node.inputs):
            size = as_dim(value.type.dtype.bits // 8)
            for dim in value.type.shape:
                size *= dim
            read += size.evaluate(sizes)
        if node.op in PRODUCTS:
            amount = as_dim(line.flops).evaluate(sizes)
            flops += round(amount * _seen(node, sizes)) if node.op == "attention" else amount
    return Work(flops, read)


def _seen(node: Node, sizes: Mapping[str, int]) -> float:
    """The share of the scores that a causal mask lets be seen; 1 without one."""
    masks = [part for o in node.operands if isinstance(o, Mask) for part in o.parts]
    causal = next((part for part in masks if isinstance(part, Causal)), None)
    if causal is None:
        return 1.0
    queries, keys = (value.type.shape[1].evaluate(sizes) for value in node.inputs[:2])
    first = 0 if causal.offset is None else causal.offset.evaluate(sizes)
    seen = sum(min(keys, first + i + 1) for i in range(queries))
    return seen / (queries * keys)
