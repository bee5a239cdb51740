"""Activations that a GEMM applies to its result, as expressions over one float32.

The names are those of the `activation` attribute of `linear_activation`. May import: tvm, errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import tirx

from tfgraph.backends.tvm.cuda.kernel import f32
from tfgraph.errors import TfgraphError, nearest


def relu(x: Any) -> Any:
    """max(x, 0); NaN stays NaN."""
    return tirx.Select(x < f32(0), f32(0), x)


def gelu(x: Any) -> Any:
    """x * Phi(x), Phi the normal distribution function (Hendrycks and Gimpel, 2016)."""
    return f32(0.5) * x * (f32(1) + tirx.erf(x * f32(math.sqrt(0.5))))


def gelu_tanh(x: Any) -> Any:
    """The tanh approximation of gelu (Hendrycks and Gimpel, 2016)."""
    inner = f32(math.sqrt(2 / math.pi)) * (x + f32(0.044715) * x * x * x)
    return f32(0.5) * x * (f32(1) + tirx.tanh(inner))


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return f32(1) / (f32(1) + tirx.exp(-x))


def silu(x: Any) -> Any:
    """x * sigmoid(x)."""
    return x / (f32(1) + tirx.exp(-x))


def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    return tirx.tanh(x)


def relu2(x: Any) -> Any:
    """relu(x)^2 (So et al., 2021, Primer)."""
    positive = relu(x)
    return positive * positive


def quick_gelu(x: Any) -> Any:
    """x * sigmoid(1.702 x) (Hendrycks and Gimpel, 2016, section 2)."""
    return x / (f32(1) + tirx.exp(f32(-1.702) * x))


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    f.__name__: f for f in (relu, relu2, sigmoid, tanh, silu, gelu, gelu_tanh, quick_gelu)
}


def activation(name: str, x: Any) -> Any:
    """The float32 expression name(x); raises TfgraphError for a name without CUDA code."""
    if name not in ACTIVATIONS:
        raise TfgraphError(
            f"activation '{name}' has no CUDA code",
            hint=nearest(name, ACTIVATIONS) or f"known are {', '.join(ACTIVATIONS)}",
        )
    return ACTIVATIONS[name](x)
