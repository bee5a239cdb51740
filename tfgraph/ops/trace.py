"""The traced domain: applying an op to a `Traced` value adds a node to the graph being built.

May import: array, refuse, define, ir.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfgraph.ir import Dim, Exact, Mask, Value, exact
from tfgraph.ops.array import Array
from tfgraph.ops.define import OpDef
from tfgraph.ops.refuse import Refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfgraph.ir import DimLike, DType, ExactLike, TensorType
    from tfgraph.ops.builder import Builder


@dataclass(frozen=True, eq=False)
class Traced(Refuse, Array):
    """A value of a graph that is being built. Python operators apply the ops of their names."""

    builder: Builder
    value: Value

    @property
    def type(self) -> TensorType:
        """The value's type."""
        return self.value.type

    def apply(self, definition: OpDef, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        """Add a node."""
        return self.builder.emit(definition, operands, attrs)

    def _emit(self, name: str, *operands: Any, **attrs: Any) -> Any:
        return self.builder.apply(name, self, *operands, **attrs)

    def like(self, value: ExactLike) -> Any:
        """The exact constant itself: scalars are operands."""
        return exact(value)

    def unary(self, f: str) -> Any:
        """The op of that name."""
        return self._emit(f)

    def binary(self, f: str, other: Any) -> Any:
        """The op of that name."""
        return self._emit(f, other)

    def binary_after(self, f: str, first: ExactLike) -> Any:
        """The op of that name, whose first operand is the scalar."""
        return self.builder.apply(f, first, self)

    def select(self, yes: Any, no: Any) -> Any:
        """The op `where`; a scalar becomes a tensor of rank 0."""
        dtype = (yes if isinstance(yes, Traced) else no).dtype

        def whole(x: Any) -> Any:
            if isinstance(x, Traced):
                return x
            return self.builder.apply("full", shape=(), value=x, dtype=dtype)

        return self._emit("where", whole(yes), whole(no))

    def hide(self, allowed: Any) -> Any:
        """The op `mask` with a dense mask."""
        from tfgraph.ir.mask import dense

        return self._emit("mask", dense(allowed))

    def empty(self, axis: int) -> Any:
        """The op `empty`."""
        return self._emit("empty", axis=axis)

    def reduce(self, f: str, axis: int) -> Any:
        """The op of that name, keeping the axis."""
        return self._emit(f, axis=axis, keepdims=True)

    def scan(self, f: str, axis: int) -> Any:
        """The op `cumsum`."""
        return self._emit("cumsum", axis=axis)

    def matmul(self, other: Any) -> Any:
        """The op `matmul`."""
        return self._emit("matmul", other)

    def weighted_sum(self, values: Any) -> Any:
        """The op `weighted_sum`."""
        return self._emit("weighted_sum", values)

    def reshape(self, shape: Sequence[DimLike]) -> Any:
        """The op `reshape`."""
        return self._emit("reshape", shape=tuple(shape))

    def transpose(self, perm: Sequence[int]) -> Any:
        """The op `transpose`."""
        return self._emit("transpose", perm=tuple(perm))

    def broadcast(self, shape: Sequence[DimLike]) -> Any:
        """The op `broadcast_to`."""
        return self._emit("broadcast_to", shape=tuple(shape))

    def slice(self, axis: int, start: DimLike, stop: DimLike) -> Any:
        """The op `slice`."""
        return self._emit("slice", axis=axis, start=start, stop=stop)

    def join(self, others: Sequence[Any], axis: int) -> Any:
        """The op `concat`."""
        return self._emit("concat", *others, axis=axis)

    def take(self, indices: Any, axis: int) -> Any:
        """The op `take`."""
        return self._emit("take", indices, axis=axis)

    def take_at(self, indices: Sequence[Any]) -> Any:
        """The op `take_at`."""
        return self._emit("take_at", *indices)

    def topk(self, k: int) -> Any:
        """The op `topk`."""
        return self._emit("topk", k=k)

    def iota(self, length: DimLike) -> Any:
        """The op `iota`, in the same graph."""
        return self.builder.apply("iota", length=length)

    def cast(self, dtype: DType) -> Any:
        """The op `cast`."""
        return self._emit("cast", dtype=dtype)

    def __add__(self, other: Traced | ExactLike) -> Any:
        return self.binary("add", other)

    def __radd__(self, other: ExactLike) -> Any:
        return self.binary_after("add", other)

    def __sub__(self, other: Traced | ExactLike) -> Any:
        return self.binary("sub", other)

    def __rsub__(self, other: ExactLike) -> Any:
        return self.binary_after("sub", other)

    def __mul__(self, other: Traced | ExactLike) -> Any:
        return self.binary("mul", other)

    def __rmul__(self, other: ExactLike) -> Any:
        return self.binary_after("mul", other)

    def __truediv__(self, other: Traced | ExactLike) -> Any:
        return self.binary("div", other)

    def __rtruediv__(self, other: ExactLike) -> Any:
        return self.binary_after("div", other)

    def __matmul__(self, other: Traced) -> Any:
        return self.matmul(other)

    def __pow__(self, other: Traced | ExactLike) -> Any:
        return self.binary("pow", other)

    def __rpow__(self, other: ExactLike) -> Any:
        return self.binary_after("pow", other)

    def __neg__(self) -> Any:
        return self.unary("neg")

    def __abs__(self) -> Any:
        return self.unary("abs")

    def __lt__(self, other: Traced | ExactLike) -> Any:
        return self.binary("less", other)

    def __gt__(self, other: Traced | ExactLike) -> Any:
        return self.builder.apply("less", other, self)

    def __repr__(self) -> str:
        return f"<traced {self.value}: {self.type}>"


def map_traced(operand: Any, f: Callable[[Any], Any]) -> Any:
    """`f` of a tensor operand or of each tensor in a mask."""
    if isinstance(operand, Mask):
        return operand.map(f)
    return operand if operand is None or isinstance(operand, Exact | Dim) else f(operand)
