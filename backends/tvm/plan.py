"""What a manifest says of a function: the memory that it takes, and the kernels that it calls.

May import: module, memory, cost, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgraph.backends.memory import compiled_steps, peak
from tfgraph.cost import node_cost
from tfgraph.ir import as_dim

if TYPE_CHECKING:
    from tfgraph.backends.tvm.module import LoweredFunction
    from tfgraph.ir import Graph, Node


def plan(function: LoweredFunction) -> dict[str, Any]:
    """What runs: the most bytes that values take at a time, and the kernels one after another with
    the value that each makes, its floating point operations and the bytes that it reads or writes.
    Where a node takes several kernels, the last one is said to do the work."""
    launches = list(function.launches)
    last = {id(launch.node): launch for launch in launches}
    return {
        "memory": str(peak(compiled_steps(function.graph))),
        "launches": [
            {"kernel": launch.kernel, **_work(function.graph, launch.node)}
            if launch.node is not None and last[id(launch.node)] is launch
            else {"kernel": launch.kernel}
            for launch in launches
        ],
    }


def _work(graph: Graph, node: Node) -> dict[str, Any]:
    line = node_cost(graph, node)
    amounts = {
        "flops": as_dim(line.flops),
        "bytes": as_dim(line.weight_bytes + line.read_bytes + line.written_bytes),
    }
    plain = {k: int(d) if d.is_const else str(d) for k, d in amounts.items()}
    return {"value": node.outputs[0].name, **plain}
