"""recover-activations: GELU in its forms, SiLU and quick GELU, written out in elementwise ops.

The constants of GELU stand in files as rounded decimals: one that is within 2 ulp of float32, or of
a narrower type, is read as what it stands for.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from tfgraph.ir import DType
from tfgraph.ops import gelu, gelu_tanh, quick_gelu, relu2, silu
from tfgraph.passes.pattern import NoMatch, call, const, either, var
from tfgraph.passes.pipeline import RulePass, register_pass
from tfgraph.passes.rule import Rule, rule

if TYPE_CHECKING:
    from tfgraph.ir import Exact
    from tfgraph.passes.pattern import Pattern

_ULPS = {
    DType.float64: 2 * 2.0**-23,  # constants are copied from float32
    DType.float32: 2 * 2.0**-23,
    DType.float16: 2 * 2.0**-10,
    DType.bfloat16: 2 * 2.0**-7,
}
_ROUNDED = "a rounded decimal as the constant that it was"


def _halved(inner: Pattern) -> list[Pattern]:
    """x * inner / 2, in any order."""
    x = var("x")
    return [
        call("mul", call("mul", x, 0.5, shared=True), inner),
        call("mul", call("mul", x, inner), 0.5),
        call("mul", x, call("mul", inner, 0.5)),
    ]


def _is(constant: Exact, x: Any, *, value: float) -> bool:
    """Whether a constant beside x is this value, rounded."""
    return math.isclose(float(constant), value, rel_tol=_ULPS[x.dtype])


_SCALED = either(call("div", var("x"), const("divisor")), call("mul", var("x"), const("factor")))
_ERF = call("add", call("erf", _SCALED), 1)
_CUBE = either(
    call("pow", var("x"), 3),
    call("mul", var("x"), either(call("mul", var("x"), var("x")), call("pow", var("x"), 2))),
)
_BENT = call("add", var("x"), call("mul", _CUBE, const("cubic")))
# x (1 + c x^2) for x + c x^3, as BLOOM has it.
_SQUARE = call("add", call("mul", call("mul", var("x"), const("cubic")), var("x")), 1)
_INNER = either(
    call("mul", _BENT, const("root")),
    call("mul", call("mul", var("x"), const("root")), _SQUARE),
)
_TANH = call("add", call("tanh", _INNER), 1)


def _gelu(x: Any, divisor: Exact | None, factor: Exact | None) -> Any:
    """x (1 + erf(x / sqrt(2))) / 2 -> gelu(x)."""
    if divisor is not None and not _is(divisor, x, value=math.sqrt(2)):
        raise NoMatch(f"x is divided by {divisor}, not by sqrt(2)")
    if factor is not None and not _is(factor, x, value=math.sqrt(0.5)):
        raise NoMatch(f"x is multiplied by {factor}, not by sqrt(1/2)")
    return gelu(x)


def _gelu_tanh(x: Any, cubic: Exact, root: Exact) -> Any:
    """x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2 -> gelu_tanh(x)."""
    if not _is(cubic, x, value=0.044715):
        raise NoMatch(f"x^3 is multiplied by {cubic}, not by 0.044715")
    if not _is(root, x, value=math.sqrt(2 / math.pi)):
        raise NoMatch(f"the sum is multiplied by {root}, not by sqrt(2/pi)")
    return gelu_tanh(x)


_FORMS = [
    rule(form, near=5, name=f"{name}-{i}", reads=_ROUNDED)(function)
    for name, inner, function in (("gelu", _ERF, _gelu), ("gelu-tanh", _TANH, _gelu_tanh))
    for i, form in enumerate(_halved(inner))
]


@rule(call("mul", var("x"), call("sigmoid", var("x"))), near=10**6, name="silu")
def _silu(x: Any) -> Any:
    """x sigmoid(x) -> silu(x)."""
    return silu(x)


@rule(
    call("mul", var("x"), call("sigmoid", call("mul", var("x"), const("factor")))),
    near=3,
    name="quick-gelu",
    reads=_ROUNDED,
)
def _quick_gelu(x: Any, factor: Exact) -> Any:
    """x sigmoid(1.702 x) -> quick_gelu(x)."""
    if not _is(factor, x, value=1.702):
        raise NoMatch(f"x is multiplied by {factor}, not by 1.702")
    return quick_gelu(x)


_SQUARED = call("relu", var("x"), shared=True, name="once")


@rule(call("mul", _SQUARED, _SQUARED), near=10**6, name="relu2")
def _relu2(x: Any) -> Any:
    """relu(x) relu(x) -> relu2(x)."""
    return relu2(x)


@register_pass
class RecoverActivations(RulePass):
    """Activations that were written out."""

    name = "recover-activations"
    rules: ClassVar[list[Rule]] = [*_FORMS, _silu, _quick_gelu, _relu2]
