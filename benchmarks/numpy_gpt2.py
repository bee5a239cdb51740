"""A GPT-2 decoder in NumPy, written to be fast: the opponent in generation. Imports NumPy alone.

As `numpy_bert.py`: float32, [in, out] weights, Q, K and V merged, the softmax's scale in Q's,
NumPy's multi-threaded BLAS, everything else in place. Keys and values are kept in arrays made once;
only the last position's logits are computed. Radford et al. 2019.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Config:
    """The sizes of a GPT-2; the defaults are those of the smallest."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    ffn: int = 3072
    vocabulary: int = 50257
    positions: int = 1024
    eps: float = 1e-5


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """The weights that `Gpt2` takes: names and shapes."""
    n, ffn = config.width, config.ffn
    found: dict[str, tuple[int, ...]] = {
        "tokens": (config.vocabulary, n),
        "positions": (config.positions, n),
        "final_norm.scale": (n,),
        "final_norm.bias": (n,),
    }
    for i in range(config.layers):
        for name, size in {"q": (n, n), "k": (n, n), "v": (n, n), "out": (n, n),
                           "up": (n, ffn), "down": (ffn, n)}.items():  # fmt: skip
            found |= {f"{i}.{name}.weight": size, f"{i}.{name}.bias": size[1:]}
        for name in ("attention_norm", "ffn_norm"):
            found |= {f"{i}.{name}.scale": (n,), f"{i}.{name}.bias": (n,)}
    return found


class Gpt2:
    """`Gpt2(config, weights).feed(ids)` gives the logits [vocabulary] behind one sequence."""

    def __init__(self, config: Config, weights: Mapping[str, NDArray[Any]]) -> None:
        """Take the weights that `shapes` lists, as float32."""
        self.config, self.length = config, 0
        w = {name: np.array(weights[name], np.float32) for name in shapes(config)}
        scale = np.float32((config.width // config.heads) ** -0.5)
        for i in range(config.layers):
            parts = [[w.pop(f"{i}.{n}.{kind}") for n in "qkv"] for kind in ("weight", "bias")]
            for kind, (q, k, v) in zip(("weight", "bias"), parts, strict=True):
                w[f"{i}.qkv.{kind}"] = np.concatenate([q * scale, k, v], axis=-1)
        self.w = w
        size = config.width // config.heads
        cache = (config.layers, 2, config.heads, config.positions, size)
        self.cache: Floats = np.empty(cache, np.float32)

    def feed(self, ids: NDArray[np.integer[Any]]) -> Floats:
        """The logits after the tokens ids [n], which are seen from then on."""
        w, start = self.w, self.length
        end = start + len(ids)
        x = w["tokens"][ids]
        x += w["positions"][start:end]
        for i in range(self.config.layers):
            x += self._attention(self._norm(x, f"{i}.attention_norm"), i, start, end)
            middle = self._linear(self._norm(x, f"{i}.ffn_norm"), f"{i}.up")
            gelu_tanh(middle)
            x += self._linear(middle, f"{i}.down")
        self.length = end
        last = self._norm(x[-1:], "final_norm")[0]
        logits: Floats = w["tokens"] @ last
        return logits

    def _attention(self, x: Floats, i: int, start: int, end: int) -> Floats:
        """softmax(Q K^T / sqrt(d) + causal) V W + b; K and V are written into the cache."""
        rows, heads = len(x), self.config.heads
        qkv = self._linear(x, f"{i}.qkv").reshape(rows, 3, heads, -1).transpose(1, 2, 0, 3)
        self.cache[i, :, :, start:end] = qkv[1:]
        k, v = self.cache[i, :, :, :end]
        scores = qkv[0] @ k.transpose(0, 2, 1)
        if rows > 1:
            hidden = np.arange(end) > np.arange(start, end)[:, None]
            scores[:, hidden] = -np.inf
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        context = scores @ v
        context /= scores.sum(axis=-1, keepdims=True)
        return self._linear(context.transpose(1, 0, 2).reshape(rows, -1), f"{i}.out")

    def _linear(self, x: Floats, name: str) -> Floats:
        """x W + b."""
        y: Floats = x @ self.w[f"{name}.weight"]
        y += self.w[f"{name}.bias"]
        return y

    def _norm(self, x: Floats, name: str) -> Floats:
        """Layer norm over the last axis."""
        y: Floats = x - x.mean(axis=-1, keepdims=True)
        variance = np.einsum("rn,rn->r", y, y)[:, None] / np.float32(x.shape[1])
        y /= np.sqrt(variance + np.float32(self.config.eps))
        y *= self.w[f"{name}.scale"]
        y += self.w[f"{name}.bias"]
        return y


def gelu_tanh(x: Floats) -> None:
    """x becomes x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, Hendrycks and Gimpel 2016."""
    inner = x * x
    inner *= np.float32(0.044715 * math.sqrt(2 / math.pi))
    inner += np.float32(math.sqrt(2 / math.pi))
    inner *= x
    np.tanh(inner, out=inner)
    inner += np.float32(1)
    x *= inner
    x *= np.float32(0.5)
