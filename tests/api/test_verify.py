"""Which sizes the verifier tries, and what it says where it could show nothing."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import tfgraph.ops as ops
from tfgraph.api.allowed import Allowed
from tfgraph.api.bounds import difference
from tfgraph.api.verify import Verification, plan, together, verify
from tfgraph.backends.base import Target, symbol_ranges
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.errors import Location
from tfgraph.ir import Dim, Graph
from tfgraph.ir.mask import bias
from tfgraph.model import load_source

ROOT = Path(__file__).parents[2]


def test_differences_are_held_to_one_bound_or_to_one_each() -> None:
    row = np.array([1, 2, np.inf, np.nan], np.float32)
    other = np.array([1.5, 2.25, np.inf, np.nan], np.float32)
    assert difference("x", row, other, 0.5).ok
    assert not difference("x", row, other, 0.4).ok
    assert difference("x", row, other, np.array([0.5, 0.25, 0, 0])).ok
    found = difference("x", row, other, np.array([0.5, 0.125, 0, 0]))
    assert (found.ok, found.worst_index, found.bound, found.error) == (False, (1,), 0.125, 0.25)
    assert (found.max_abs, found.severity) == (0.5, 2)
    assert found.worst == (
        "2.50e-01 at [1], 2 times its bound 1.25e-01; the largest error is 5.00e-01"
    )
    one = difference("x", row, other, 0.4)
    assert one.worst == "5.00e-01 at [0], 1.25 times its bound 4.00e-01"
    assert difference("x", row, -row, 0.4).worst == "inf at [2], its bound 4.00e-01"
    assert difference("x", row, other, np.array([np.inf, 0.25, 0, 0])).ok  # nothing is told of it


@pytest.mark.parametrize("pair", [(np.inf, -np.inf), (np.inf, 1), (1, np.nan), (np.nan, 1)])
def test_what_is_not_finite_has_its_place_and_sign(pair: tuple[float, float]) -> None:
    a, b = (np.array([x], np.float32) for x in pair)
    assert not difference("x", a, b, 1e30).ok
    assert difference("x", a, a, 0.0).ok


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
    outcome = verify(executable, graph, {}, Target("numpy"))
    assert (outcome.ok, outcome.dims) == (None, ())
    assert outcome.reason == "no sizes were found that meet the constraints"


def test_nan_is_not_verified() -> None:
    with ops.graph("scaled") as g:
        x = g.input("x", "f32", 2, 4)
        g.output("y", x * g.param("w", "f32", 4))
    graph = g.build()
    weights = {"w": np.array([1, np.nan, 1, 1], np.float32)}
    outcome = verify(NumpyExecutable(graph, weights), graph, weights, Target("numpy"))
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


def test_functions_have_one_outcome() -> None:
    """False where any is wrong, else None where nothing could be shown of one; and the sizes of a
    failure are those at which its function was wrong."""
    zero = np.zeros(2, np.float32)
    fine, wrong = difference("y", zero, zero, 0.5), difference("y", zero, zero + 1, 0.5)
    sizes = [{"n": n} for n in range(1, 7)]

    def of(ok: bool | None, dims: list[dict[str, int]]) -> Verification:
        d = wrong if ok is False else fine
        return Verification("numpy", ok, None, tuple(dims), (d,), (len(dims) - 1,))

    for each in itertools.product((True, None, False), repeat=3):
        names = "main", "prefill", "step"
        parts = [of(ok, sizes[2 * i : 2 * i + 2]) for i, ok in enumerate(each)]
        found = together(dict(zip(names, parts, strict=True)))
        assert found.ok is (False if False in each else None if None in each else True)
        assert [d.name for d in found.outputs] == ["y", "prefill: y", "step: y"]
        assert [o["dims"] for o in found.to_json()["outputs"]] == sizes[1::2]
        if False in each:
            first = each.index(False)
            name = f"{names[first]}: y" if first else "y"
            assert found.failure.startswith(f"output '{name}' differs from numpy by 1.00e+00")
            assert f"of n={2 * first + 2}, bound" in found.failure


def test_a_bound_grows_with_the_values_and_never_shrinks() -> None:
    with ops.graph("scaled") as g:
        g.output("y", ops.tanh(g.input("x", "f32", "n")) * 7)
    allowed = Allowed(g.build(), {}, Target("numpy"), [{"n": 50}])
    usual = allowed.bound("y", np.array([6.0], np.float32))
    assert 6 * 2.0**-24 < usual < 1e-5
    assert allowed.bound("y", np.array([1e-3], np.float32)) == usual
    assert allowed.bound("y", np.array([7e3], np.float32)) < 1100 * usual
    assert allowed.bound("y", np.array([7e3, -np.inf], np.float32)) > 990 * usual
