"""A run on a GPU launches a kernel for each node that computes, and no other: the examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tfgraph.api.fuse import fuse
from tfgraph.backends.base import Target
from tfgraph.backends.tvm.cuda import backend
from tfgraph.backends.tvm.cuda.backend import CudaBackend
from tfgraph.ir import Graph, Node
from tfgraph.model import read_model
from tfgraph.ops.cache import APPENDS
from tfgraph.passes import DEFAULT_PIPELINE

EXAMPLES = Path(__file__).parents[2] / "examples"
TARGET = Target("cuda", arch="sm_80")


ROW_READERS = {"embedding", "embedding_sum", "rotary", "take", "take_at"}
COLUMN_READERS = {"attention", "rotary", *APPENDS}


def computing(graph: Graph) -> list[str]:
    """The values of the nodes that a run computes by a kernel: not those of weights alone, nor a
    reshape, which is another name for what is there, nor what its readers find where it is."""
    nodes = [n for n in graph.nodes if not graph.weight_values.issuperset(n.outputs)]
    kept = [n for n in nodes if n.op != "reshape" and not read_where_it_is(graph, n)]
    return [n.outputs[0].name for n in kept]


def read_where_it_is(graph: Graph, node: Node) -> bool:
    """Columns that attention, rotary positions and caches read, rows of tables, and integers that
    whatever takes rows computes by itself."""
    value, users = node.outputs[0], graph.users.get(node.outputs[0], [])
    if value in graph.output_values:
        return False
    readers = {u.op for u in users}
    if node.op == "slice" and value.type.rank == 3 and readers <= COLUMN_READERS:
        return True
    if node.op == "slice" and value.type.dtype.is_float:
        return node.attrs["axis"] == 0 and readers <= ROW_READERS
    return of_integers(node) and all(u.op in ROW_READERS or of_integers(u) for u in users)


def of_integers(node: Node) -> bool:
    """Arithmetic of integers and bools, element by element."""
    floats = any(v.type.dtype.is_float for v in (*node.inputs, *node.outputs))
    return not floats and node.op not in ("concat", "reshape", "sum", "max")


@pytest.mark.parametrize("name", sorted(p.stem for p in EXAMPLES.glob("*.yaml")))
def test_launches_are_the_nodes_that_compute(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "find_toolkit", lambda: None)
    model = read_model(EXAMPLES / f"{name}.yaml")
    made, passes = CudaBackend(), model.passes or DEFAULT_PIPELINE
    graph = fuse(model.graph, TARGET, passes).compiled
    functions = {n: fuse(g, TARGET, passes).compiled for n, g in model.functions.items()}
    built = made.build(graph, dict.fromkeys(graph.params), TARGET, functions)
    entries: dict[str, Any] = {"main": built.manifest}
    entries |= {n: f.manifest for n, f in built.functions.items()}
    assert entries.keys() == {"main", *functions}
    for function, entry in entries.items():
        values = [launch.get("value") for launch in entry["launches"]]
        # Integers that some reader cannot compute are made where the first such one comes.
        wanted = computing(made.resolve(functions.get(function, graph), TARGET))
        assert sorted(values) == sorted(wanted), function
    assert built.manifest["cuda"]["launches"] == len(built.manifest["launches"])
