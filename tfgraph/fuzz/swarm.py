"""What the graphs of one family are drawn from: some of the ops, blocks, masks and sizes.

Neighbouring seeds are a family. Its graphs have few kernels in common with those of other families
and many with each other, which makes a batch quick to compile; and a graph of few features has each
of them more often, and next to itself, than one of all features. Groce et al., Swarm testing, 2012.
May import: ops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

FAMILY = 25
"""Graphs of a family."""

HEADS = ((1, 1), (2, 2), (4, 4), (4, 2), (4, 1), (3, 1))
"""Heads of the queries, and of the keys and values, which may be fewer."""

T = TypeVar("T")


@dataclass(frozen=True)
class Swarm:
    """The choices of a family: its number, the width of most tensors, and two numbers of heads."""

    number: int
    width: int
    heads: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, seed: int) -> Swarm:
        """That of the family to which a seed belongs."""
        number = seed // FAMILY
        rng = np.random.default_rng([number, 0])
        width = int(rng.choice((8, 24)))
        few = rng.permutation(len(HEADS))[:2]
        return cls(number, width, tuple(HEADS[int(i)] for i in few))

    def some(self, what: Sequence[T], count: int) -> list[T]:
        """`count` of the things, the same ones for the whole family."""
        order = np.random.default_rng([self.number, 1, len(what)]).permutation(len(what))
        return [what[int(i)] for i in order[:count]]
