"""Arithmetic modulo several primes at once: what NumPy has not.

A number is a column of residues, one for each modulus, so an array has a leading axis of them. All
moduli are below 2^31: a product of two residues fits into 64 bits, and a matrix product is four of
float64, in which every number is exact. May import: numpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Residues = np.ndarray[Any, np.dtype[np.uint64]]
NDArray = np.ndarray[Any, Any]

_HALF = 16
_MASK = np.uint64((1 << _HALF) - 1)
_LONGEST = 1 << 20  # products of 32 bits that float64 sums without rounding


def column(moduli: tuple[int, ...], rank: int) -> Residues:
    """The moduli with `rank` axes behind theirs."""
    return np.array(moduli, np.uint64).reshape(-1, *[1] * rank)


def reduce(x: NDArray, moduli: tuple[int, ...]) -> Residues:
    """Residues [moduli, ...] modulo each, of unsigned integers of that shape."""
    result: Residues = x % column(moduli, x.ndim - 1)
    return result


def of_integers(x: NDArray, moduli: tuple[int, ...]) -> Residues:
    """Residues of an array of integers, which may be negative: a new leading axis."""
    wide = x.astype(np.int64)
    return np.stack([np.mod(wide, m) for m in moduli]).astype(np.uint64)


def add(a: Residues, b: Residues, moduli: tuple[int, ...]) -> Residues:
    """a + b."""
    return reduce(a + b, moduli)


def negative(a: Residues, moduli: tuple[int, ...]) -> Residues:
    """-a."""
    return reduce(column(moduli, a.ndim - 1) - a, moduli)


def multiply(a: Residues, b: Residues, moduli: tuple[int, ...]) -> Residues:
    """a * b."""
    return reduce(a * b, moduli)


def power(a: Residues, exponents: tuple[int, ...], moduli: tuple[int, ...]) -> Residues:
    """a to the power of a number of its own for each modulus, by squaring."""
    rows: list[Residues] = []
    for row, exponent, modulus in zip(a, exponents, moduli, strict=True):
        m, result, square = np.uint64(modulus), np.ones_like(row), row
        while exponent:
            if exponent & 1:
                result = result * square % m
            square = square * square % m
            exponent >>= 1
        rows.append(result)
    return np.stack(rows)


def inverse(a: Residues, moduli: tuple[int, ...]) -> Residues:
    """1 / a, by Fermat's little theorem; 0 of 0."""
    return power(a, tuple(m - 2 for m in moduli), moduli)


def matmul(a: Residues, b: Residues, moduli: tuple[int, ...]) -> Residues:
    """The matrix product over the last two axes; the axes between broadcast."""
    if b.ndim == 3 and a.ndim > 3:  # one matrix for all rows: one product of all rows
        rows = a.reshape(a.shape[0], -1, a.shape[-1])
        return matmul(rows, b, moduli).reshape(*a.shape[:-1], b.shape[-1])
    total: Residues | None = None
    for start in range(0, a.shape[-1], _LONGEST):
        part = slice(start, start + _LONGEST)
        product = _matmul(a[..., part], b[..., part, :], moduli)
        total = product if total is None else add(total, product, moduli)
    assert total is not None
    return total


def _matmul(a: Residues, b: Residues, moduli: tuple[int, ...]) -> Residues:
    rank = max(a.ndim, b.ndim)
    a, b = _deeper(a, rank), _deeper(b, rank)
    (a1, a0), (b1, b0) = _halves(a), _halves(b)

    def times(x: NDArray, y: NDArray) -> Residues:
        return reduce(np.matmul(x, y).astype(np.uint64), moduli)

    high, low = times(a1, b1), times(a0, b0)
    middle = reduce(times(a1, b0) + times(a0, b1), moduli)
    shifted = reduce(high << np.uint64(_HALF), moduli) + middle
    return reduce((reduce(shifted, moduli) << np.uint64(_HALF)) + low, moduli)


def _deeper(a: Residues, rank: int) -> Residues:
    """With axes of 1 behind that of the moduli, up to `rank`."""
    return a.reshape(a.shape[0], *[1] * (rank - a.ndim), *a.shape[1:])


def _halves(a: Residues) -> tuple[NDArray, NDArray]:
    return (a >> np.uint64(_HALF)).astype(np.float64), (a & _MASK).astype(np.float64)


def root(a: int, modulus: int) -> int | None:
    """A square root of a, where there is one; the modulus is 3 modulo 4."""
    found = pow(a, (modulus + 1) // 4, modulus)
    return found if found * found % modulus == a % modulus else None


def mixed(x: NDArray, key: int) -> Residues:
    """64 bits that depend on each bit of x and of the key: the finaliser of SplitMix64 (Steele et
    al. 2014), twice."""
    z: Residues = np.atleast_1d(x).astype(np.uint64) + np.uint64(key)  # of arrays, it may overflow
    for _ in range(2):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return z.reshape(x.shape)
