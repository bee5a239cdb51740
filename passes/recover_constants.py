"""recover-constants: a factor that stands in a file as a rounded decimal is read as the root or the
fraction that it was: 0.17677669 as rsqrt(32), 0.33333334 as 1/3.

Read are decimals that no shorter one would do for: of 7 digits or more in float32, 15 in float64.
They are within 2 ulp of what they are read as.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tfgraph.ir import DType, Exact, rsqrt, sqrt
from tfgraph.ops import constant, div, full, mul
from tfgraph.ops.floats import numpy_dtype
from tfgraph.passes.pattern import NoMatch, call, const, var
from tfgraph.passes.pipeline import RulePass, register_pass
from tfgraph.passes.rule import Rule, rule

if TYPE_CHECKING:
    from tfgraph.ir import Node

_ROUNDED = "a rounded decimal as the constant that it was"
_DIGITS = {DType.float32: (7, 2.0**-23), DType.float64: (15, 2.0**-52)}
"""The least digits of a rounded number, and the distance of 1 from the next."""
_SHORT = 8  # bits
_RADICANDS = range(2, 1 << 14)
"""Of what a root is taken. Of the float32 around them, less than one in a hundred is near one."""
_DENOMINATORS = {DType.float32: 64, DType.float64: 4096}


@rule(
    call(("mul", "div"), var("x"), const("c"), name="node"),
    near=10**6,
    name="constant",
    reads=_ROUNDED,
)
def _constant(x: Any, c: Exact, node: Node) -> Any:
    """x 0.17677669 -> x rsqrt(32)."""
    found = read(c, x.dtype)
    if found is None:
        raise NoMatch
    return (mul if node.op == "mul" else div)(x, found)


@rule(call("full", name="node"), name="repeated", reads=_ROUNDED)
def _repeated(node: Node) -> Any:
    """full(0.33333334) -> full(1/3)."""
    kind = node.output.type
    number: Any = node.attrs["value"]
    found = read(number, kind.dtype)
    if found is None:
        raise NoMatch
    return full(shape=kind.shape, value=found, dtype=kind.dtype)


@rule(call("constant", name="node"), name="listed", reads=_ROUNDED)
def _listed(node: Node) -> Any:
    """constant([0.33333334, 2]) -> constant([1/3, 2])."""
    kind = node.output.type
    numbers: Any = node.attrs["values"]
    found = [read(number, kind.dtype) for number in numbers]
    if not any(found):
        raise NoMatch
    values = [a or b for a, b in zip(found, numbers, strict=True)]
    return constant(values=values, shape=kind.shape, dtype=kind.dtype)


def read(number: Exact, dtype: DType) -> Exact | None:
    """The root or the fraction that a decimal was before it was rounded to `dtype`; None where it
    is likely none."""
    if number.calls or dtype not in _DIGITS:
        return None
    least, ulp = _DIGITS[dtype]
    value = abs(number.factor)
    if _digits(value) < least:
        return None
    square = value * value
    inside, outside = round(square), round(1 / square)
    candidates = [_binary(value, dtype), Exact(value.limit_denominator(_DENOMINATORS[dtype]))]
    candidates += [sqrt(inside)] if inside in _RADICANDS else []
    candidates += [rsqrt(outside)] if outside in _RADICANDS else []
    for candidate in candidates:
        close = math.isclose(float(value), float(candidate), rel_tol=2 * ulp)
        if close and candidate != Exact(value):
            return candidate * (number.factor / value)
    return None


def _binary(value: Fraction, dtype: DType) -> Exact:
    """The float itself where it is a short binary number, such as 2^-20; else 0."""
    number = Fraction(float(np.array(float(value)).astype(numpy_dtype(dtype))))
    return Exact(number if number.numerator.bit_length() <= _SHORT else Fraction(0))


def _digits(value: Fraction) -> int:
    """How many significant digits a decimal has; 0 of a fraction that is none."""
    text = repr(float(value))
    if Fraction(text) != value:
        return 0
    mantissa = text.partition("e")[0].replace(".", "").lstrip("0")
    return len(mantissa.rstrip("0"))


@register_pass
class RecoverConstants(RulePass):
    """Factors that were rounded when a file was written."""

    name = "recover-constants"
    rules: ClassVar[list[Rule]] = [_constant, _repeated, _listed]
