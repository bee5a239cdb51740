"""The reference on several cases at once: each as if it ran alone, weights widened once."""

from __future__ import annotations

import numpy as np
import pytest

from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.ops.floats import SharedArray
from tfgraph.runtime.examples import example
from tfgraph.text import parse_graph

GRAPH = """
graph both(%ids: i64[n] = ids(5)) {
  symbol n: 1..8, example 2
  %x = embedding(%ids, %table)
  %y = linear(%x, %w)
  %z = linear(%x, %w)
  return %y, %z
}
weights {
  %table : f32[5,4] = normal(1)
  %w : f32[4,3] = normal(1)
}
"""


def test_cases_together_give_what_each_gives_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = parse_graph(GRAPH)
    rng = np.random.default_rng(0)
    table, w = (rng.normal(size=shape).astype(np.float32) for shape in ((5, 4), (4, 3)))
    reference = NumpyExecutable(graph, {"table": table, "w": w})
    cases = [
        {p.name: example(p, {"n": n}, seed) for p in reference.inputs}
        for seed, n in enumerate((1, 8, 3))
    ]
    widened: list[int] = []
    whole = SharedArray.widened

    def counted(array: SharedArray) -> object:
        widened.append(0 if "_in_float64" in vars(array) else 1)
        return whole(array)

    monkeypatch.setattr(SharedArray, "widened", counted)
    before = np.geterr()
    found = reference.together([(inputs, {}) for inputs in cases])
    assert np.geterr() == before
    assert len(widened) == 9
    assert sum(widened) == 3, "once for each node that reads it"
    for inputs, outputs in zip(cases, found, strict=True):
        rows = table[inputs["ids"]].astype(np.float64)
        expected = (rows @ w.astype(np.float64)).astype(np.float32)
        np.testing.assert_array_equal(outputs["y"], expected)
        np.testing.assert_array_equal(outputs["z"], expected)
