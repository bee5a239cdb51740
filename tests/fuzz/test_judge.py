"""The fuzzer itself: does it see a kernel that is wrong, and let pass what only rounds?"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.fuzz_seeds import seeds_that_ran

from tfgraph import ops
from tfgraph.api.part import untold
from tfgraph.backends.base import Backend, register_backend
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.cli import main
from tfgraph.fuzz import Judge, failures, random_case, save
from tfgraph.fuzz.batch import merge, merged_feeds, points
from tfgraph.ir import Exact, exact
from tfgraph.model import read_model
from tfgraph.ops import graph
from tfgraph.text import parse_graph

if TYPE_CHECKING:
    from pathlib import Path

    from tfgraph.ir import Graph, Node


SEEDS = range(0, 1000, 25)  # one of each of forty families
POINTS = points(0)


class Broken(Backend):
    """The reference, but with one op computed a little wrong."""

    name = "broken"

    def compile(self, graph: Graph, weights: Any, target: Any) -> Any:
        def wrong(node: Node) -> Node:
            if node.op != "softmax":
                return node
            return replace(node, attrs={"axis": 0})

        return NumpyExecutable(replace(graph, nodes=tuple(map(wrong, graph.nodes))), weights)


class Raising(Backend):
    """A compiler that falls over one op."""

    name = "raising"

    def compile(self, graph: Graph, weights: Any, target: Any) -> Any:
        if any(node.op == "cumsum" for node in graph.nodes):
            raise ZeroDivisionError("the compiler fell over")
        return NumpyExecutable(graph, weights)


@pytest.fixture(autouse=True)
def backends() -> None:
    for backend in (Broken, Raising):
        register_backend(backend.name, backend)


@pytest.mark.parametrize(("backend", "op"), [("broken", "softmax"), ("raising", "cumsum")])
def test_a_planted_fault_is_found_and_shrunk_to_its_op(
    backend: str,
    op: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases = [random_case(seed, kind="blocks") for seed in SEEDS]
    guilty = {c.seed for c in cases if any(n.op == op for n in c.graph.nodes)}
    judge = Judge(backend)
    found = failures(cases, judge, POINTS)
    assert found
    for failure in found:
        assert failure.seed in guilty
        assert len(failure.graph.nodes) <= 2
        assert op in {node.op for node in failure.graph.nodes}
    saved = save(found[0], judge, tmp_path)
    assert saved.seed == found[0].seed
    graph = parse_graph((saved.folder / "graph.tfg").read_text("utf-8"))
    assert read_model(saved.folder / "model.yaml").graph == graph
    assert saved.compare is not None
    monkeypatch.chdir(tmp_path)  # where `compare` leaves the kernel that is wrong
    for command in (saved.compare, saved.replay):
        code = main(shlex.split(command)[1:])
        out, err = capsys.readouterr()
        assert (code == 1 and backend in out) or (code and "the compiler fell over" in err)


def test_the_seeds_of_a_run_are_named() -> None:
    name = "tests/fuzz/test_{0}.py::test_{0}[seeds {1}]"
    ran = [name.format("schemas", "500-624"), name.format("blocks", "125-249")]
    ran += [name.format("blocks", "0-124"), name.format("blocks", "400-409"), "test_x.py::test_x"]
    assert seeds_that_ran(ran) == [
        "blocks: 260 graphs, seeds 0 to 249, 400 to 409",
        "schemas: 125 graphs, seeds 500 to 624",
    ]


def test_graphs_follow_from_their_seeds() -> None:
    for seed in (3, 4, 5):
        a, b = random_case(seed, kind="blocks"), random_case(seed, kind="blocks")
        assert a.graph == b.graph
        for sizes in POINTS:
            for name, array in a.feeds(sizes).items():
                np.testing.assert_array_equal(array, b.feeds(sizes)[name])


def test_merged_graphs_compute_what_each_computes() -> None:
    cases = [random_case(seed, kind="blocks") for seed in (3, 4, 5)]
    sizes = POINTS[1]
    merged = merge(cases)
    weights = {
        p.value.name: np.ones([int(d) for d in p.value.type.shape], np.float32)
        for p in merged.params
    }
    together = NumpyExecutable(merged, weights)(
        dims=untold(merged, sizes), **merged_feeds(cases, sizes)
    )
    for case in cases:
        own = {p.value.name: weights[f"s{case.seed}.{p.value.name}"] for p in case.graph.params}
        dims = untold(case.graph, sizes)
        alone = NumpyExecutable(case.graph, own)(dims=dims, **case.feeds(sizes))
        for name, value in alone.items():
            np.testing.assert_array_equal(together[f"s{case.seed}.{name}"], value)


def cancellation(extra: Exact | None) -> Graph:
    """(x + 1) - 1 for tiny x, in which float32 keeps few digits; `extra` is added if given."""
    with graph("cancellation") as g:
        x = g.input("x", "f32", "n")
        y = ops.sub(ops.add(ops.mul(x, 1), 1), 1)
        g.output("y", y if extra is None else ops.add(y, extra))
    return g.build()


@pytest.mark.parametrize(("error", "sensitive", "right"), [(3e-8, 0, True), (1e-6, 1, False)])
def test_rounding_is_told_from_an_error(error: float, sensitive: int, right: bool) -> None:
    class Off(Backend):
        """The reference, and an error on top."""

        name = "off"

        def compile(self, graph: Graph, weights: Any, target: Any) -> Any:
            return NumpyExecutable(cancellation(exact(error)), weights)

    register_backend("off", Off)
    x = np.linspace(1e-6, 2e-6, 100, dtype=np.float32)
    judge = Judge("off")
    wrong = judge.check(cancellation(None), [({"n": 100}, {"x": x})])
    assert judge.sensitive == sensitive  # beyond the bound, and looked at twice
    assert (not wrong) == right


def test_what_roundings_may_turn_is_looked_at_twice() -> None:
    """x or -x, by whether 3 x is below 3: for x = 1 it may be either."""

    class Turned(Backend):
        """The reference with the comparison the other way round at the tie."""

        name = "turned"

        def compile(self, graph: Graph, weights: Any, target: Any) -> Any:
            return NumpyExecutable(tie(3.000001), weights)

    def tie(bound: float) -> Graph:
        with graph("tie") as g:
            x = g.input("x", "f32", "n")
            below = ops.less(ops.mul(x, 3), bound)
            g.output("y", ops.where(below, x, ops.neg(x)))
        return g.build()

    register_backend("turned", Turned)
    judge = Judge("turned")
    assert judge.check(tie(3), [({"n": 2}, {"x": np.array([1, 2], np.float32)})]) == []
    assert judge.sensitive == 1
