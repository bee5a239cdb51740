"""`Array`: what the body of an op may do with a tensor, in every domain.

Each domain (floats, traced values, a finite field, error bounds, ...) implements these primitives;
`xp` gives them their usual names. Bodies ask for shapes only symbolically and never branch on
values. May import: ir.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Self

    from tfgraph.ir import Dim, DimLike, DType, ExactLike, TensorType
    from tfgraph.ops.define import OpDef


class Array(ABC):
    """A tensor in some domain."""

    __array_priority__ = 1000  # ndarray + Array asks the Array

    @property
    @abstractmethod
    def type(self) -> TensorType:
        """The dtype and shape; the shape may be symbolic."""

    def apply(self, definition: OpDef, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        """Apply an op to operands of this domain: run its body, unless a domain overrides."""
        return definition.body(*operands, **attrs)

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The shape."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type.dtype

    @abstractmethod
    def like(self, value: ExactLike) -> Self:
        """A scalar constant of this array's domain and dtype."""

    @abstractmethod
    def unary(self, f: str) -> Self:
        """neg, abs, exp, log, sqrt, sin, cos, tanh, erf, floor, logical_not; elementwise."""

    @abstractmethod
    def binary(self, f: str, other: Any) -> Self:
        """add, sub, mul, div, pow, maximum, minimum, equal, less, logical_and, logical_or;
        elementwise, where a dimension of 1 broadcasts."""

    def binary_after(self, f: str, first: ExactLike) -> Self:
        """`binary` of a scalar and this array, in that order."""
        return self.like(first).binary(f, self)

    @abstractmethod
    def select(self, yes: Any, no: Any) -> Self:
        """`yes` where this bool array is true, else `no`; both broadcast."""

    @abstractmethod
    def hide(self, allowed: Any) -> Self:
        """This array where `allowed`, else -inf. The only source of -inf."""

    @abstractmethod
    def empty(self, axis: int) -> Self:
        """Whether all along `axis` is -inf; that axis stays, with size 1."""

    @abstractmethod
    def reduce(self, f: str, axis: int) -> Self:
        """sum, mean or max along `axis`, which stays, with size 1."""

    @abstractmethod
    def scan(self, f: str, axis: int) -> Self:
        """sum: the running sum along `axis`, each element included in its own."""

    @abstractmethod
    def matmul(self, other: Any) -> Self:
        """The matrix product over the last two axes; leading axes broadcast."""

    def weighted_sum(self, values: Any) -> Self:
        """`matmul`, but a weight of 0 takes nothing from its value, be that NaN or infinite."""
        return self.matmul(values)  # the same in a domain where all numbers are finite

    @abstractmethod
    def reshape(self, shape: Sequence[DimLike]) -> Self:
        """The same elements in row-major order under another shape."""

    @abstractmethod
    def transpose(self, perm: Sequence[int]) -> Self:
        """Axis i of the result is axis perm[i]."""

    @abstractmethod
    def broadcast(self, shape: Sequence[DimLike]) -> Self:
        """Axes of size 1 repeated, and axes added in front, up to `shape`."""

    @abstractmethod
    def slice(self, axis: int, start: DimLike, stop: DimLike) -> Self:
        """Elements start <= i < stop along `axis`."""

    @abstractmethod
    def join(self, others: Sequence[Any], axis: int) -> Self:
        """This array followed by the others along `axis`."""

    @abstractmethod
    def take(self, indices: Any, axis: int) -> Self:
        """The slices at integer `indices` along `axis`, which the indices' shape replaces."""

    @abstractmethod
    def take_at(self, indices: Sequence[Any]) -> Self:
        """The elements, or slices, at an integer index for each of the first axes; the indices
        broadcast together, and their common shape replaces those axes."""

    @abstractmethod
    def topk(self, k: int) -> tuple[Self, Self]:
        """The k largest along the last axis, descending, and their indices; ties by index."""

    @abstractmethod
    def iota(self, length: DimLike) -> Self:
        """0, 1, ..., length - 1 as int64, in this array's domain."""

    @abstractmethod
    def cast(self, dtype: DType) -> Self:
        """Converted to another element type."""
