"""Shape and dtype inference shared by ops. Errors name the types and what would be right.

May import: ir, errors.
"""

from __future__ import annotations

from typing import Any

from tfgraph.errors import TfgraphError
from tfgraph.ir import Dim, DType, TensorType, as_dim


def like_first(x: TensorType, *rest: Any, **attrs: Any) -> TensorType:
    """The type of the first operand."""
    return x


def broadcast_shapes(*shapes: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The common shape, aligned at the right; only a literal 1 broadcasts."""
    rank = max(map(len, shapes))
    one = as_dim(1)
    result: list[Dim] = []
    for axis in range(-rank, 0):
        dims = {s[axis] for s in shapes if len(s) >= -axis} - {one}
        if len(dims) > 1:
            texts = [f"[{','.join(map(str, s))}]" for s in shapes]
            a, b = sorted(map(str, dims))[:2]
            raise TfgraphError(
                f"shapes {' and '.join(texts)} do not broadcast: {a} against {b}",
                hint="sizes are equal only if they are written alike; only a literal 1 broadcasts",
            )
        result.append(dims.pop() if dims else one)
    return tuple(result)


def broadcast(*types: TensorType, **attrs: Any) -> TensorType:
    """Elementwise ops: equal dtypes, broadcast shapes."""
    same_dtype(*types)
    return TensorType(types[0].dtype, broadcast_shapes(*(t.shape for t in types)))


def comparison(*types: TensorType, **attrs: Any) -> TensorType:
    """Elementwise ops with a bool result."""
    return broadcast(*types).with_dtype(DType.bool_)


def same_dtype(*types: TensorType) -> None:
    """Raise unless all dtypes are equal."""
    first = types[0].dtype
    for other in types[1:]:
        if other.dtype != first:
            raise TfgraphError(
                f"dtypes differ: {first} and {other.dtype}",
                hint="convert one with cast(x, dtype=...)",
            )


def require_float(x: TensorType) -> None:
    """Raise unless x is floating point."""
    if not x.dtype.is_float:
        raise TfgraphError(f"expected a floating point tensor, got {x}")


def require_number(x: TensorType) -> None:
    """Raise if x is bool, with which one cannot calculate."""
    if x.dtype == DType.bool_:
        raise TfgraphError(f"expected numbers, got {x}", hint="convert it with cast(x, dtype=...)")


def require_dim(what: str, got: Dim, expected: Dim) -> None:
    """Raise unless two sizes have the same form."""
    if got != expected:
        raise TfgraphError(f"{what} is {got}, expected {expected}")


def normal_axis(axis: int, rank: int) -> int:
    """The axis counted from the front. Raises TfgraphError if it is out of range."""
    if not -rank <= axis < rank:
        raise TfgraphError(f"axis {axis} is out of range for rank {rank}")
    return axis % rank


def replace_axis(x: TensorType, axis: int, *dims: Dim) -> TensorType:
    """The type with the dimension at `axis` replaced by `dims`."""
    at = normal_axis(axis, x.rank)
    return x.with_shape((*x.shape[:at], *dims, *x.shape[at + 1 :]))


def check_row(what: str, row: TensorType | None, width: Dim, like: TensorType) -> None:
    """Raise unless `row` is a vector [width] of the dtype of `like` (or left out)."""
    if row is None:
        return
    same_dtype(like, row)
    if row.shape != (width,):
        raise TfgraphError(f"{what} is {row}, expected {like.dtype}[{width}]")
