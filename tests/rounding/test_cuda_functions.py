"""What kernels for CUDA declare of functions covers all that NVIDIA allows them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.tolerance import UNIT

from tfgraph.backends.tvm.cuda.rounding import FUNCTIONS, ULPS

if TYPE_CHECKING:
    from collections.abc import Callable

EXACT: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf),
    "sin": np.sin,
    "cos": np.cos,
    "log": lambda x: np.log(np.abs(x)),
    "pow": lambda x: np.abs(x) ** 1.7,
}


@pytest.mark.parametrize("name", EXACT)
def test_results_as_far_from_the_nearest_as_is_allowed(name: str) -> None:
    """Where a number's last place is largest beside it, just above a power of 2, too."""
    assert ULPS.keys() == EXACT.keys()
    x = np.random.default_rng(5).uniform(-20, 20, 20_000).astype(np.float32)
    want = EXACT[name](x.astype(np.float64))
    want = want[np.abs(want) > np.finfo(np.float32).tiny]
    for direction in (np.float32(-np.inf), np.float32(np.inf)):
        found = want.astype(np.float32)
        for _ in range(ULPS[name]):
            found = np.nextafter(found, direction)
        error = np.abs(found.astype(np.float64) - want) / (UNIT["float32"] * np.abs(want))
        assert error.max() <= FUNCTIONS[name].relative
        assert error.max() > FUNCTIONS[name].relative - 1.1, "more is declared than is needed"
