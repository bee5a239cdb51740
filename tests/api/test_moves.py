"""Behind a rounding to integers results are judged by how far the reference itself moves."""

from __future__ import annotations

import numpy as np
import pytest

import tfgraph
import tfgraph.ops as ops
from tfgraph.api.moves import after_rounding, moves_of
from tfgraph.api.verify import verify
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.ir import DType, Graph

WIDTH = 1024


def steps(factor: float, *, rounds: bool = True) -> Graph:
    """The sum of each row of x times a factor, rounded down to integers of 8 bits, as floats."""
    with ops.graph("steps") as g:
        x = g.input("x", "f32", g.symbol("batch", 1, 200, example=100), WIDTH)
        y = ops.tanh(x) * factor
        if rounds:
            y = ops.cast(ops.cast(y, dtype=DType.int8), dtype=DType.float32)
        g.output("y", ops.sum_(y * 7, axis=-1))
        g.output("plain", x * factor)
    return g.build()


@pytest.mark.parametrize(
    ("factor", "rounds", "ok"),
    [
        (100 + 5e-5, True, True),  # its last digits: some numbers round to another integer
        (100 + 1e-5, False, True),
        (100.1, True, False),  # not ten times as far
        (100.1, False, False),
    ],
)
def test_an_error_is_told_from_a_rounding(factor: float, rounds: bool, ok: bool) -> None:
    graph, other = steps(100, rounds=rounds), steps(factor, rounds=rounds)
    found = verify(NumpyExecutable(other, {}), graph, {})
    assert found.ok is ok
    judged = {d.name: d for d in found.outputs}
    assert judged["plain"].ok is ok
    assert judged["y"].ok is ok
    if ok and rounds:
        rms = 7 * 100 * np.sqrt(WIDTH) * 0.6
        assert judged["y"].max_abs > 1e-4 * rms  # far beyond roundings of floats
        assert judged["y"].bound > judged["y"].max_abs


def test_which_values() -> None:
    graph = steps(100)
    names = {value.name for value in after_rounding(graph)}
    assert names == {n.output.name for n in graph.nodes[2:6]}
    x = np.zeros((2, WIDTH), np.float32)
    assert moves_of(graph, {}, {"x": x}, {"batch": 2}, names) == dict.fromkeys(names, 0.0)


def test_compare_says_what_roundings_let_differ() -> None:
    found = tfgraph.compare(steps(100), dims={"batch": 100})
    assert found.ok
