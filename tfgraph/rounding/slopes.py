"""Derivatives of primitives, for duals. May import: numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

NDArray = np.ndarray[Any, Any]

UNARY: Mapping[str, Callable[[NDArray, NDArray], NDArray]] = {
    "exp": lambda x, y: y,
    "log": lambda x, y: 1 / x,
    "sqrt": lambda x, y: np.where(y > 0, 0.5 / y, 0).astype(y.dtype),
    "sin": lambda x, y: np.cos(x),
    "cos": lambda x, y: -np.sin(x),
    "tanh": lambda x, y: 1 - y * y,
    "erf": lambda x, y: (2 / np.sqrt(np.pi) * np.exp(-x * x)).astype(y.dtype),
}
"""The derivative at x of f with y = f(x)."""

BINARY: Mapping[str, Callable[[NDArray, NDArray, NDArray], tuple[Any, Any]]] = {
    "add": lambda a, b, y: (1, 1),
    "sub": lambda a, b, y: (1, -1),
    "mul": lambda a, b, y: (b, a),
    "div": lambda a, b, y: (1 / b, -y / b),
    "pow": lambda a, b, y: (b * np.power(a, b - 1), y * np.log(np.abs(a))),
    "maximum": lambda a, b, y: (a >= b, a < b),
    "minimum": lambda a, b, y: (a <= b, a > b),
}
"""The derivatives of y = f(a, b) by a and by b."""


def total(a: NDArray | None, of_a: Any, b: NDArray | None, of_b: Any) -> NDArray | None:
    """a * of_a + b * of_b, where None is 0."""
    if a is None:
        return None if b is None else b * of_b
    return np.asarray(a * of_a if b is None else a * of_a + b * of_b)


def of_sqrt(x: NDArray, y: NDArray, tangent: NDArray) -> NDArray:
    """sqrt(x + |t|) - sqrt(x), signed: not to first order, which is infinite at 0."""
    size = np.abs(tangent)
    return np.where(size > 0, tangent / (y + np.sqrt(x + size)), 0).astype(y.dtype)
