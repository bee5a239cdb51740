"""ONNX's elementwise operators. May import: site, known, registry, ops, ir, errors."""

from __future__ import annotations

import operator
from functools import reduce
from typing import TYPE_CHECKING, Any

from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import Dim, DType, Exact, exact, sqrt
from tfgraph.onnx import known as numbers
from tfgraph.onnx.file import element_type
from tfgraph.onnx.known import Known, Undecided
from tfgraph.onnx.lowest import hidden, lowest
from tfgraph.onnx.registry import translates
from tfgraph.onnx.site import One, Site, Tensor, Two

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.onnx.dims import Sizes


def _arithmetic(at: Site, exactly: Two, op: Two, a: Tensor, b: Tensor) -> Any:
    folded = at.fold(at.type(a).dtype, exactly, a, b)

    def make() -> Any:
        return op(*at.operands(a, b))

    return make() if folded is None else at.kept(folded, make, a, b)


@translates("Add")
def _add(at: Site, a: Tensor, b: Tensor, /) -> Any:
    return _arithmetic(at, operator.add, ops.add, a, b)


@translates("Sub")
def _sub(at: Site, a: Tensor, b: Tensor, /) -> Any:
    return _arithmetic(at, operator.sub, ops.sub, a, b)


@translates("Mul")
def _mul(at: Site, a: Tensor, b: Tensor, /) -> Any:
    return _arithmetic(at, operator.mul, ops.mul, a, b)


@translates("Div")
def _div(at: Site, a: Tensor, b: Tensor, /) -> Any:
    """Of integers the quotient is rounded towards 0."""
    dtype = at.type(a).dtype
    if dtype.is_float:
        return _arithmetic(at, lambda x, y: x / y, ops.div, a, b)

    def exactly(x: Any, y: Any) -> Any:
        if numbers.less(x, 0, at.sizes) or not numbers.less(0, y, at.sizes):
            if isinstance(x, Dim) or isinstance(y, Dim):
                raise Undecided
            return (abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1)
        return x // y

    folded = at.fold(dtype, exactly, a, b)
    return folded if folded is not None else _integer_div(at, a, b)


def _integer_div(at: Site, a: Tensor, b: Tensor, *, rounded: bool = False) -> Any:
    """Towards 0, or `rounded` down; in float64, which is exact for numbers below 2^53."""
    x, y = (ops.cast(at.tensor(v), dtype=DType.float64) for v in (a, b))
    at.broadcast(x.shape, y.shape)
    quotient = ops.div(x, y)
    quotient = ops.floor(quotient) if rounded else quotient
    return ops.cast(quotient, dtype=at.type(a).dtype)


def converted(at: Site, x: Tensor, dtype: DType) -> Any:
    """The value as another element type."""
    return ops.cast(at.tensor(x), dtype=dtype)


@translates("Pow")
def _pow(at: Site, a: Tensor, b: Tensor, /) -> Any:
    dtype = at.type(a).dtype

    def exactly(x: Any, y: Any) -> Any:
        if isinstance(y, Exact) and y == exact(sqrt(exact(1)) / 2):
            return sqrt(x)
        n = int(y) if not isinstance(y, Exact) else int(y.factor) if y.is_integer else None
        if n is None or not -8 <= n <= 8 or (n < 0 and not dtype.is_float):
            raise Undecided
        power = reduce(operator.mul, [x] * abs(n), exact(1) if dtype.is_float else 1)
        return power if n >= 0 else 1 / power

    folded = at.fold(dtype, exactly, a, b)
    if folded is not None:
        return at.kept(folded, lambda: ops.pow_(*at.operands(a, b)), a, b)
    exponent = at.scalar(b)
    if not dtype.is_float:
        return _integer_power(at, a, b, exponent)
    if exponent is None and at.type(b).dtype != dtype:
        return ops.pow_(*at.operands(a, converted(at, b, dtype)))
    elif exponent is not None and at.type(b).dtype != dtype:
        b = numbers.known(dtype, exponent) if not at.shape(b) else b
    return ops.pow_(*at.operands(a, b))


def _integer_power(at: Site, a: Tensor, b: Tensor, exponent: Exact | None) -> Any:
    """Products where the exponent is a small number, else in float64, which is exact to 2^53."""
    base = at.tensor(a)
    if exponent is not None and exponent.is_integer and 1 <= exponent.factor <= 8:
        return reduce(ops.mul, [base] * int(exponent.factor))
    at.broadcast(at.shape(a), at.shape(b))
    x, y = (ops.cast(at.tensor(v), dtype=DType.float64) for v in (a, b))
    return ops.cast(ops.pow_(x, y), dtype=base.dtype)


def _several(at: Site, exactly: Two, op: Two, values: tuple[Tensor, ...]) -> Any:
    total = values[0]
    for value in values[1:]:
        total = _arithmetic(at, exactly, op, total, value)
    return total


@translates("Max")
def _max(at: Site, *values: Tensor) -> Any:
    return _several(at, lambda a, b: numbers.most(a, b, at.sizes), ops.maximum, values)


@translates("Min")
def _min(at: Site, *values: Tensor) -> Any:
    return _several(at, lambda a, b: numbers.least(a, b, at.sizes), ops.minimum, values)


@translates("Sum")
def _sum(at: Site, *values: Tensor) -> Any:
    return _several(at, operator.add, ops.add, values)


@translates("Mean")
def _mean(at: Site, *values: Tensor) -> Any:
    return ops.div(at.tensor(_sum(at, *values)), len(values))


@translates("Mod")
def _mod(at: Site, a: Tensor, b: Tensor, /, *, fmod: int = 0) -> Any:
    def exactly(x: Any, y: Any) -> Any:
        if numbers.less(x, 0, at.sizes) or not numbers.less(0, y, at.sizes):
            raise Undecided
        return x % y

    dtype = at.type(a).dtype
    if dtype.is_float:
        raise TfgraphError("a remainder of floats has no op in the IR")
    folded = at.fold(dtype, exactly, a, b)
    if folded is not None:
        return folded
    quotient = _integer_div(at, a, b, rounded=not fmod)
    return ops.sub(at.tensor(a), ops.mul(quotient, at.tensor(b)))


def _compared(
    at: Site, exactly: Callable[[Any, Any, Sizes], bool], op: Two, a: Tensor, b: Tensor
) -> Any:
    folded = at.fold(DType.bool_, lambda x, y: exactly(x, y, at.sizes), a, b)
    return op(*at.operands(a, b)) if folded is None else folded


@translates("Equal")
def _equal(at: Site, a: Tensor, b: Tensor, /) -> Any:
    for x, other in ((a, b), (b, a)):
        if at.is_lowest(x) and not at.is_lowest(other):
            return lowest(at, other, at.broadcast(at.shape(a), at.shape(b)))
    return _compared(at, numbers.equal, ops.equal, a, b)


@translates("Less")
def _less(at: Site, a: Tensor, b: Tensor, /) -> Any:
    return _compared(at, numbers.less, ops.less, a, b)


@translates("Greater")
def _greater(at: Site, a: Tensor, b: Tensor, /) -> Any:
    return _less(at, b, a)


@translates("LessOrEqual")
def _less_or_equal(at: Site, a: Tensor, b: Tensor, /) -> Any:
    """Of integers it is the opposite of greater; NaN is neither."""
    folded = at.fold(DType.bool_, lambda x, y: not numbers.less(y, x, at.sizes), a, b)
    if folded is not None:
        return folded
    x, y = at.operands(a, b)
    if not at.type(a).dtype.is_float:
        return ops.logical_not(ops.less(y, x))
    return ops.logical_or(ops.less(x, y), ops.equal(x, y))


@translates("GreaterOrEqual")
def _greater_or_equal(at: Site, a: Tensor, b: Tensor, /) -> Any:
    return _less_or_equal(at, b, a)


@translates("And")
def _and(at: Site, a: Tensor, b: Tensor, /) -> Any:
    return _logical(at, lambda x, y: x and y, ops.logical_and, a, b)


@translates("Or")
def _or(at: Site, a: Tensor, b: Tensor, /) -> Any:
    return _logical(at, lambda x, y: x or y, ops.logical_or, a, b)


@translates("Xor")
def _xor(at: Site, a: Tensor, b: Tensor, /) -> Any:
    return _logical(at, operator.ne, lambda x, y: ops.logical_not(ops.equal(x, y)), a, b)


def _logical(at: Site, exactly: Two, op: Two, a: Tensor, b: Tensor) -> Any:
    if at.type(a).dtype != DType.bool_:
        raise TfgraphError(f"expected bools, got {at.type(a)}")
    folded = at.fold(DType.bool_, exactly, a, b)
    if folded is not None:
        return folded
    at.broadcast(at.shape(a), at.shape(b))
    return op(at.tensor(a), at.tensor(b))


@translates("Not")
def _not(at: Site, x: Tensor, /) -> Any:
    folded = at.fold(DType.bool_, operator.not_, x)
    return ops.logical_not(at.tensor(x)) if folded is None else folded


@translates("Where")
def _where(at: Site, condition: Tensor, yes: Tensor, no: Tensor, /) -> Any:
    folded = at.fold(at.type(yes).dtype, lambda c, a, b: a if c else b, condition, yes, no)
    if folded is not None:
        return folded
    shape = at.broadcast(*map(at.shape, (condition, yes, no)))
    low = [at.is_lowest(x) for x in (yes, no)]
    if any(low) and not all(low) and len(shape) > 1:
        return hidden(at, condition, no if low[0] else yes, shape, allows=low[1])
    return ops.where(at.tensor(condition), at.tensor(yes), at.tensor(no))


def _unary(op: One, exactly: One | None) -> Any:
    def translate(at: Site, x: Tensor, /) -> Any:
        folded = None if exactly is None else at.fold(at.type(x).dtype, exactly, x)
        return op(at.tensor(x)) if folded is None else at.kept(folded, lambda: op(at.tensor(x)), x)

    return translate


def _root(x: Exact) -> Exact:
    return x if not x.factor else sqrt(x)


def _reciprocal(x: Any) -> Any:
    return ops.div(1, x)


def _softplus(x: Any) -> Any:
    """log(1 + e^x), without overflow: max(x, 0) + log(1 + e^-|x|)."""
    return ops.add(ops.maximum(x, 0), ops.log(ops.add(ops.exp(ops.neg(ops.abs_(x))), 1)))


def _sign(x: Any) -> Any:
    above, below = (ops.cast(c, dtype=x.dtype) for c in (ops.less(0, x), ops.less(x, 0)))
    return ops.sub(above, below)


def _relu(x: Any) -> Any:
    return ops.relu(x) if x.dtype.is_float else ops.maximum(x, 0)


_UNARY: tuple[tuple[str, One, One | None], ...] = (
    ("Neg", ops.neg, operator.neg),
    ("Sqrt", ops.sqrt, _root),
    ("Reciprocal", _reciprocal, lambda x: 1 / x),
    ("Exp", ops.exp, None),
    ("Log", ops.log, None),
    ("Sin", ops.sin, None),
    ("Cos", ops.cos, None),
    ("Tanh", ops.tanh, None),
    ("Erf", ops.erf, None),
    ("Sigmoid", ops.sigmoid, None),
    ("Softplus", _softplus, None),
    ("Softsign", lambda x: ops.div(x, ops.add(ops.abs_(x), 1)), None),
    ("Sign", _sign, None),
    ("Relu", _relu, None),
)
for _name, _op, _exactly in _UNARY:
    translates(_name)(_unary(_op, _exactly))


@translates("Abs")
def _abs(at: Site, x: Tensor, /) -> Any:
    def exactly(number: Any) -> Any:
        return -number if numbers.less(number, 0, at.sizes) else number

    folded = at.fold(at.type(x).dtype, exactly, x)
    if folded is not None:
        return folded
    value = at.tensor(x)
    return value if value.dtype == DType.uint8 else ops.abs_(value)


@translates("IsNaN")
def _is_nan(at: Site, x: Tensor, /) -> Any:
    value = at.tensor(x)
    return ops.logical_not(ops.equal(value, value))


@translates("Cast")
def _cast(at: Site, x: Tensor, /, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    dtype = element_type(to, "the result")
    folded = None
    if not (at.type(x).dtype.is_float and dtype != at.type(x).dtype):
        folded = at.fold(dtype, _converted(dtype), x)
    elif dtype in (DType.int64, DType.int32):
        folded = at.fold(dtype, lambda n: n if isinstance(n, Dim) else int(float(n)), x)
    elif dtype.is_float:
        folded = at.fold(dtype, lambda n: n, x)

    def make() -> Any:
        value = at.tensor(x)
        return value if value.dtype == dtype else ops.cast(value, dtype=dtype)

    if folded is None:
        return make()
    found = at.known(x)  # of a file's own positions, too
    if found is not None and found.make is not None and dtype in (DType.int64, DType.int32):
        return Known(dtype, folded.data, at.later(make))
    return at.kept(folded, make, x)


def _converted(dtype: DType) -> One:
    """To bool: whether it is not 0, which no size is."""

    def convert(number: Any) -> Any:
        return isinstance(number, Dim) or bool(number) if dtype == DType.bool_ else number

    return convert


@translates("CastLike")
def _cast_like(at: Site, x: Tensor, like: Tensor, /, *, saturate: int = 1) -> Any:
    from tfgraph.onnx.file import DTYPES

    number = next(n for n, dtype in DTYPES.items() if dtype == at.type(like).dtype)
    return _cast(at, x, to=number)


@translates("Clip")
def _clip(at: Site, x: Tensor, low: Tensor | None = None, high: Tensor | None = None, /) -> Any:
    result = x if low is None else _max(at, x, low)
    return result if high is None else _min(at, result, high)


@translates("Identity")
def _identity(at: Site, x: Tensor, /) -> Any:
    return x


@translates("Dropout", since=12)
def _dropout(
    at: Site,
    x: Tensor,
    ratio: Tensor | None = None,
    training: Tensor | None = None,
    /,
    *,
    seed: int = 0,
) -> Any:
    """Of inference, which drops nothing."""
    if training is not None and at.scalar(training) != exact(0):
        raise TfgraphError("dropout of training is not supported")
    if not at.wants(1):
        return x
    return x, ops.full(shape=at.shape(x), value=1, dtype=DType.bool_)


@translates("Dropout")
def _dropout_7(at: Site, x: Tensor, /, *, ratio: Any = None) -> Any:
    return _dropout(at, x)
