"""Each kernel alone: none that is right exceeds its isolated bound, one that is wrong is named. The
bounds are far from useless where they do not fire: see tests/rounding."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tfgraph.backends.base import Backend, register_backend
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.fuzz import Case, random_case, replay, save
from tfgraph.fuzz.alone import KernelJudge, kernel_failures
from tfgraph.fuzz.batch import points
from tfgraph.fuzz.run import run
from tfgraph.ir import exact
from tfgraph.runtime.cores import default_threads
from tfgraph.text import parse_graph

if TYPE_CHECKING:
    from pathlib import Path

    from tfgraph.ir import Graph

GRAPHS = 10_000


def test_each_kernel_of_a_few_graphs_alone() -> None:
    cases = [random_case(seed) for seed in range(10)]
    judge = KernelJudge("numpy", strict=True)
    found, compared, unbounded = kernel_failures(cases, judge, points(0), 3, 5)
    assert found == []
    assert compared > 100
    assert unbounded < compared / 20  # a bound that is infinite sees nothing


class OffByEps(Backend):
    """The reference, but with an eps of 1e-5 in every norm."""

    name = "off-by-eps"

    def compile(self, graph: Graph, weights: Any, target: Any) -> Any:
        nodes = tuple(
            replace(n, attrs={**n.attrs, "eps": exact(1e-5)}) if "eps" in n.attrs else n
            for n in graph.nodes
        )
        return NumpyExecutable(replace(graph, nodes=nodes), weights)


def test_a_kernel_that_is_wrong_alone_is_shrunk_and_replayed(tmp_path: Path) -> None:
    register_backend("off-by-eps", OffByEps)
    graph = parse_graph(
        """graph block(%x: f32[n,8]) {
          %a = tanh(%x) : f32[n,8]
          %y = layer_norm(%a) {eps=1e-06} : f32[n,8]
          %z = mul(%y, 0) : f32[n,8]
          %w = layer_norm(%x) {eps=1e-06} : f32[n,8]
          return %z, %w
        }"""
    )
    case = Case(7, graph, {"x": ("normal", None)})
    judge = KernelJudge("off-by-eps", threads=2, strict=True)
    (failure,), *_ = kernel_failures([case], judge, [{"n": 3}], 1, 5)  # one of the two
    assert failure.seed == 7
    assert [node.op for node in failure.graph.nodes] == ["layer_norm"]
    assert failure.wrong.why.startswith("alone it is off by ")
    saved = save(failure, judge, tmp_path)
    record = json.loads((saved.folder / "failure.json").read_text("utf-8"))
    assert (record["threads"], record["alone"], record["sizes"]) == (2, True, {"n": 1})
    assert [w.why for w in replay(saved.folder).wrong] == [failure.wrong.why]
    assert replay(saved.folder, "numpy").wrong == []


@pytest.mark.long
def test_neither_bound_fires_on_the_cpu(tmp_path: Path) -> None:
    """Hours on two cores."""
    report = run(seconds=None, graphs=GRAPHS, folder=tmp_path, kernels=True, jobs=default_threads())
    assert report.failures == []
    assert report.graphs == GRAPHS
