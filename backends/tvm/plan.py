"""What a manifest says of a function: the memory that it takes, and the kernels that it calls.

May import: module, storage, cost, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgraph.cost import node_cost
from tfgraph.ir import as_dim

if TYPE_CHECKING:
    from tfgraph.backends.tvm.module import LoweredFunction
    from tfgraph.backends.tvm.storage import StoragePlan
    from tfgraph.ir import Dim, Graph, Node


def plan(function: LoweredFunction, storage: StoragePlan) -> dict[str, Any]:
    """The most bytes that are taken at a time; the storages, in which results follow one another;
    and the kernels in the order in which they run, each with the storages that it writes, the value
    that it makes, its floating point operations and the bytes that it reads or writes. Where a node
    takes several kernels, the last one is said to do the work."""
    last = {id(launch.node): launch for launch in function.launches}
    launches: list[dict[str, Any]] = []
    for launch, into in zip(function.launches, storage.into, strict=True):
        entry: dict[str, Any] = {"kernel": launch.kernel, "into": list(into)}
        if launch.node is not None and last[id(launch.node)] is launch:
            entry |= _work(function.graph, launch.node)
        launches.append(entry)
    return {
        "memory": _plain(storage.peak),
        "storages": [_plain(size) for size in storage.sizes],
        "launches": launches,
    }


def _work(graph: Graph, node: Node) -> dict[str, Any]:
    line = node_cost(graph, node)
    moved = as_dim(line.weight_bytes + line.read_bytes + line.written_bytes)
    return {
        "value": node.outputs[0].name,
        "flops": _plain(as_dim(line.flops)),
        "bytes": _plain(moved),
    }


def _plain(dim: Dim) -> int | str:
    return int(dim) if dim.is_const else str(dim)
