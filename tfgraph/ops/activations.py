"""Activations: composite ops, so each is its own reference and expansion.

May import: the core ops, define, infer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tfgraph.ir import Exact, TensorType, exact, rsqrt
from tfgraph.ir.exact import call
from tfgraph.ops.define import OpDef, find_op, op
from tfgraph.ops.elementwise import add, div, erf, exp, maximum, mul, neg, tanh
from tfgraph.ops.infer import require_float

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.ops.array import Array


def _float(x: TensorType) -> TensorType:
    require_float(x)
    return x


@op(infer=_float, onnx="Relu", kind="composite")
def relu(x: Array, /) -> Array:
    """max(x, 0)."""
    return maximum(x, 0)


@op(infer=_float, kind="composite")
def relu2(x: Array, /) -> Array:
    """The square of max(x, 0). So et al. 2021."""
    y = maximum(x, 0)
    return mul(y, y)


@op(infer=_float, onnx="Sigmoid", kind="composite")
def sigmoid(x: Array, /) -> Array:
    """1 / (1 + exp(-x))."""
    return div(1, add(1, exp(neg(x))))


@op(infer=_float, kind="composite")
def silu(x: Array, /) -> Array:
    """x sigmoid(x). Hendrycks and Gimpel 2016."""
    return div(x, add(1, exp(neg(x))))


@op(infer=_float, onnx="Gelu", kind="composite")
def gelu(x: Array, /) -> Array:
    """x Phi(x) = x (1 + erf(x / sqrt(2))) / 2. Hendrycks and Gimpel 2016."""
    return mul(mul(x, 0.5), add(1, erf(mul(x, rsqrt(2)))))


# 2/pi to 20 digits, under a square root: the constant of the tanh form.
_SQRT_2_OVER_PI = call("sqrt", Exact(exact(0.6366197723675814).factor))


@op(infer=_float, kind="composite")
def gelu_tanh(x: Array, /) -> Array:
    """x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2, the tanh form of GELU."""
    cubic = mul(mul(mul(x, x), x), 0.044715)
    return mul(mul(x, 0.5), add(1, tanh(mul(add(x, cubic), _SQRT_2_OVER_PI))))


@op(infer=_float, kind="composite")
def quick_gelu(x: Array, /) -> Array:
    """x sigmoid(1.702 x), the sigmoid form of GELU."""
    return div(x, add(1, exp(neg(mul(x, 1.702)))))


ACTIVATIONS = ("relu", "relu2", "sigmoid", "silu", "gelu", "gelu_tanh", "quick_gelu", "tanh")


def activation(name: str) -> Callable[[Array], Array]:
    """The op of an activation's name. Raises TfgraphError with the nearest name for another."""
    from tfgraph.errors import TfgraphError, nearest
    from tfgraph.ops.define import apply_op

    if name not in ACTIVATIONS:
        hint = nearest(name, ACTIVATIONS) or f"one of {', '.join(ACTIVATIONS)}"
        raise TfgraphError(f"unknown activation '{name}'", hint=hint)
    definition: OpDef = find_op(name)
    return lambda x: cast("Array", apply_op(definition, (x,), {}))
