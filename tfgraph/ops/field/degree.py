"""How high the polynomials are that an array's elements are: what a collision's probability needs.

An element is a quotient, polynomial over polynomial. All elements of an array are brought over one
common denominator, a product of factors that are counted once however often arrays meet again: so
sums over rows of one softmax stay low. May import: the standard library.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_numbers = itertools.count()


@dataclass(frozen=True)
class Degree:
    """`top`: the highest degree of a numerator; `factors`: those of the denominator, by number,
    each with its degree and its power."""

    top: int = 0
    factors: Mapping[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])

    @property
    def bottom(self) -> int:
        """The degree of the common denominator."""
        return sum(degree * power for degree, power in self.factors.values())

    @property
    def total(self) -> int:
        """The degree of the polynomial that is zero where two such elements are equal."""
        return self.top + self.bottom

    def plus(self, other: Degree) -> Degree:
        """Of a sum, or of a choice between two."""
        common = _merged(self, other, max)
        bottom = Degree(0, common).bottom
        top = max(self.top + bottom - self.bottom, other.top + bottom - other.bottom)
        return Degree(top, common)

    def times(self, other: Degree) -> Degree:
        """Of a product."""
        return Degree(self.top + other.top, _merged(self, other, int.__add__))

    def inverse(self, count: int) -> Degree:
        """Of one over each of `count` elements."""
        if self.top == 0:
            return self
        product = self.top * count
        return Degree(self.bottom + product - self.top, {next(_numbers): (product, 1)})


CONSTANT, VARIABLE = Degree(0), Degree(1)


def _merged(a: Degree, b: Degree, combine: Callable[[int, int], int]) -> dict[int, tuple[int, int]]:
    merged = dict(a.factors)
    for number, (degree, power) in b.factors.items():
        mine = merged.get(number, (degree, 0))[1]
        merged[number] = degree, combine(mine, power)
    return merged
