"""Random roundings, and what the largest of a few draws says of the next.

May import: numpy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np

NDArray = np.ndarray[Any, Any]

DRAWS = 16
"""Independent sets of roundings that are carried at once."""

MISSES = 1e-7
"""How often a right result may exceed its bound: once in a hundred runs of the fuzzer over ten
thousand graphs, ten results each."""

SIZE = 1 / math.sqrt(3)
"""The standard deviation of a rounding error that is uniform within [-1, 1] units."""


@cache
def factor(draws: int = DRAWS, misses: float = MISSES) -> float:
    """How many times the largest of so many draws an error of the same law exceeds so rarely.

    For normal g, and the largest m of n more: P(|g| > c m) <= (2/pi)^(n/2) E|g|^n / c^n, since
    P(m < x) <= (x sqrt(2/pi))^n; and E|g|^n = 2^(n/2) Gamma((n+1)/2) / sqrt(pi).
    """
    moment = 2 ** (draws / 2) * math.gamma((draws + 1) / 2) / math.sqrt(math.pi)
    return float(((2 / math.pi) ** (draws / 2) * moment / misses) ** (1 / draws))


_BITS = 12


@cache
def _normal() -> NDArray:
    """Normal numbers of equal probability, in order."""
    count, normal = 1 << _BITS, NormalDist()
    return np.array([normal.inv_cdf((i + 0.5) / count) for i in range(count)])


@dataclass
class Noise:
    """Random roundings, normal and seeded, for arrays of that dtype. Equal numbers round alike, as
    they do on any machine: a rounding is a hash of the number, another one for each step and
    draw."""

    seed: int
    dtype: str = "float64"
    draws: int = DRAWS
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self._normal = _normal().astype(self.dtype)

    def of(self, y: NDArray) -> NDArray:
        """A number of mean 0 and variance 1 for each draw and element."""
        bits = np.ascontiguousarray(y, np.float32).view(np.uint32).reshape(-1)
        first, second = self.rng.integers(0, 2**32, (2, self.draws), np.uint32) | np.uint32(1)
        drawn = np.empty((self.draws, bits.size), self._normal.dtype)
        for draw in range(self.draws):  # one by one: they stay in the processor's cache
            mixed = bits * first[draw]
            mixed ^= mixed >> np.uint32(15)
            mixed *= second[draw]
            mixed >>= np.uint32(32 - _BITS)
            # Of all values of that many bits none is out of range: `clip` only spares the check.
            self._normal.take(mixed, out=drawn[draw], mode="clip")
        return drawn.reshape(self.draws, *y.shape)
