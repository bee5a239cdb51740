"""The functions of which all forward passes are made."""

from __future__ import annotations

from collections.abc import Callable
from math import erf
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Tensors = dict[str, Array]
Config = dict[str, Any]
Shapes = dict[str, tuple[int, ...]]


def layer_norm(x: Array, scale: Array | None, bias: Array | None, eps: float) -> Array:
    """(x - mean) / sqrt(variance + eps) over the last axis, scaled and shifted."""
    centred = x - x.mean(-1, keepdims=True)
    y = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    y = y if scale is None else y * scale
    return np.asarray(y if bias is None else y + bias)


def rms_norm(x: Array, scale: Array, eps: float) -> Array:
    """x / sqrt(mean(x^2) + eps) over the last axis, scaled."""
    return np.asarray(x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * scale)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def gelu(x: Array) -> Array:
    return np.asarray(x * (1 + np.vectorize(erf)(x / np.sqrt(2))) / 2)


def gelu_tanh(x: Array) -> Array:
    return np.asarray(x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2)


def silu(x: Array) -> Array:
    return np.asarray(x / (1 + np.exp(-x)))


def quick_gelu(x: Array) -> Array:
    return np.asarray(x / (1 + np.exp(-1.702 * x)))


def split(x: Array, heads: int) -> Array:
    """[b, s, h*d] to [b, h, s, d]."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def merge(x: Array) -> Array:
    """[b, h, s, d] to [b, s, h*d]."""
    b, h, s, d = x.shape
    return x.transpose(0, 2, 1, 3).reshape(b, s, h * d)


def attend(
    q: Array,
    k: Array,
    v: Array,
    allowed: Array,
    scale: float,
    bias: Array | float = 0.0,
    cap: float | None = None,
) -> Array:
    """Attention of q [b, h, s, d] to k, v [b, g, t, d], each for h / g heads; `allowed` is bool,
    `bias` is added to the scaled scores."""
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = q @ k.transpose(0, 1, 3, 2) * scale
    if cap is not None:
        scores = cap * np.tanh(scores / cap)
    scores = np.where(allowed, scores + bias, -1e30)
    return softmax(scores) @ v


def causal(mask: Array, window: int | None = None) -> Array:
    """Which keys [b, 1, s, s] each query sees: not later ones, nor padding, nor those that are
    `window` tokens back or more."""
    i, j = np.arange(mask.shape[1])[:, None], np.arange(mask.shape[1])
    seen = (j <= i) & ((i - j) < window if window else True)
    return seen & (mask[:, None, None, :] == 1)


def frequencies(size: int, base: float) -> Array:
    """base^(-2i/size) of the pairs of a head."""
    return np.asarray(base ** (-np.arange(0, size, 2) / size))


def turn_halves(x: Array, angles: Array) -> Array:
    """x [b, h, s, d] turned by angles [s, d/2]: pairs are i and d/2 + i."""
    half = angles.shape[-1]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    c, s = np.cos(angles), np.sin(angles)
    return np.concatenate([a * c - b * s, b * c + a * s, rest], -1)


def turn_pairs(x: Array, angles: Array) -> Array:
    """x [b, h, s, d] turned by angles [s, d/2]: pairs are 2i and 2i + 1."""
    a, b = x[..., 0::2], x[..., 1::2]
    c, s = np.cos(angles), np.sin(angles)
    return np.stack([a * c - b * s, b * c + a * s], -1).reshape(x.shape)


def affine(x: Array, t: Tensors, name: str) -> Array:
    """A linear layer of PyTorch: x W^T + b."""
    y = x @ t[f"{name}.weight"].T
    return np.asarray(y + t[f"{name}.bias"] if f"{name}.bias" in t else y)


def dense(name: str, out: int, inner: int, bias: bool = True) -> Shapes:
    """A linear layer's tensors."""
    return {f"{name}.weight": (out, inner)} | ({f"{name}.bias": (out,)} if bias else {})


def norm_of(name: str, width: int, bias: bool = True) -> Shapes:
    """A norm's tensors."""
    return {f"{name}.weight": (width,)} | ({f"{name}.bias": (width,)} if bias else {})


Activation = Callable[[Array], Array]
