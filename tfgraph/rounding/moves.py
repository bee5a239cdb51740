"""What every domain of errors does alike: it moves what it carries as it moves the elements.

May import: ops.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tfgraph.ops import Array, FloatArray
from tfgraph.ops.floats import sizes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tfgraph.ir import DimLike

    NDArray = np.ndarray[Any, Any]


class Moves(Array):
    """The movements of an array of `data` by one function for it and for what goes with it."""

    data: NDArray

    @abstractmethod
    def moved(self, f: Callable[[NDArray, int], NDArray]) -> Self:
        """`f` of the elements; it is told how many axes are in front of theirs."""

    def reshape(self, shape: Sequence[DimLike]) -> Self:
        """np.reshape."""
        sizes = sizes_of(shape)
        return self.moved(lambda x, lead: x.reshape((*x.shape[:lead], *sizes)))

    def transpose(self, perm: Sequence[int]) -> Self:
        """np.transpose."""
        return self.moved(lambda x, lead: x.transpose(*range(lead), *(p + lead for p in perm)))

    def broadcast(self, shape: Sequence[DimLike]) -> Self:
        """np.broadcast_to."""
        sizes = sizes_of(shape)

        def wide(x: NDArray, lead: int) -> NDArray:
            ones = [1] * (len(sizes) - (x.ndim - lead))
            shaped = x.reshape((*x.shape[:lead], *ones, *x.shape[lead:]))
            return np.broadcast_to(shaped, (*x.shape[:lead], *sizes))

        return self.moved(wide)

    def slice(self, axis: int, start: DimLike, stop: DimLike) -> Self:
        """A window along one axis."""
        first, last = sizes_of((start, stop))
        at = axis % self.data.ndim

        def cut(x: NDArray, lead: int) -> NDArray:
            return x[(*[slice(None)] * (lead + at), slice(first, last))]

        return self.moved(cut)

    def take(self, indices: Any, axis: int) -> Self:
        """np.take; an index out of range raises IndexError, as it does in floats."""
        at = axis % self.data.ndim
        FloatArray(np.empty(self.data.shape, np.bool_)).take(FloatArray(indices.data), at)
        return self.moved(lambda x, lead: np.take(x, indices.data, axis=at + lead))

    def take_at(self, indices: Sequence[Any]) -> Self:
        """NumPy's indexing by arrays; errors are those of `take`."""
        FloatArray(np.empty(self.data.shape, np.bool_)).take_at(
            [FloatArray(i.data) for i in indices]
        )
        places: list[Any] = [i.data for i in indices]
        return self.moved(lambda x, lead: x[(*[slice(None)] * lead, *places)])
