"""Element types and tensor types. May import: dim, errors."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError, nearest
from tfgraph.ir.dim import Dim, as_dim

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfgraph.ir.dim import DimLike


class DType(Enum):
    """An element type; the value is its NumPy name, `short` its name in the textual IR."""

    float64 = "float64"
    float32 = "float32"
    float16 = "float16"
    bfloat16 = "bfloat16"
    int64 = "int64"
    int32 = "int32"
    int8 = "int8"
    uint8 = "uint8"
    int4 = "int4"
    bool_ = "bool"

    @property
    def short(self) -> str:
        """The name in the textual IR: f32, i64, bool."""
        return _SHORT[self]

    @property
    def is_float(self) -> bool:
        """True for floating point types."""
        return self.value.startswith(("float", "bfloat"))

    @property
    def is_int(self) -> bool:
        """True for integer types, bool not among them."""
        return self.value.startswith(("int", "uint"))

    @property
    def bits(self) -> int:
        """The width of one element in bits; a bool takes a byte."""
        digits = "".join(c for c in self.value if c.isdigit())
        return int(digits) if digits else 8

    def __str__(self) -> str:
        return self.short


_SHORT = {
    DType.float64: "f64",
    DType.float32: "f32",
    DType.float16: "f16",
    DType.bfloat16: "bf16",
    DType.int64: "i64",
    DType.int32: "i32",
    DType.int8: "i8",
    DType.uint8: "u8",
    DType.int4: "i4",
    DType.bool_: "bool",
}
_BY_NAME = {**{d.short: d for d in DType}, **{d.value: d for d in DType}}
# What other languages and libraries call a type, where the spelling alone would mislead.
_ELSEWHERE = {
    "float": DType.float32,
    "single": DType.float32,
    "double": DType.float64,
    "half": DType.float16,
    "int": DType.int64,
    "long": DType.int64,
    "byte": DType.uint8,
}


def dtype(name: str | DType) -> DType:
    """The element type called `name` ("f32" or "float32"). Raises TfgraphError if there is none."""
    if isinstance(name, DType):
        return name
    found = _BY_NAME.get(name)
    if found is None:
        known = _ELSEWHERE.get(name)
        hint = f"did you mean '{known.value}'?" if known else nearest(name, _BY_NAME)
        hint = hint or f"one of {', '.join(d.short for d in DType)}"
        raise TfgraphError(f"unknown dtype '{name}'", hint=hint)
    return found


@dataclass(frozen=True)
class TensorType:
    """A dtype and a shape; each dimension is a `Dim`."""

    dtype: DType
    shape: tuple[Dim, ...]

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def with_shape(self, shape: Iterable[DimLike]) -> TensorType:
        """The same dtype with another shape."""
        return TensorType(self.dtype, tuple(as_dim(d) for d in shape))

    def with_dtype(self, other: DType) -> TensorType:
        """The same shape with another dtype."""
        return TensorType(other, self.shape)

    def __str__(self) -> str:
        return f"{self.dtype.short}[{','.join(map(str, self.shape))}]"

    def __repr__(self) -> str:
        return f"TensorType({self})"


def tensor(dtype_name: str | DType, *shape: DimLike) -> TensorType:
    """A tensor type: `tensor("f32", "batch", "seq", 256)`."""
    return TensorType(dtype(dtype_name), tuple(as_dim(d) for d in shape))
