"""Generic kernels of elementwise ops. May import: tvm, tfgraph.backends.tvm.generic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tfgraph.backends.tvm.generic.kernel import Kernel, emitter
from tfgraph.backends.tvm.generic.loops import Loops
from tfgraph.backends.tvm.narrow import NARROW, computed
from tfgraph.ir import DType, exact

Expr = Any


def equal(a: Expr, b: Expr) -> Expr:
    """a == b, an expression at once, as its type may be asked for; TVM compares no bools."""
    return tirx.Not(tirx.Or(less(a, b), less(b, a))) if is_bool(a) else tirx.EQ(a, b)


def less(a: Expr, b: Expr) -> Expr:
    """a < b; false is less than true."""
    return tirx.And(tirx.Not(a), b) if is_bool(a) else a < b


def is_bool(x: Expr) -> bool:
    """Whether an expression is true or false."""
    return str(x.ty.dtype) == "bool"


def is_float(x: Expr) -> bool:
    """Whether an expression is floating point."""
    return str(x.ty.dtype).startswith("float")


_BINARY: dict[str, Callable[[Expr, Expr], Expr]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "equal": equal,
    "less": less,
    "logical_and": tirx.And,
    "logical_or": tirx.Or,
}


@emitter(*_BINARY)
def _binary(kernel: Kernel) -> None:
    f, hold = _BINARY[kernel.node.op], kernel.loops.hold

    def value(a: Expr, b: Expr) -> Expr:
        return f(hold(a, "a"), hold(b, "b"))

    kernel.map(value)


@emitter("maximum", "minimum")
def _extremum(kernel: Kernel) -> None:
    kernel.map(extremum(kernel.loops, kernel.node.op))


def extremum(loops: Loops, name: str) -> Callable[[Expr, Expr], Expr]:
    """The function "maximum" or "minimum" of two numbers; NaN if either is."""

    def f(a: Expr, b: Expr) -> Expr:
        if is_float(a):
            return loops.extremum(name, a, b)
        return T.max(a, b) if name == "maximum" else T.min(a, b)

    return f


@emitter("pow")
def _pow(kernel: Kernel) -> None:
    _, exponent = kernel.operands

    def value(base: Expr, power: Expr) -> Expr:
        base = kernel.loops.hold(base)
        # The exponents of norms and of GELU: products are as exact, and faster.
        if exponent == exact(2):
            return base * base
        if exponent == exact(3):
            return base * base * base
        return T.pow(base, power)

    kernel.map(value)


@emitter("exp", "log", "sqrt", "sin", "cos", "tanh", "erf", "floor")
def _function(kernel: Kernel) -> None:
    kernel.map(kernel.loops.functions[kernel.node.op])


@emitter("neg")
def _neg(kernel: Kernel) -> None:
    (x,) = kernel.operands

    def value(a: Expr) -> Expr:
        if x.type.dtype.is_float:  # 0 - 0 would be +0, not -0
            return a * tirx.const(-1, x.dtype)
        return tirx.const(0, x.dtype) - a

    kernel.map(value)


@emitter("abs")
def _abs(kernel: Kernel) -> None:
    kernel.map(T.abs)


@emitter("logical_not")
def _logical_not(kernel: Kernel) -> None:
    (x,) = kernel.operands
    kernel.fill(lambda i: tirx.Not(x[i]))


@emitter("where")
def _where(kernel: Kernel) -> None:
    condition, yes, no = kernel.operands
    yes, no = yes.raw, no.raw
    kernel.fill(lambda i: tirx.Select(condition.at(i), yes.at(i), no.at(i)))


@emitter("cast")
def _cast(kernel: Kernel) -> None:
    (x,), dtype = kernel.operands, kernel.result.type.dtype
    if dtype == x.type.dtype:
        kernel.fill(lambda i: x.raw[i])
    elif x.type.dtype.value in NARROW:  # whose bits as float32 may be asked for
        kernel.fill(lambda i: convert(kernel.loops.hold(x[i]), dtype))
    else:
        kernel.fill(lambda i: convert(x[i], dtype))


def _is_nonzero(x: Expr) -> Expr:
    if not is_float(x):
        return tirx.NE(x, tirx.const(0, x.ty.dtype))
    # x != 0 would be false of NaN, and so would what TVM makes of Not(x == 0): so by its bits.
    bits = tirx.reinterpret("int32", x) & tirx.const(0x7FFFFFFF, "int32")
    return tirx.NE(bits, tirx.const(0, "int32"))


def convert(x: Expr, dtype: DType) -> Expr:
    """A number as another type: floats to integers truncate, nonzero is true."""
    if dtype == DType.bool_:
        return x if is_bool(x) else _is_nonzero(x)
    name = computed(dtype.value)
    if is_bool(x):
        return tirx.Select(x, tirx.const(1, name), tirx.const(0, name))
    return x if str(x.ty.dtype) == name else tirx.Cast(name, x)
