"""What a failure is shrunk to: a graph that fails in the same way, within its own ranges."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tfgraph.backends.base import Backend, register_backend
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.fuzz import Case, Judge, failures
from tfgraph.fuzz.batch import merge
from tfgraph.fuzz.work import Done
from tfgraph.ir import Symbol
from tfgraph.text import parse_graph

if TYPE_CHECKING:
    from tfgraph.ir import Graph

TEXT = """graph g(%x: f32[batch,seq]) {{
  symbol batch: {low}..{high}
  symbol seq: 2..64
  %0 = neg(%x) : f32[batch,seq]
  %1 = tanh(%0) : f32[batch,seq]
  %2 = exp(%1) : f32[batch,seq]
  %3 = neg(%2) : f32[batch,seq]
  return y=%3, z=%0
}}"""
SIZES = {"batch": 7, "seq": 9}


def case(seed: int = 0, low: int = 3, high: int = 8) -> Case:
    return Case(seed, parse_graph(TEXT.format(low=low, high=high)), {"x": ("normal", None)})


class Fragile(Backend):
    """tanh is sin; a graph of less than three nodes makes it fall over."""

    name = "fragile"

    def compile(self, graph: Graph, weights: Any, target: Any) -> Any:
        if len(graph.nodes) < 3:
            raise ZeroDivisionError("the compiler fell over")
        nodes = (replace(n, op="sin") if n.op == "tanh" else n for n in graph.nodes)
        return NumpyExecutable(replace(graph, nodes=tuple(nodes)), weights)


@pytest.fixture(scope="module", autouse=True)
def backend() -> None:
    register_backend(Fragile.name, Fragile)


def test_another_failure_is_none_of_it() -> None:
    (found,) = failures([case()], Judge("fragile"), [SIZES])
    assert (found.wrong.output, len(found.graph.nodes)) == ("y", 3)
    assert "off by" in found.wrong.why
    assert found.sizes == {"batch": 3, "seq": 2}  # the least of their ranges
    assert {name: a.shape for name, a in found.arrays.items()} == {
        i.value.name: (3, 2) for i in found.graph.inputs
    }
    (again,) = Judge("fragile").check(found.graph, [(found.sizes, found.arrays)])
    assert again == found.wrong


def test_a_batch_has_the_sizes_that_all_of_its_graphs_take() -> None:
    merged = merge([case(0, 3, 8), case(1, 1, 6)])
    assert merged.symbols == (Symbol("batch", 3, 6), Symbol("seq", 2, 64))


def test_batches_add_up() -> None:
    counted = ("graphs", "outputs", "sensitive", "kernels", "unbounded")
    total, batch = Done(), Done(1, Counter(add=2), 3, 4, 5, 6, notes=["note"])
    batch.refused = {"onnxruntime": Counter(why=2)}
    for times in (1, 2):
        total.add(batch)
        assert [getattr(total, name) for name in counted] == [times * n for n in (1, 3, 4, 5, 6)]
        assert total.by_op == Counter(add=2 * times)
        assert total.notes == ["note"] * times
        assert total.refused == {"onnxruntime": Counter(why=2 * times)}
    assert batch.refused == {"onnxruntime": Counter(why=2)}
