"""ONNX's operators of quantised tensors: integers q that stand for (q - zero point) * scale.

Integers are computed exactly, so that every backend gives the same. May import: rounding, layers,
shapes, site, file, registry, ops, ir, errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import Dim, DType, Exact, as_dim, exact, product
from tfgraph.onnx.file import Stored, element_type
from tfgraph.onnx.layers import product_of
from tfgraph.onnx.registry import translates
from tfgraph.onnx.rounding import round_half_even
from tfgraph.onnx.shapes import axis_of
from tfgraph.onnx.site import Site, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

_RANGES = {DType.uint8: (0, 255), DType.int8: (-128, 127)}
_WHOLE = 2**24
"""Every integer up to this is a float32, and so is every sum of them that stays below."""


@translates("DequantizeLinear")
def _dequantize_linear(
    at: Site,
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    /,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Any:
    """(x - zero point) * scale, in the type of the result."""
    value, given = at.tensor(x), at.type(scale).dtype
    if zero_point is not None and at.type(zero_point).dtype != value.dtype:
        raise TfgraphError(f"the zero point is {at.type(zero_point)}, but x is {value.type}")
    dtype = element_type(output_dtype, "the result") if output_dtype else given
    zero = _zero_point(at, zero_point, at.shape(x), axis, block_size)
    s = at.scalar(scale) if dtype == given else None
    s = _grains(at, scale, at.shape(x), axis, block_size) if s is None else s
    # Differences of 8-bit integers are exact in every float type; those of i32 wrap around.
    if value.dtype == DType.int32 and zero is not None:
        value, zero = ops.sub(value, zero), None
    value = ops.cast(value, dtype=dtype)
    value = value if zero is None else ops.sub(value, _cast(zero, dtype))
    return ops.mul(value, _cast(s, dtype))


@translates("QuantizeLinear")
def _quantize_linear(
    at: Site,
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    /,
    *,
    axis: int = 1,
    saturate: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
) -> Any:
    """saturate(round(x / scale) + zero point), half to even; divided in the type of the scale, or
    that of `precision`."""
    dtype = element_type(output_dtype, "the result") if output_dtype else DType.uint8
    dtype = dtype if zero_point is None else at.type(zero_point).dtype
    s = _grains(at, scale, at.shape(x), axis, block_size)
    zero = _zero_point(at, zero_point, at.shape(x), axis, block_size)
    wide = element_type(precision, "the precision") if precision else s.dtype
    return _quantized(_cast(at.tensor(x), wide), _cast(s, wide), zero, dtype)


@translates("DynamicQuantizeLinear")
def _dynamic_quantize_linear(at: Site, x: Tensor, /) -> Any:
    """Quantises to u8 over the range of x, which is made to hold 0; where x is 0 everywhere, the
    scale is 1 / 255, as ONNX's reference has it."""
    value: Any = at.tensor(x)
    low, high = -_largest(-value), _largest(value)
    low, high = ops.minimum(low, 0), ops.maximum(high, 0)
    span = ops.sub(high, low)
    least = ops.full(shape=(), value=exact(1) / 255, dtype=span.dtype)
    scale = ops.where(ops.equal(span, 0), least, ops.div(span, 255))
    zero = ops.minimum(ops.maximum(ops.neg(ops.div(low, scale)), 0), 255)
    zero = ops.cast(round_half_even(zero), dtype=DType.uint8)
    return _quantized(value, scale, zero, DType.uint8), scale, zero


@translates("MatMulInteger")
def _matmul_integer(
    at: Site,
    a: Tensor,
    b: Tensor,
    a_zero_point: Tensor | None = None,
    b_zero_point: Tensor | None = None,
    /,
) -> Any:
    """(a - its zero point) @ (b - its zero point), as i32."""
    x, x_most = _centred(at, a, a_zero_point, -1)
    y, y_most = _centred(at, b, b_zero_point, 0)
    inner = at.shape(a)[-1]
    at.require_equal(inner, at.shape(b)[-2 if len(at.shape(b)) > 1 else 0])
    return _exact_product(at, x, y, x_most * y_most)


def _quantized(x: Any, scale: Any, zero: Any, dtype: DType) -> Any:
    """saturate(round(x / scale) + zero) as integers. Where the range ends a float of any width is
    exact: what is rounded away lies beyond it."""
    if dtype not in _RANGES:
        raise TfgraphError(f"the result is of type {dtype.value}, which is no 8-bit integer")
    low, high = _RANGES[dtype]
    y = round_half_even(ops.div(x, scale))
    y = y if zero is None else ops.add(y, _cast(zero, y.dtype))
    return ops.cast(ops.minimum(ops.maximum(y, low), high), dtype=dtype)


def _largest(x: Any) -> Any:
    """The largest of all elements: along rows first, which kernels do in parallel."""
    while x.shape:
        x = ops.max_(x, axis=-1)
        x = ops.reshape(x, shape=(product(x.shape),)) if len(x.shape) > 1 else x
    return x


def _grains(at: Site, x: Tensor, shape: Sequence[Dim], axis: int, block_size: int) -> Any:
    """Scales or zero points so that they broadcast with a tensor of that shape: one number, one for
    each place on the axis, or one for each block of places."""
    value, rank = at.tensor(x), len(shape)
    if product(value.shape) == as_dim(1):
        return value if not value.shape else ops.reshape(value, shape=())
    axis = axis_of(axis, rank)
    if len(value.shape) == 1 and not block_size:
        at.require_equal(value.shape[0], shape[axis], "a scale for each place on the axis")
        return ops.reshape(value, shape=tuple(shape[axis] if i == axis else 1 for i in range(rank)))
    if len(value.shape) != rank or block_size < 1:
        raise TfgraphError(f"scales or zero points are {value.type} for a tensor of rank {rank}")
    *outer, count = value.shape[: axis + 1]
    inner = value.shape[axis + 1 :]
    value = ops.reshape(value, shape=(*outer, count, 1, *inner))
    value = ops.broadcast_to(value, shape=(*outer, count, block_size, *inner))
    value = ops.reshape(value, shape=(*outer, count * block_size, *inner))
    if value.shape[axis] != shape[axis]:  # the last block is shorter
        value = ops.slice_(value, axis=axis, start=0, stop=shape[axis])
    at.broadcast(value.shape, shape)
    return value


def _zero_point(at: Site, x: Tensor | None, shape: Sequence[Dim], axis: int, block: int) -> Any:
    """The zero points: a number where it is one and known, else as `_grains`; None where they are
    0."""
    if x is None or _is_zero(at, x):
        return None
    number = at.scalar(x)
    return _grains(at, x, shape, axis, block) if number is None else number


def _is_zero(at: Site, x: Tensor) -> bool:
    if isinstance(x, Stored):
        return not x.read().any()
    return at.scalar(x) == exact(0)


def _centred(at: Site, x: Tensor, zero_point: Tensor | None, axis: int) -> tuple[Any, int]:
    """Integers less their zero points as float32, which holds them; and their largest magnitude.
    A vector of zero points has one for each row (`axis` -1) or column (0) of the matrix."""
    value = at.tensor(x)
    if value.dtype not in _RANGES:
        raise TfgraphError(f"expected u8 or i8, got {value.type}")
    low, high = _RANGES[value.dtype]
    wide = ops.cast(value, dtype=DType.float32)
    if zero_point is None or _is_zero(at, zero_point):
        return wide, max(-low, high)
    if at.type(zero_point).dtype != value.dtype:
        raise TfgraphError(f"the zero point is {at.type(zero_point)} for {value.type}")
    if (number := at.scalar(zero_point)) is not None:
        return ops.sub(wide, number), high - low
    zero = at.tensor(zero_point)
    if product(zero.shape) == as_dim(1):
        zero = ops.reshape(zero, shape=()) if zero.shape else zero
    elif len(zero.shape) == 1 and axis == -1:
        zero = ops.reshape(zero, shape=(*zero.shape, 1))
    at.broadcast(zero.shape, wide.shape)
    return ops.sub(wide, ops.cast(zero, dtype=DType.float32)), high - low


def _exact_product(at: Site, x: Any, y: Any, most: int) -> Any:
    """x @ y of whole floats as i32, where no product is larger than `most`.

    Products of 8-bit integers are summed in float32, whose kernels are fast, and exactly: in parts
    whose sums stay below 2^24, be they added in any order. i32 adds the parts up.
    """
    inner, axis = x.shape[-1], max(len(y.shape) - 2, 0)
    longest = _WHOLE // most
    if not inner.is_const:  # in float64 a sum of 2^31 elements is exact
        x, y = (ops.cast(v, dtype=DType.float64) for v in (x, y))
        return ops.cast(product_of(at, x, y), dtype=DType.int32)
    size, total = int(inner), None
    count = -(-size // longest)
    for part in range(count):
        start, stop = size * part // count, size * (part + 1) // count
        a, b = x, y
        if count > 1:
            a = ops.slice_(x, axis=-1, start=start, stop=stop)
            b = ops.slice_(y, axis=axis, start=start, stop=stop)
        found: Any = ops.cast(product_of(at, a, b), dtype=DType.int32)
        total = found if total is None else ops.add(total, found)
    return total


def _cast(x: Any, dtype: DType) -> Any:
    """A tensor in another type; a number has none."""
    return x if isinstance(x, Exact) or x.dtype == dtype else ops.cast(x, dtype=dtype)
