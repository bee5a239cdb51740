"""A BERT encoder in NumPy as one writes it from the paper: the second opponent of `make bench`.

Float32, weights as [in, out], heads batched, NumPy's multi-threaded BLAS; nothing merged, blocked
or in place. `numpy_bert.py` is the same model tuned. Devlin et al. 2018. Imports NumPy alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class PlainBert:
    """`PlainBert(config, weights)(ids, mask)` gives [batch, length, width]; see `numpy_bert`."""

    def __init__(self, config: Any, weights: Mapping[str, NDArray[Any]]) -> None:
        self.config = config
        self.w = {name: np.asarray(array, np.float32) for name, array in weights.items()}

    def __call__(
        self, ids: NDArray[Any], mask: NDArray[Any], token_types: NDArray[Any] | None = None
    ) -> Floats:
        """The last hidden state."""
        w = self.w
        types = np.zeros_like(ids) if token_types is None else token_types
        x = w["tokens"][ids] + w["positions"][: ids.shape[1]] + w["token_types"][types]
        x = self.norm(x, "norm")
        hidden = np.where(mask, 0, -np.inf).astype(np.float32)[:, None, None, :]
        for i in range(self.config.layers):
            x = self.norm(x + self.attention(x, hidden, i), f"{i}.attention_norm")
            middle = gelu(self.linear(x, f"{i}.up"))
            x = self.norm(x + self.linear(middle, f"{i}.down"), f"{i}.ffn_norm")
        return x

    def attention(self, x: Floats, hidden: Floats, i: int) -> Floats:
        """softmax(Q K^T / sqrt(d)) V W + b, with -inf in `hidden` at padding."""
        batch, length, width = x.shape
        heads = self.config.heads

        def split(name: str) -> Floats:
            y = self.linear(x, f"{i}.{name}").reshape(batch, length, heads, width // heads)
            return y.transpose(0, 2, 1, 3)

        q, k, v = split("q"), split("k"), split("v")
        scores = q @ k.transpose(0, 1, 3, 2) / np.float32(math.sqrt(width // heads)) + hidden
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        context = (weights @ v).transpose(0, 2, 1, 3).reshape(batch, length, width)
        return self.linear(context, f"{i}.out")

    def linear(self, x: Floats, name: str) -> Floats:
        """x W + b."""
        y: Floats = x @ self.w[f"{name}.weight"] + self.w[f"{name}.bias"]
        return y

    def norm(self, x: Floats, name: str) -> Floats:
        """Layer norm over the last axis."""
        centered = x - x.mean(-1, keepdims=True)
        variance = (centered * centered).mean(-1, keepdims=True)
        y: Floats = centered / np.sqrt(variance + np.float32(self.config.eps))
        return y * self.w[f"{name}.scale"] + self.w[f"{name}.bias"]


# Abramowitz and Stegun 1964, 7.1.26: erf to 1.5e-7. NumPy has none.
_ERF = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


def gelu(x: Floats) -> Floats:
    """x (1 + erf(x / sqrt 2)) / 2, Hendrycks and Gimpel 2016."""
    z = np.abs(x) * np.float32(math.sqrt(0.5))
    t = np.float32(1) / (np.float32(1) + np.float32(0.3275911) * z)
    power = np.zeros_like(t)
    for coefficient in reversed(_ERF):
        power = (power + np.float32(coefficient)) * t
    erf = np.copysign(np.float32(1) - power * np.exp(-z * z), x)
    y: Floats = x * (np.float32(1) + erf) * np.float32(0.5)
    return y
