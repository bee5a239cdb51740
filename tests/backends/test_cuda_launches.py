"""A run on a GPU launches a kernel for each node that computes, and no other: the examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tfgraph.api.fuse import fuse
from tfgraph.backends.base import Target
from tfgraph.backends.tvm.cuda import backend
from tfgraph.backends.tvm.cuda.backend import CudaBackend
from tfgraph.ir import Graph
from tfgraph.model import read_model
from tfgraph.ops.cache import APPENDS
from tfgraph.passes import DEFAULT_PIPELINE

EXAMPLES = Path(__file__).parents[2] / "examples"
TARGET = Target("cuda", arch="sm_80")


def computing(graph: Graph) -> list[str]:
    """The values of the nodes that a run computes: not those of weights alone, nor a reshape, which
    is another name for what is there, nor columns that attention, rotary positions and caches read
    where they are."""
    nodes = [n for n in graph.nodes if not graph.weight_values.issuperset(n.outputs)]
    readers = {"attention", "rotary", *APPENDS}
    return [
        n.outputs[0].name
        for n in nodes
        if n.op != "reshape"
        and not (
            n.op == "slice"
            and n.output.type.rank == 3
            and {u.op for u in graph.users[n.output]} <= readers
        )
    ]


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
        assert values == computing(made.resolve(functions.get(function, graph), TARGET)), function
    assert built.manifest["cuda"]["launches"] == len(built.manifest["launches"])
