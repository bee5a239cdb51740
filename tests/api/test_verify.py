"""Which sizes the verifier tries, and what it says where it could show nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tfgraph.ops as ops
from tfgraph.api.bounds import difference, softmax_axis
from tfgraph.api.verify import plan, verify
from tfgraph.backends.base import symbol_ranges
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.errors import Location
from tfgraph.ir import Dim, Graph
from tfgraph.ir.mask import bias
from tfgraph.model import load_source

ROOT = Path(__file__).parents[2]


def test_a_softmax_is_judged_by_its_largest_weights() -> None:
    """Most of a row is far smaller than what it consists of, which is where it may differ."""
    row = np.full((3, 1000), 1e-5, np.float32)
    row[:, 7] = 0.99
    for error, ok in ((5e-5, True), (2e-4, False)):
        other = row.copy()
        other[1, 7] += error
        assert difference("p", row, other, softmax=-1).ok is ok
        assert not difference("x", row, other).ok
    with ops.graph("rows") as g:
        x = g.input("x", "f32", "batch", 8)
        g.output("p", ops.softmax(x, axis=1))
        g.output("y", x + 1)
    graph = g.build()
    assert [softmax_axis(graph, o.value) for o in graph.outputs] == [1, None]


def two_lengths(*constraints: tuple[str, str, str], high: int = 100) -> Graph:
    """x [batch, seq] and y [batch, other], scaled."""
    with ops.graph("two") as g:
        batch = g.symbol("batch", 1, 8, example=2)
        seq, other = g.symbol("seq", 1, high, example=16), g.symbol("other", 1, high, example=16)
        g.output("a", g.input("x", "f32", batch, seq, 4) * 2)
        g.output("b", g.input("y", "f32", batch, other, 4) * 2)
        for left, relation, right in constraints:
            g.constrain(ops_dim(left), relation, ops_dim(right))
    return g.build()


def ops_dim(text: str) -> Dim:
    from tfgraph.text import parse_dim

    return parse_dim(text, Location("test"))


def test_every_kind_of_size_is_tried() -> None:
    graph = load_source(str(ROOT / "examples/encoder.yaml")).graph
    points = plan(graph)
    assert {"batch": 1, "seq": 1} in points
    assert {"batch": 2, "seq": 128} in points
    assert {"batch": 3, "seq": 67} in points  # odd, above a tile, in a batch
    assert {"batch": 63, "seq": 1} in points
    assert {"batch": 1, "seq": 512} in points
    assert {"batch": 64, "seq": 1} in points


def test_lengths_are_odd_together_and_differ() -> None:
    assert {"batch": 3, "seq": 71, "other": 67} in plan(two_lengths())


def test_sizes_shrink_to_the_budget_but_not_below_the_minimum() -> None:
    graph = load_source(str(ROOT / "examples/encoder.yaml")).graph
    assert plan(graph, budget=1) == [{"batch": 1, "seq": 1}]


@pytest.mark.parametrize(
    "constraint", [("seq", "==", "2*other"), ("seq + other", "<=", "20"), ("seq", "==", "other")]
)
def test_all_sizes_meet_the_constraints(constraint: tuple[str, str, str]) -> None:
    graph = two_lengths(constraint)
    points = plan(graph)
    assert len(points) > 2
    for sizes in [*points, {n: s.example for n, s in symbol_ranges(graph).items()}]:
        left, relation, right = (
            eval(part, {}, sizes) if part not in ("==", "<=") else part for part in constraint
        )
        assert left == right if relation == "==" else left <= right


def test_nothing_tried_is_not_verified() -> None:
    graph = two_lengths(("seq", "==", "other + 200"), high=100)
    executable = NumpyExecutable(graph, {})
    outcome = verify(executable, graph, {})
    assert (outcome.ok, outcome.dims) == (None, ())
    assert outcome.reason == "no sizes were found that meet the constraints"


def test_nan_is_not_verified() -> None:
    with ops.graph("scaled") as g:
        x = g.input("x", "f32", 2, 4)
        g.output("y", x * g.param("w", "f32", 4))
    graph = g.build()
    weights = {"w": np.array([1, np.nan, 1, 1], np.float32)}
    outcome = verify(NumpyExecutable(graph, weights), graph, weights)
    assert outcome.ok is None
    assert outcome.reason == "the reference gives NaN in output 'y'"


def test_a_length_that_is_first_in_a_bias_is_no_batch() -> None:
    """A symbol is a batch only where it is the first size of inputs and no other one."""
    with ops.graph("biased") as g:
        x = g.input("x", "f32", "batch", "seq", 8)
        added = bias(g.input("t", "f32", "seq", "seq"))
        g.output("y", ops.attention(x, x, x, added, heads=2, kv_heads=2, scale=1))
    points = plan(g.build())
    assert {"batch": 3, "seq": 67} in points
    assert {"batch": 67, "seq": 1} in points
