"""Random graphs on the CPU: no kernel alone exceeds its isolated bound, no output that of the whole
graph. The bounds are far from useless where they do not fire: see tests/rounding."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tfgraph.backends.base import Backend, register_backend
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.fuzz import Judge, random_case
from tfgraph.fuzz.batch import merge, merged_feeds, points
from tfgraph.ir import DType, exact
from tfgraph.text import parse_graph

if TYPE_CHECKING:
    from tfgraph.fuzz.judge import Wrong
    from tfgraph.ir import Graph

GRAPHS, BATCH = 10_000, 125  # hours on two cores


def judged(judge: Judge, first: int, count: int) -> list[Wrong]:
    cases = [random_case(first + i, [DType.float32]) for i in range(count)]
    graph = merge(cases)
    return judge.check(graph, [(sizes, merged_feeds(cases, sizes)) for sizes in points(first)])


def test_each_kernel_of_a_few_graphs_alone() -> None:
    judge = Judge("numpy", alone=True)
    assert judged(judge, 0, 10) == []
    assert judge.kernels > 100


class OffByEps(Backend):
    """The reference, but with an eps of 1e-5 in every norm."""

    name = "off-by-eps"

    def compile(self, graph: Graph, weights: Any, target: Any) -> Any:
        nodes = tuple(
            replace(n, attrs={**n.attrs, "eps": exact(1e-5)}) if "eps" in n.attrs else n
            for n in graph.nodes
        )
        return NumpyExecutable(replace(graph, nodes=nodes), weights)


def test_a_kernel_that_is_wrong_alone_is_named() -> None:
    register_backend("off-by-eps", OffByEps)
    graph = parse_graph(
        """graph block(%x: f32[n,8]) {
          %y = layer_norm(%x) {eps=1e-06} : f32[n,8]
          %z = mul(%y, 0) : f32[n,8]
          return %z
        }"""
    )
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    judge = Judge("off-by-eps", alone=True)
    (wrong,) = judge.check(graph, [({"n": 3}, {"x": x})])
    assert wrong.output == "y"
    assert wrong.why.startswith("layer_norm alone is off by ")


@pytest.mark.long
def test_neither_bound_fires_on_the_cpu() -> None:
    judge = Judge("cpu", alone=True)
    wrong = [w for first in range(0, GRAPHS, BATCH) for w in judged(judge, first, BATCH)]
    assert wrong == []
