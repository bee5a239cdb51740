"""Activation functions on float32 vectors, for the epilogues of kernels.

The names are those of the `activation` attribute of `linear_activation`. May import:
tfgraph.backends.tvm.cpu, errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import tirx

from tfgraph.backends.tvm.cpu import vector_math
from tfgraph.backends.tvm.cpu.emit import hold
from tfgraph.errors import TfgraphError, nearest


def relu(x: Any) -> Any:
    """max(x, 0). A NaN stays NaN."""
    return tirx.Select(x < _like(x, 0.0), _like(x, 0.0), x)


def relu2(x: Any) -> Any:
    """relu(x)**2 (So et al. 2021, Primer)."""
    positive = relu(x)
    return positive * positive


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return vector_math.sigmoid(x)


def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    return vector_math.tanh(x)


def silu(x: Any) -> Any:
    """x * sigmoid(x), also called swish."""
    return x * vector_math.sigmoid(x)


def gelu(x: Any) -> Any:
    """x * Phi(x), Phi the normal distribution function (Hendrycks & Gimpel 2016)."""
    x = hold(x)
    return x * vector_math.normal_cdf(x)


def gelu_tanh(x: Any) -> Any:
    """gelu approximated as x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (ibid., section 2)."""
    inner = _like(x, math.sqrt(2.0 / math.pi)) * (x + _like(x, 0.044715) * x * x * x)
    return _like(x, 0.5) * x * (_like(x, 1.0) + vector_math.tanh(inner))


def quick_gelu(x: Any) -> Any:
    """x * sigmoid(1.702 x) (ibid., section 2; used by CLIP)."""
    return x * vector_math.sigmoid(_like(x, 1.702) * x)


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": relu,
    "relu2": relu2,
    "sigmoid": sigmoid,
    "tanh": tanh,
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "quick_gelu": quick_gelu,
}


def activation(name: str, x: Any) -> Any:
    """The float32 expression name(x), for a scalar or a vector `x`."""
    if name not in ACTIVATIONS:
        raise TfgraphError(
            f"activation '{name}' has no CPU code",
            hint=nearest(name, ACTIVATIONS) or f"known are {', '.join(ACTIVATIONS)}",
        )
    return ACTIVATIONS[name](x)


def _like(x: Any, value: float) -> Any:
    """`value` in the type of x: a float32, or as many of it as x has lanes."""
    return tirx.const(value, x.ty.dtype)
