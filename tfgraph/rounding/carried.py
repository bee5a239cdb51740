"""How far a function's result moves if its operands do: in full, not to first order.

Every function takes values, results and the errors of operands (None: exact), and gives a bound of
the error of the result. May import: numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

NDArray = np.ndarray[Any, Any]
Error = NDArray | None


def gamma(depth: float, unit: float) -> float:
    """gamma_h = h u / (1 - h u), what h roundings in a row do (Higham 2002, lemma 3.1)."""
    return depth * unit / (1 - depth * unit) if depth * unit < 1 else np.inf


def both(a: Error, b: Error) -> Any:
    """The sum of two errors."""
    if a is None or b is None:
        return b if a is None else a
    return a + b


def larger(a: Error, b: Error) -> Any:
    """The larger of two errors."""
    if a is None or b is None:
        return b if a is None else a
    return np.maximum(a, b)


def times(
    a: NDArray, b: NDArray, ea: Error, eb: Error, product: Callable[[NDArray, NDArray], NDArray]
) -> Error:
    """The error of a product: (|a| + ea)(|b| + eb) - |a||b|, for sizes a and b."""
    if ea is None:
        return None if eb is None else product(a, np.broadcast_to(eb, b.shape))
    moved = product(np.broadcast_to(ea, a.shape), b)
    return moved if eb is None else moved + product(a + ea, np.broadcast_to(eb, b.shape))


def _mul(a: NDArray, b: NDArray, y: NDArray, ea: Error, eb: Error, least: float) -> Error:
    return times(np.abs(a), np.abs(b), ea, eb, np.multiply)


def _div(a: NDArray, b: NDArray, y: NDArray, ea: Error, eb: Error, least: float) -> Error:
    """(ea + |y| eb) / (|b| - eb); a divisor is never below `least`."""
    if ea is None and eb is None:
        return None
    zero: NDArray = np.zeros(())
    ea, eb = zero if ea is None else ea, zero if eb is None else eb
    below = np.maximum(np.abs(b) - eb, max(least, 0.0))
    moved = np.where(eb > 0, np.abs(y) * eb, 0.0) + ea
    return np.asarray(np.where(below > 0, moved / below, np.where(moved > 0, np.inf, 0.0)))


def _pow(a: NDArray, b: NDArray, y: NDArray, ea: Error, eb: Error, least: float) -> Error:
    """Between the powers of a - ea and of a + ea."""
    if eb is not None and np.any(eb > 0):
        return np.full(y.shape, np.inf)
    if ea is None:
        return None
    size = np.abs(a)
    up = np.abs(np.power(size + ea, b) - np.abs(y))
    down = np.abs(np.power(np.maximum(size - ea, 0), b) - np.abs(y))
    whole = (b == np.floor(b)) & (b >= 0)
    # Below 0 an even power is as large, an odd one of the other sign, and a fraction is none.
    across = np.where(whole, up + np.abs(y), np.inf)
    return np.where((size > ea) | (ea == 0), np.maximum(up, down), across)


def _add(a: NDArray, b: NDArray, y: NDArray, ea: Error, eb: Error, least: float) -> Error:
    total: Error = both(ea, eb)
    return total


BINARY: Mapping[str, Callable[[NDArray, NDArray, NDArray, Error, Error, float], Error]] = {
    "add": _add,
    "sub": _add,
    "mul": _mul,
    "div": _div,
    "pow": _pow,
}
"""f(a, b, y, ea, eb, least b) for y = f(a, b)."""


def _exp(x: NDArray, y: NDArray, e: NDArray, least: float) -> NDArray:
    return np.where(y > 0, y * np.expm1(e), np.exp(x + e))


def _log(x: NDArray, y: NDArray, e: NDArray, least: float) -> NDArray:
    return np.where(x > e, -np.log1p(-e / x), np.where(e > 0, np.inf, 0.0))


def _sqrt(x: NDArray, y: NDArray, e: NDArray, least: float) -> NDArray:
    """What is not below 0 is taken as 0 where its error reaches below."""
    low = np.sqrt(np.maximum(x - e, max(least, 0.0)))
    moved = np.maximum(e / (np.sqrt(x + e) + y), np.minimum(e / (y + low), y))
    return np.where(e > 0, np.where((x >= e) | (least >= 0), moved, np.inf), 0.0)


def _wave(x: NDArray, y: NDArray, e: NDArray, least: float) -> NDArray:
    moved: NDArray = np.minimum(e, 2.0)
    return moved


def _tanh(x: NDArray, y: NDArray, e: NDArray, least: float) -> NDArray:
    nearest = np.tanh(np.maximum(np.abs(x) - e, 0))
    moved: NDArray = np.minimum(e * (1 - nearest * nearest), 2.0)
    return moved


def _erf(x: NDArray, y: NDArray, e: NDArray, least: float) -> NDArray:
    nearest = np.maximum(np.abs(x) - e, 0)
    slope = 2 / np.sqrt(np.pi) * np.exp(-nearest * nearest)
    moved: NDArray = np.minimum(e * slope, 2.0)
    return moved


def _floor(x: NDArray, y: NDArray, e: NDArray, least: float) -> NDArray:
    return np.asarray(np.floor(x + e) - np.floor(x - e))


UNARY: Mapping[str, Callable[[NDArray, NDArray, NDArray, float], NDArray]] = {
    "exp": _exp,
    "log": _log,
    "sqrt": _sqrt,
    "sin": _wave,
    "cos": _wave,
    "tanh": _tanh,
    "erf": _erf,
    "floor": _floor,
}
"""f(x, y, e, least x) for y = f(x)."""

SLOPES: Mapping[str, Callable[[NDArray, NDArray], NDArray]] = {
    "exp": lambda x, y: y,
    "sqrt": lambda x, y: 0.5 / y,
    "log": lambda x, y: 1 / x,
    "sin": lambda x, y: np.cos(x),
    "cos": lambda x, y: np.sin(x),
    "tanh": lambda x, y: 1 - y * y,
    "erf": lambda x, y: 2 / np.sqrt(np.pi) * np.exp(-x * x),
}
"""The derivative of f at x, where y = f(x)."""
