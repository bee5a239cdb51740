"""One draw: the primes, the functions drawn at random, and what was asked of them.

May import: modular, degree, ir; numpy.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.ops.field import modular

if TYPE_CHECKING:
    from tfgraph.ir import Exact
    from tfgraph.ops.field.degree import Degree
    from tfgraph.ops.field.modular import NDArray, Residues

# p = 2 q + 1, both prime, the five largest p of 31 bits for which the square roots of the first
# eight primes exist modulo both: so constants such as rsqrt(96) are numbers here, whose square is
# 1/96. An exponent lives modulo q, and exp(x) = g^x modulo p, g of order q, keeps exp(x + y) =
# exp(x) exp(y): as Mirage has it (Wu et al. 2024).
PRIMES = (
    (2147024879, 1073512439),
    (2145341519, 1072670759),
    (2137043999, 1068521999),
    (2136629039, 1068314519),
    (2135316959, 1067658479),
)
FEW, MANY = 3, len(PRIMES)
"""How many a draw takes: what is deep has polynomials of so high a degree that few say little."""

_WINDOW = 15  # bits of an exponent looked up at once


class NotInField(Exception):
    """Something has no meaning here; the message says what."""


class Redraw(Exception):
    """This draw says nothing: it divided by zero, or left no row a choice of keys."""


class Draw:
    """Random functions from a seed, and a count of what would have to collide for two different
    graphs to seem equal."""

    def __init__(self, seed: int, exponents: bool = True, primes: int = FEW) -> None:
        """Without `exponents` inputs have no residues modulo each q, which only exp asks for: its
        operands are then random numbers."""
        self.p, self.q = (moduli[:primes] for moduli in zip(*PRIMES, strict=True))
        self._exponents = exponents
        self._rng = np.random.default_rng(seed)
        self._keys = [int(k) for k in self._rng.integers(0, 1 << 63, 2 * MANY)]
        self._tables = [self._powers(p) for p in self.p]
        self.calls: Counter[str] = Counter()
        """How many elements each random function was asked for."""
        self.degree = 1
        """The highest degree of an operand of one, or of what is compared."""
        self.masked = self.chosen = False
        """Whether there was a mask, and whether it left some row two keys."""

    def numbers(self, shape: tuple[int, ...]) -> tuple[Residues, Residues | None]:
        """Independent uniform elements, modulo each p and each q."""
        return self._uniform(self.p, shape), self._uniform(
            self.q, shape
        ) if self._exponents else None

    def integers(self, high: int, shape: tuple[int, ...]) -> NDArray:
        """Independent uniform integers below `high`."""
        return self._rng.integers(0, high, shape)

    def opaque(self, name: str, p: Residues, degree: Degree) -> tuple[Residues, Residues]:
        """A random function of that name, of each element."""
        self._asked(name, p, degree)
        key = zlib.crc32(name.encode())
        found = [
            modular.mixed(self._digest(p, key), self._keys[i] ^ (i << 40))
            for i in range(2 * len(self.p))
        ]
        both = modular.reduce(np.stack(found), self.p + self.q)
        return both[: len(self.p)], both[len(self.p) :]

    def order(self, p: Residues, degree: Degree) -> Residues:
        """A random rank of each element: less and max compare these."""
        self._asked("order", p, degree)
        return self._digest(p, 0)

    def exp(self, q: Residues, degree: Degree) -> Residues:
        """g^x modulo each p."""
        self._asked("exp", q, degree)
        low, high = (q & np.uint64((1 << _WINDOW) - 1)), q >> np.uint64(_WINDOW)
        rows = [
            small[low[i]] * large[high[i]] % np.uint64(self.p[i])
            for i, (small, large) in enumerate(self._tables)
        ]
        return np.stack(rows)

    def constant(self, value: Exact) -> tuple[Residues, Residues]:
        """An exact constant, as the expression that it is."""
        p, q = ([_rational(value, m) for m in moduli] for moduli in (self.p, self.q))
        for function, argument in value.calls:
            if function in ("sqrt", "rsqrt"):
                factors = [self._root(argument, m, function == "rsqrt") for m in self.p + self.q]
            elif function == "exp":
                factors = self._constant_exp(argument.numerator, argument.denominator)
            else:
                factors = self._constant("log", argument.numerator, argument.denominator)
            p = [x * f % m for x, f, m in zip(p, factors, self.p, strict=False)]
            q = [x * f % m for x, f, m in zip(q, factors[len(self.p) :], self.q, strict=True)]
        return np.array(p, np.uint64), np.array(q, np.uint64)

    @property
    def error(self) -> float:
        """The probability that this draw takes two different graphs for equal: that two of the
        calls of one random function, or two results, have equal operands which differ as
        polynomials. Independent modulo each prime."""
        pairs = 1 + sum(n * (n - 1) / 2 for n in self.calls.values())
        return float(min(1.0, pairs * math.prod(min(1.0, self.degree / q) for q in self.q)))

    def see(self, degree: Degree) -> None:
        """Something of that degree is compared."""
        self.degree = max(self.degree, degree.total)

    def _asked(self, name: str, x: Residues, degree: Degree) -> None:
        self.calls[name] += x[0].size
        self.see(degree)

    def _digest(self, p: Residues, key: int) -> Residues:
        digest = np.zeros(p.shape[1:], np.uint64)
        for i, row in enumerate(p):
            digest = modular.mixed(digest ^ row, self._keys[i] ^ key)
        return digest

    def _uniform(self, moduli: tuple[int, ...], shape: tuple[int, ...]) -> Residues:
        return np.stack([self._rng.integers(0, m, shape, np.uint64) for m in moduli])

    def _powers(self, p: int) -> tuple[Residues, Residues]:
        """g^i and g^(2^window i) for all i that an exponent's two halves can be. A square other
        than 1 has order q."""
        g = int(self._rng.integers(2, p - 1)) ** 2 % p
        small, large = (_geometric(pow(g, step, p), 1 << _WINDOW, p) for step in (1, 1 << _WINDOW))
        return small, large

    def _root(self, value: Any, modulus: int, inverted: bool) -> int:
        """The square root of a rational modulo a prime; of a prime factor that has none modulo some
        of them, a random number."""
        top, bottom = value.numerator, value.denominator
        result = 1
        for number, up in ((top, True), (bottom, False)):
            for factor, count in _factors(number):
                found = [modular.root(factor, m) for m in self.p + self.q]
                drawn = self._constant("sqrt", factor, 1)
                roots = drawn if None in found else found
                one = roots[(self.p + self.q).index(modulus)]
                assert one is not None
                one = pow(one, count, modulus)
                result = result * (one if up != inverted else pow(one, -1, modulus)) % modulus
        return result

    def _constant(self, name: str, top: int, bottom: int) -> list[int]:
        """A random number for a function of a rational: the same each time in this draw."""
        key = zlib.crc32(f"{name} {top}/{bottom}".encode())
        return [
            int(modular.mixed(np.array(key), self._keys[i])) % m
            for i, m in enumerate(self.p + self.q)
        ]

    def _constant_exp(self, top: int, bottom: int) -> list[int]:
        exponents = [top * pow(bottom, -1, q) % q for q in self.q]
        column = np.array(exponents, np.uint64).reshape(-1, 1)
        from tfgraph.ops.field.degree import CONSTANT

        p = self.exp(column, CONSTANT)
        _, q = self.opaque("exp modulo q", p, CONSTANT)
        return [int(x) for x in (*p[:, 0], *q[:, 0])]


def _rational(value: Exact, modulus: int) -> int:
    return value.factor.numerator * pow(value.factor.denominator, -1, modulus) % modulus


def _geometric(ratio: int, count: int, modulus: int) -> Residues:
    """1, r, r^2, ... modulo m."""
    m, powers = np.uint64(modulus), np.ones(1, np.uint64)
    step = np.uint64(ratio)
    while powers.size < count:
        powers = np.concatenate([powers, powers * step % m])
        step = step * step % m
    return powers[:count]


@cache
def _factors(number: int) -> list[tuple[int, int]]:
    """The prime factors, with their powers; what trial division leaves above a million counts as
    one."""
    found: list[tuple[int, int]] = []
    divisor = 2
    while divisor * divisor <= number and divisor < 1_000_000:
        power = 0
        while number % divisor == 0:
            number, power = number // divisor, power + 1
        if power:
            found.append((divisor, power))
        divisor += 1
    return [*found, (number, 1)] if number > 1 else found
