"""The reference on several cases at once: each as if it ran alone, weights widened once."""

from __future__ import annotations

import numpy as np
import pytest

import tfgraph.parallel
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.errors import TfgraphError
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


def made() -> tuple[NumpyExecutable, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    sizes = {"table": (5, 4), "w": (4, 3)}
    weights = {name: rng.normal(size=shape).astype(np.float32) for name, shape in sizes.items()}
    return NumpyExecutable(parse_graph(GRAPH), weights), weights


@pytest.mark.parametrize("cores", [1, 2])
def test_cases_together_give_what_each_gives_alone(
    cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tfgraph.parallel, "default_threads", lambda: cores)
    reference, weights = made()
    table, w = weights["table"], weights["w"]
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


@pytest.mark.parametrize("cores", [1, 2])
def test_what_a_case_raises_is_raised(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfgraph.parallel, "default_threads", lambda: cores)
    squared = GRAPH.replace("= ids(5)", "").replace("embedding(%ids", "embedding(%i")
    graph = parse_graph(squared.replace("  %x =", "  %i = mul(%ids, %ids)\n  %x ="))
    reference = NumpyExecutable(graph, made()[1])
    with pytest.raises(TfgraphError, match=r"index 9 is out of range 0\.\.4"):
        reference.together([({"ids": np.array([0, n])}, {}) for n in (1, 3, 2)])
