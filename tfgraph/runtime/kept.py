"""Arrays that a function is given at every call: looked at and made tensors once.

May import: numpy, sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from tfgraph.runtime.sizes import Port

    Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class Kept:
    """Inputs by name: states, which each call replaces or writes in place, and what stays."""

    arrays: dict[str, Array]
    """They lie where the function has them, which need not be the CPU's memory."""
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    """The sizes that their shapes tell."""
    others: tuple[Port, ...] = ()
    """The inputs that are not among them."""
    arguments: list[Any] = field(default_factory=list[Any])
    """Of all inputs in order, those of these arrays as compiled code takes them, else None."""
    in_place: bool = False
    """Whether a call has shown that the states are written where they lie."""
