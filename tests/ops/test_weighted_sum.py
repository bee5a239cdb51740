"""weighted_sum: a matmul to which a weight of 0 brings nothing, whatever it meets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import ops

NDArray = np.ndarray[Any, Any]
SPECIAL = [np.nan, np.inf, -np.inf, 3e38, -1.5, 0.0, 1e-45]
BACKENDS = ("numpy", "cpu")


def by_terms(weights: NDArray, values: NDArray) -> NDArray:
    """The definition, a term at a time."""
    out = np.zeros((*weights.shape[:-1], values.shape[-1]))
    for k in range(weights.shape[-1]):
        for index in np.ndindex(out.shape):
            weight = float(weights[(*index[:-1], k)])
            if weight != 0:
                out[index] += weight * float(values[(*index[:-2], k, index[-1])])
    return out.astype(np.float32)


@pytest.fixture(scope="module", params=BACKENDS)
def model(request: pytest.FixtureRequest) -> Any:
    with ops.graph("g") as g:
        weights = g.input("weights", "f32", "b", "n", "t")
        values = g.input("values", "f32", "b", "t", "d")
        g.output("y", ops.weighted_sum(weights, values))
        g.output("z", ops.matmul(weights, values))
    return tfgraph.compile(g.build(), request.param)


@pytest.mark.parametrize("n", [1, 8, 13])
def test_every_weight_meets_every_value(model: Any, n: int) -> None:
    """Row i has weight i alone, and column j value j."""
    count = len(SPECIAL)
    weights = np.zeros((1, max(n, count), 2), np.float32)
    weights[0, :count, 1] = SPECIAL
    values = np.full((1, 2, count), np.nan, np.float32)
    values[0, 1] = SPECIAL
    with np.errstate(all="ignore"):
        want = by_terms(weights, values)
    np.testing.assert_array_equal(model(weights=weights, values=values)["y"], want)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_kind_of_value_that_is_not_finite(model: Any, value: float) -> None:
    weights = np.array([[[0, 1], [1, 0], [2, 3]]], np.float32)
    values = np.array([[[value], [5]]], np.float32)
    with np.errstate(invalid="ignore"):
        want = np.array([5, value, 2 * value + 15], np.float32)
    np.testing.assert_array_equal(model(weights=weights, values=values)["y"][0, :, 0], want)


@pytest.mark.parametrize(("n", "t", "d"), [(1, 1, 1), (3, 7, 50), (65, 63, 48), (9, 130, 97)])
def test_is_the_matmul_where_all_is_finite(model: Any, n: int, t: int, d: int) -> None:
    rng = np.random.default_rng(n)
    weights = rng.standard_normal((2, n, t), np.float32)
    weights[rng.random(weights.shape) < 0.5] = 0
    values = rng.standard_normal((2, t, d), np.float32)
    found = model(weights=weights, values=values)
    assert_close(found["y"], weights.astype(np.float64) @ values, length=t, scale=np.sqrt(t))
    np.testing.assert_array_equal(found["y"], found["z"])
