"""Arrays that a function is given at every call: looked at and made tensors once, and again where
one is replaced or changes what it is.

May import: place, sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgraph.runtime.place import Place
    from tfgraph.runtime.sizes import Port


@dataclass
class Kept:
    """Inputs by name: states, which each call replaces or writes in place, and what stays. Others
    may take their places between calls."""

    arrays: dict[str, Any]
    """They lie where the function has them, which need not be the CPU's memory."""
    known: Known | None = None
    """What the call before has found of them."""


@dataclass
class Known:
    """What was checked of arrays together with all other inputs, and holds as long as they stay."""

    arrays: dict[str, Any]
    place: Place
    sizes: dict[str, int]
    """The sizes that their shapes tell."""
    others: tuple[Port, ...]
    """The inputs to be checked at every call."""
    arguments: list[Any]
    """Of all inputs in order, those of these arrays that compiled code reads and writes where they
    lie, as it takes them; None of the others."""
    in_place: bool = False
    """Whether a call has shown that the states are written where they lie."""

    def __post_init__(self) -> None:
        self._looks = [(array, self.place.look(array)) for array in self.arrays.values()]

    def holds(self, arrays: Mapping[str, Any], dims: Mapping[str, int]) -> bool:
        """Whether these are the arrays, and still as they were, and `dims` says nothing of sizes
        that they tell."""
        return (
            arrays.keys() == self.arrays.keys()
            and all(arrays[name] is array for name, array in self.arrays.items())
            and all(self.place.look(array) == look for array, look in self._looks)
            and self.sizes.keys().isdisjoint(dims)
        )
