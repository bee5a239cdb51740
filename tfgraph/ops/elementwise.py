"""Elementwise core ops. Shapes broadcast as in NumPy, where only a literal 1 broadcasts.

May import: xp, define, infer, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgraph.errors import TfgraphError
from tfgraph.ir import DType
from tfgraph.ops import xp
from tfgraph.ops.define import op
from tfgraph.ops.infer import broadcast, comparison, require_float, require_number, same_dtype

if TYPE_CHECKING:
    from tfgraph.ir import ExactLike, TensorType
    from tfgraph.ops.array import Array


def _float(x: TensorType, **attrs: Any) -> TensorType:
    require_float(x)
    return x


def _number(x: TensorType, **attrs: Any) -> TensorType:
    require_number(x)
    return x


def _numbers(a: TensorType, b: TensorType) -> TensorType:
    require_number(a)
    return broadcast(a, b)


def _floats(a: TensorType, b: TensorType) -> TensorType:
    require_float(a)
    return broadcast(a, b)


def _bools(*types: TensorType) -> TensorType:
    for t in types:
        if t.dtype != DType.bool_:
            raise TfgraphError(f"expected a bool tensor, got {t}")
    return broadcast(*types)


@op(infer=_numbers, onnx="Add", commutative=True)
def add(a: Array | ExactLike, b: Array | ExactLike, /) -> Array:
    """a + b."""
    return xp.add(a, b)


@op(infer=_numbers, onnx="Sub")
def sub(a: Array | ExactLike, b: Array | ExactLike, /) -> Array:
    """a - b."""
    return xp.sub(a, b)


@op(infer=_numbers, onnx="Mul", commutative=True)
def mul(a: Array | ExactLike, b: Array | ExactLike, /) -> Array:
    """a * b."""
    return xp.mul(a, b)


@op(infer=_floats, onnx="Div")
def div(a: Array | ExactLike, b: Array | ExactLike, /) -> Array:
    """a / b, of floats."""
    return xp.div(a, b)


@op(infer=_floats, onnx="Pow")
def pow_(a: Array | ExactLike, b: Array | ExactLike, /) -> Array:
    """a to the power of b, of floats."""
    return xp.pow(a, b)


@op(infer=_numbers, onnx="Max", commutative=True)
def maximum(a: Array | ExactLike, b: Array | ExactLike, /) -> Array:
    """The larger of a and b; NaN where either is NaN."""
    return xp.maximum(a, b)


@op(infer=_numbers, onnx="Min", commutative=True)
def minimum(a: Array | ExactLike, b: Array | ExactLike, /) -> Array:
    """The smaller of a and b; NaN where either is NaN."""
    return xp.minimum(a, b)


@op(infer=comparison, onnx="Equal", commutative=True)
def equal(a: Array | ExactLike, b: Array | ExactLike, /) -> Array:
    """Whether a == b; a bool tensor."""
    return xp.equal(a, b)


@op(infer=comparison, onnx="Less")
def less(a: Array | ExactLike, b: Array | ExactLike, /) -> Array:
    """Whether a < b; a bool tensor."""
    return xp.less(a, b)


@op(infer=_bools, onnx="And", commutative=True)
def logical_and(a: Array, b: Array, /) -> Array:
    """Both."""
    return xp.logical_and(a, b)


@op(infer=_bools, onnx="Or", commutative=True)
def logical_or(a: Array, b: Array, /) -> Array:
    """Either."""
    return xp.logical_or(a, b)


@op(infer=_bools, onnx="Not")
def logical_not(x: Array, /) -> Array:
    """The opposite."""
    return xp.unary("logical_not", x)


def _where(condition: TensorType, yes: TensorType, no: TensorType) -> TensorType:
    if condition.dtype != DType.bool_:
        raise TfgraphError(f"the condition is {condition}, expected bool")
    same_dtype(yes, no)
    return broadcast(condition.with_dtype(yes.dtype), yes, no)


@op(infer=_where, onnx="Where")
def where(condition: Array, yes: Array, no: Array, /) -> Array:
    """`yes` where the condition holds, else `no`."""
    return xp.where(condition, yes, no)


@op(infer=_number, onnx="Neg")
def neg(x: Array, /) -> Array:
    """-x."""
    return xp.unary("neg", x)


@op(infer=_number, onnx="Abs")
def abs_(x: Array, /) -> Array:
    """The absolute value."""
    return xp.unary("abs", x)


@op(infer=_float, onnx="Exp")
def exp(x: Array, /) -> Array:
    """e to the power of x."""
    return xp.exp(x)


@op(infer=_float, onnx="Log")
def log(x: Array, /) -> Array:
    """The natural logarithm."""
    return xp.unary("log", x)


@op(infer=_float, onnx="Sqrt")
def sqrt(x: Array, /) -> Array:
    """The square root."""
    return xp.sqrt(x)


@op(infer=_float, onnx="Sin")
def sin(x: Array, /) -> Array:
    """The sine of x in radians."""
    return xp.unary("sin", x)


@op(infer=_float, onnx="Cos")
def cos(x: Array, /) -> Array:
    """The cosine of x in radians."""
    return xp.unary("cos", x)


@op(infer=_float, onnx="Tanh")
def tanh(x: Array, /) -> Array:
    """The hyperbolic tangent."""
    return xp.unary("tanh", x)


@op(infer=_float, onnx="Erf")
def erf(x: Array, /) -> Array:
    """The error function, 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x."""
    return xp.unary("erf", x)


@op(infer=_float, onnx="Floor")
def floor(x: Array, /) -> Array:
    """The largest integer not above x."""
    return xp.unary("floor", x)


def _cast(x: TensorType, *, dtype: DType) -> TensorType:
    return x.with_dtype(dtype)


@op(infer=_cast, onnx="Cast")
def cast(x: Array, /, *, dtype: DType) -> Array:
    """x converted to another element type; floats to integers truncate."""
    return xp.cast(x, dtype)
