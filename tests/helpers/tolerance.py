"""How far floating-point results may be from what is expected: the one table of all tests.

An array is as near as its rounding errors let it be. Each of `length` roundings in a row errs by at
most u of its result, up or down, and so the sum of n of them is rarely beyond 4 u sqrt(n) (Higham
and Mary, A new approach to probabilistic rounding error analysis, 2019, their lambda being 4).
That is a share of the root mean square of the expected array, as in `tfgraph.api.bounds`, or of the
size of the terms, where these cancel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

NDArray = np.ndarray[Any, Any]

UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""u, the largest relative error of one rounding to nearest, by dtype (IEEE 754; bfloat16 has eight
significant bits)."""

LAMBDA = 4.0
"""How many standard deviations of a random walk of roundings are allowed; see above."""

TRANSFORMERS = 2e-5
"""Of any element of a checkpoint's outputs, against those that transformers computes in float32:
what the project promises. Absolute, as hidden states are of size 1."""

NARROW_ROUNDINGS = 24
"""Of outputs that a small model of a few layers computes in floats of 16 bits, against those in
float32: how many roundings of the largest of them."""

GELU = 4e-6
"""Of the GELU in benchmarks/numpy_bert.py, a fitted polynomial: as it says itself. Absolute."""


def relative(dtype: str, length: int = 1) -> float:
    """The share by which a result of `length` roundings in a row may be off. A sum of n products
    has n of them, an op after it one more, and layers add theirs up."""
    return float(LAMBDA * UNIT[dtype] * np.sqrt(length))


def assert_close(
    got: Any,
    expected: Any,
    *,
    length: int = 1,
    scale: float | None = None,
    dtype: str = "",
    name: str = "",
) -> None:
    """Fail unless `got` has the expected shape and is within its rounding errors of `expected`.

    NaN and infinities are expected where `expected` has them. `length` is how many roundings in a
    row, see `relative`; `scale` is the size of what is rounded, by default the root mean square of
    `expected`; `dtype` is the one computed in, by default that of `got`.
    """
    computed = dtype or str(np.asarray(got).dtype)
    if scale is None:
        finite = np.asarray(expected, np.float64)
        finite = finite[np.isfinite(finite)]
        scale = float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0
    assert_within(got, expected, relative(computed, length) * scale, name)


def assert_within(got: Any, expected: Any, bound: Any, name: str = "") -> None:
    """Fail unless |got - expected| <= bound everywhere; `bound` is absolute, one for all elements
    or one for each. For bounds that a formula gives, made of the numbers above."""
    a, b = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    what = f"{name}: " if name else ""
    assert a.shape == b.shape, f"{what}the shape is {a.shape}, expected {b.shape}"
    if not a.size:
        return
    with np.errstate(invalid="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        error = np.where(same, 0.0, np.abs(a - b))
        error = np.where(np.isnan(error), np.inf, error)
    allowed = np.broadcast_to(np.asarray(bound, np.float64), a.shape)
    wrong = ~(same | (error <= allowed))
    with np.errstate(all="ignore"):
        excess = np.where(same, 0.0, error / allowed)
    worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(excess)), a.shape))
    assert not wrong.any(), (
        f"{what}{a[worst]!s} at {list(worst)}, expected {b[worst]!s}: off by {error[worst]:.3g}, "
        f"{excess[worst]:.3g} times the bound {allowed[worst]:.3g} "
        f"({wrong.sum()} of {a.size} elements are beyond theirs)"
    )
