"""The error function against math.erf, within 2 units in the last place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from helpers.tolerance import UNIT, assert_within

from tfgraph.ops import FloatArray
from tfgraph.ops import erf as erf_op
from tfgraph.ops.floats import erf


def reference(x: Any) -> Any:
    return np.array([math.erf(v) for v in np.ravel(x)]).reshape(np.shape(x))


def ulps(got: Any, want: Any) -> float:
    """The largest difference in units in the last place of `want`."""
    return float(np.max(np.abs(got - want) / np.spacing(np.abs(want)), initial=0))


RNG = np.random.default_rng(0)
GRIDS = {
    "even": np.linspace(-7, 7, 70_001),
    "random": RNG.uniform(-6.5, 6.5, 50_000),
    "grid points and halves": np.arange(-1600, 1601) / 256,
    "beside grid points": np.concatenate(
        [np.nextafter(np.arange(-1600, 1601) / 256, s * np.inf) for s in (1, -1)]
    ),
    "near zero": np.concatenate([s * 10.0 ** np.linspace(-320, 0, 4001) for s in (1, -1)]),
    "where it becomes 1": np.linspace(5.7, 6.1, 8001),
    "huge": np.array([6, 27, 1e3, 1e30, 1e308, np.finfo(float).max, -40, -1e308, np.inf, -np.inf]),
    "denormal": np.array([5e-324, -5e-324, 1e-310, 2.2e-308]),
}


@pytest.mark.parametrize("name", GRIDS)
def test_within_two_ulp(name: str) -> None:
    x = GRIDS[name]
    assert ulps(erf(x), reference(x)) <= 2


def test_it_is_odd_monotone_and_bounded() -> None:
    x = np.linspace(0, 8, 100_001)
    y = erf(x)
    np.testing.assert_array_equal(erf(-x), -y)
    assert (np.diff(y) > -2 * np.spacing(1.0)).all()
    assert ((y >= 0) & (y <= 1)).all()


def test_special_values() -> None:
    y = erf(np.array([np.nan, np.inf, -np.inf, 0.0, -0.0]))
    assert np.isnan(y[0])
    np.testing.assert_array_equal(y[1:], [1, -1, 0, 0])
    np.testing.assert_array_equal(np.signbit(y[1:]), [False, True, False, True])


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 3), (2, 1, 3)], ids=str)
def test_shapes_are_kept(shape: tuple[int, ...]) -> None:
    x = RNG.normal(size=shape)
    y = erf(x)
    assert y.shape == shape
    assert ulps(y, reference(x)) <= 2


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_the_op_rounds_once(dtype: Any) -> None:
    x = np.concatenate([g[:: max(1, g.size // 2000)] for g in GRIDS.values()])
    with np.errstate(over="ignore"):
        x = np.concatenate([x, [np.nan]]).astype(dtype)
    y = erf_op(FloatArray(x))
    assert isinstance(y, FloatArray)
    assert y.data.dtype == dtype
    want = reference(x.astype(np.float64))
    with np.errstate(under="ignore"):
        # A result within 2 ulp of float64 rounds alike, but where it is next to a tie.
        rounded = want.astype(dtype)
    same = (y.data == rounded) | np.isnan(x)
    assert same.mean() > 0.9999
    assert_within(y.data, rounded, 2 * UNIT[y.data.dtype.name] * np.abs(want))
