"""`xp`: the functions that bodies of ops are written in; each dispatches on its argument's domain.

Scalars (Python numbers, exact constants) become constants of the other operand's domain.
May import: array, ir.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

from tfgraph.ops.array import Array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgraph.ir import DimLike, DType, ExactLike

# Ops without operands have nothing to dispatch on: an evaluator puts any array of its domain here.
domain: ContextVar[Array] = ContextVar("domain")
_NO_ARRAY = "at least one operand must be an array; numbers calculate with + - * /"


def _pair(a: Array | ExactLike, b: Array | ExactLike) -> tuple[Array, Array]:
    if isinstance(a, Array):
        return a, b if isinstance(b, Array) else a.like(b)
    if isinstance(b, Array):
        return b.like(a), b
    raise TypeError(_NO_ARRAY)


def _binary(name: str, a: Array | ExactLike, b: Array | ExactLike) -> Array:
    if isinstance(a, Array):
        return a.binary(name, b if isinstance(b, Array) else a.like(b))
    if isinstance(b, Array):
        return b.binary_after(name, a)
    raise TypeError(_NO_ARRAY)


def add(a: Array | ExactLike, b: Array | ExactLike) -> Array:
    """a + b."""
    return _binary("add", a, b)


def sub(a: Array | ExactLike, b: Array | ExactLike) -> Array:
    """a - b."""
    return _binary("sub", a, b)


def mul(a: Array | ExactLike, b: Array | ExactLike) -> Array:
    """a * b."""
    return _binary("mul", a, b)


def div(a: Array | ExactLike, b: Array | ExactLike) -> Array:
    """a / b."""
    return _binary("div", a, b)


def pow(a: Array | ExactLike, b: Array | ExactLike) -> Array:
    """a to the power of b."""
    return _binary("pow", a, b)


def maximum(a: Array | ExactLike, b: Array | ExactLike) -> Array:
    """The larger; NaN if either is."""
    return _binary("maximum", a, b)


def minimum(a: Array | ExactLike, b: Array | ExactLike) -> Array:
    """The smaller; NaN if either is."""
    return _binary("minimum", a, b)


def equal(a: Array | ExactLike, b: Array | ExactLike) -> Array:
    """Whether a == b."""
    return _binary("equal", a, b)


def less(a: Array | ExactLike, b: Array | ExactLike) -> Array:
    """Whether a < b."""
    return _binary("less", a, b)


def logical_and(a: Array, b: Array) -> Array:
    """Both, of bool arrays."""
    return a.binary("logical_and", b)


def logical_or(a: Array, b: Array) -> Array:
    """Either, of bool arrays."""
    return a.binary("logical_or", b)


def unary(name: str, x: Array) -> Array:
    """The elementwise function called `name`."""
    return x.unary(name)


def where(condition: Array, yes: Array | ExactLike, no: Array | ExactLike) -> Array:
    """`yes` where the condition holds, else `no`."""
    a, b = _pair(yes, no)
    return condition.select(a, b)


def hide(x: Array, allowed: Array) -> Array:
    """x where allowed, else -inf."""
    return x.hide(allowed)


def empty(x: Array, axis: int) -> Array:
    """Whether all along `axis` is -inf, keeping the axis."""
    return x.empty(axis)


def sum(x: Array, axis: int = -1) -> Array:
    """The sum along `axis`, keeping it."""
    return x.reduce("sum", axis)


def mean(x: Array, axis: int = -1) -> Array:
    """The mean along `axis`, keeping it."""
    return x.reduce("mean", axis)


def max(x: Array, axis: int = -1) -> Array:
    """The maximum along `axis`, keeping it."""
    return x.reduce("max", axis)


def exp(x: Array) -> Array:
    """e to the power of x."""
    return x.unary("exp")


def sqrt(x: Array) -> Array:
    """The square root."""
    return x.unary("sqrt")


def matmul(a: Array, b: Array) -> Array:
    """The matrix product over the last two axes."""
    return a.matmul(b)


def weighted_sum(weights: Array, values: Array) -> Array:
    """`matmul` in which a weight of 0 takes nothing from its value, be that NaN or infinite."""
    return weights.weighted_sum(values)


def reshape(x: Array, shape: Sequence[DimLike]) -> Array:
    """The same elements under another shape."""
    return x.reshape(shape)


def expand_dims(x: Array, axis: int) -> Array:
    """A new axis of size 1 at `axis` of the result."""
    at = axis if axis >= 0 else axis + len(x.shape) + 1
    return x.reshape((*x.shape[:at], 1, *x.shape[at:]))


def arange(length: DimLike, *, like: Array) -> Array:
    """0, 1, ..., length - 1 as int64, in the domain of `like`."""
    return like.iota(length)


def cast(x: Array, dtype: DType) -> Array:
    """x converted to `dtype`."""
    return x.cast(dtype)
