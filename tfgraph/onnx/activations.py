"""ONNX's activations. May import: site, registry, ops, ir, errors."""

from __future__ import annotations

from typing import Any

from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import exact
from tfgraph.onnx.registry import translates
from tfgraph.onnx.site import Site, Tensor


@translates("Gelu")
def _gelu(at: Site, x: Tensor, /, *, approximate: str = "none") -> Any:
    forms = {"none": ops.gelu, "tanh": ops.gelu_tanh}
    if approximate not in forms:
        raise TfgraphError(f"approximate is '{approximate}', expected 'none' or 'tanh'")
    return forms[approximate](at.tensor(x))


@translates("Swish")
def _swish(at: Site, x: Tensor, /, *, alpha: Any = 1) -> Any:
    value = at.tensor(x)
    return ops.silu(value) if exact(alpha) == exact(1) else value * ops.sigmoid(value * alpha)


@translates("HardSigmoid")
def _hard_sigmoid(at: Site, x: Tensor, /, *, alpha: Any = 0.2, beta: Any = 0.5) -> Any:
    return ops.maximum(ops.minimum(at.tensor(x) * alpha + beta, 1), 0)


@translates("HardSwish")
def _hard_swish(at: Site, x: Tensor, /) -> Any:
    value = at.tensor(x)
    return value * ops.maximum(ops.minimum(value / 6 + 0.5, 1), 0)


@translates("LeakyRelu")
def _leaky_relu(at: Site, x: Tensor, /, *, alpha: Any = 0.01) -> Any:
    value = at.tensor(x)
    return ops.where(ops.less(value, 0), value * alpha, value)


@translates("Elu")
def _elu(at: Site, x: Tensor, /, *, alpha: Any = 1) -> Any:
    value = at.tensor(x)
    return ops.where(ops.less(value, 0), ops.mul(ops.sub(ops.exp(value), 1), alpha), value)
