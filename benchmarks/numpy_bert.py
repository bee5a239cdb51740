"""A BERT encoder in NumPy, written to be fast: the opponent of `make bench`. Imports NumPy alone.

Float32 throughout. Weights lie as [in, out] with Q, K and V merged, and the softmax's scale is
folded into Q's. Products go to NumPy's multi-threaded BLAS, heads batched; the rest works in place,
block by block, so that its many passes run from cache. Devlin et al. 2018.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

BLOCK = 1 << 15
"""Floats in a block of rows: three such blocks, the most that a step touches, stay in L2."""


@dataclass(frozen=True)
class Config:
    """The sizes of a BERT encoder; the defaults are those of BERT-base."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    ffn: int = 3072
    vocabulary: int = 30522
    positions: int = 512
    token_types: int = 2
    eps: float = 1e-12


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """The weights that `Bert` takes: names and shapes."""
    n, ffn = config.width, config.ffn
    found: dict[str, tuple[int, ...]] = {
        "tokens": (config.vocabulary, n),
        "positions": (config.positions, n),
        "token_types": (config.token_types, n),
        "norm.scale": (n,),
        "norm.bias": (n,),
    }
    for i in range(config.layers):
        for name, size in {"q": (n, n), "k": (n, n), "v": (n, n), "out": (n, n),
                           "up": (n, ffn), "down": (ffn, n)}.items():  # fmt: skip
            found |= {f"{i}.{name}.weight": size, f"{i}.{name}.bias": size[1:]}
        for name in ("attention_norm", "ffn_norm"):
            found |= {f"{i}.{name}.scale": (n,), f"{i}.{name}.bias": (n,)}
    return found


@dataclass(frozen=True)
class _Norm:
    scale: Floats
    bias: Floats


@dataclass(frozen=True)
class _Linear:
    weight: Floats
    bias: Floats


@dataclass(frozen=True)
class _Layer:
    qkv: _Linear
    out: _Linear
    attention_norm: _Norm
    up: _Linear
    down: _Linear
    ffn_norm: _Norm


class Bert:
    """A BERT encoder: `Bert(config, weights)(ids, mask)` gives [batch, length, width]."""

    def __init__(self, config: Config, weights: Mapping[str, NDArray[Any]]) -> None:
        """Take the weights that `shapes` lists, as float32."""
        self.config = config
        w = {name: np.array(weights[name], np.float32) for name in shapes(config)}
        self._tokens, self._positions, self._types = w["tokens"], w["positions"], w["token_types"]
        self._norm = _Norm(w["norm.scale"], w["norm.bias"])
        self._layers = [_layer(config, w, i) for i in range(config.layers)]
        self._buffers: dict[tuple[int, int], _Buffers] = {}

    def __call__(
        self,
        ids: NDArray[np.integer[Any]],
        mask: NDArray[np.integer[Any]],
        token_types: NDArray[np.integer[Any]] | None = None,
    ) -> Floats:
        """The last hidden state, a new array.

        ids, mask and token_types: integers [batch, length]; the mask is 1 for tokens and 0 for
        padding, and each sequence has a token.
        """
        batch, length = ids.shape
        if (batch, length) not in self._buffers:
            self._buffers[batch, length] = _Buffers(self.config, batch, length)
        buffers = self._buffers[batch, length]
        x = self._embed(ids, token_types)
        hidden = None if mask.all() else np.where(mask, 0, -np.inf).astype(np.float32)
        for layer in self._layers:
            _attention(x, layer, hidden, buffers)
            _normalise(x, layer.attention_norm, self.config.eps)
            _feed_forward(x, layer, buffers)
            _normalise(x, layer.ffn_norm, self.config.eps)
        return x.reshape(batch, length, -1)

    def _embed(
        self, ids: NDArray[np.integer[Any]], token_types: NDArray[np.integer[Any]] | None
    ) -> Floats:
        x: Floats = np.take(self._tokens, ids, axis=0)
        x += self._positions[: ids.shape[1]]
        x += self._types[0] if token_types is None else np.take(self._types, token_types, axis=0)
        x = x.reshape(-1, self.config.width)
        _normalise(x, self._norm, self.config.eps)
        return x


class _Buffers:
    """What one forward pass writes, made once for a batch and length."""

    def __init__(self, config: Config, batch: int, length: int) -> None:
        rows, n, heads = batch * length, config.width, config.heads
        self.qkv: Floats = np.empty((rows, 3 * n), np.float32)
        parts = self.qkv.reshape(batch, length, 3, heads, n // heads).transpose(2, 0, 3, 1, 4)
        self.q, self.k, self.v = parts  # each [batch, heads, length, head size], views
        self.scores: Floats = np.empty((batch, heads, length, length), np.float32)
        self.context: Floats = np.empty((rows, n), np.float32)
        self.by_head = self.context.reshape(batch, length, heads, -1).transpose(0, 2, 1, 3)
        self.branch: Floats = np.empty((rows, n), np.float32)
        self.middle: Floats = np.empty((rows, config.ffn), np.float32)
        self.ones: Floats = np.ones((length, 1), np.float32)


def _layer(config: Config, w: Mapping[str, Floats], i: int) -> _Layer:
    """Layer i, its projections merged and the scale 1/sqrt(head size) moved into Q's."""

    def linear(name: str) -> _Linear:
        return _Linear(w[f"{i}.{name}.weight"], w[f"{i}.{name}.bias"])

    def norm(name: str) -> _Norm:
        return _Norm(w[f"{i}.{name}.scale"], w[f"{i}.{name}.bias"])

    scale = np.float32((config.width // config.heads) ** -0.5)
    q, k, v = (linear(name) for name in "qkv")
    qkv = _Linear(
        np.concatenate([q.weight * scale, k.weight, v.weight], axis=1),
        np.concatenate([q.bias * scale, k.bias, v.bias]),
    )
    norms = norm("attention_norm"), norm("ffn_norm")
    return _Layer(qkv, linear("out"), norms[0], linear("up"), linear("down"), norms[1])


def _attention(x: Floats, layer: _Layer, hidden: Floats | None, buffers: _Buffers) -> None:
    """x += softmax(Q K^T / sqrt(d)) V W + b, with -inf in `hidden` [batch, length] at padding."""
    np.matmul(x, layer.qkv.weight, out=buffers.qkv)
    buffers.qkv += layer.qkv.bias
    for q, k, v, scores, context, padding in zip(
        buffers.q,
        buffers.k,
        buffers.v,
        buffers.scores,
        buffers.by_head,
        [None] * len(buffers.q) if hidden is None else hidden,
        strict=True,
    ):
        np.matmul(q, k.transpose(0, 2, 1), out=scores)
        if padding is not None:
            scores += padding
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        np.matmul(scores, v, out=context)
        context /= scores @ buffers.ones  # the rows' sums: fewer divisions than of the scores
    np.matmul(buffers.context, layer.out.weight, out=buffers.branch)
    for rows in _blocks(x):
        x[rows] += buffers.branch[rows]
        x[rows] += layer.out.bias


def _feed_forward(x: Floats, layer: _Layer, buffers: _Buffers) -> None:
    """x += gelu(x W + b) W' + b'."""
    np.matmul(x, layer.up.weight, out=buffers.middle)
    for rows in _blocks(buffers.middle):
        buffers.middle[rows] += layer.up.bias
        gelu(buffers.middle[rows])
    np.matmul(buffers.middle, layer.down.weight, out=buffers.branch)
    for rows in _blocks(x):
        x[rows] += buffers.branch[rows]
        x[rows] += layer.down.bias


def _normalise(x: Floats, norm: _Norm, eps: float) -> None:
    """Layer norm of each row, in place."""
    width = x.shape[1]
    mean = np.full(width, 1 / width, np.float32)
    for rows in _blocks(x):
        block = x[rows]
        block -= (block @ mean)[:, None]
        variance = np.einsum("ij,ij->i", block, block) / np.float32(width)
        block *= (1 / np.sqrt(variance + np.float32(eps)))[:, None]
        block *= norm.scale
        block += norm.bias


def _blocks(x: Floats) -> Iterator[slice]:
    """Blocks of whole rows of about BLOCK floats."""
    step = max(1, BLOCK // x.shape[1])
    return (slice(start, start + step) for start in range(0, len(x), step))


# -Q(x^2), highest power first, where x Q(x^2) = 2 atanh(erf(x / sqrt 2)); fitted so that the
# largest error of x / (1 + exp(-x Q(x^2))) is least. Its sign is right however large x is.
_GELU = (
    -2.2252622405699413e-06,
    6.0934375721728255e-05,
    2.509525191474378e-04,
    -7.293986175363158e-02,
    -1.5956551531614187,
)


def gelu(x: Floats) -> None:
    """x Phi(x) with the normal distribution's Phi, in place; off by less than 4e-6 anywhere.

    Phi(x) = 1 / (1 + exp(-2 atanh(erf(x / sqrt 2)))), and NumPy has a fast exp but no erf.
    Hendrycks and Gimpel 2016.
    """
    square = x * x
    power = square * np.float32(_GELU[0])
    for coefficient in _GELU[1:-1]:
        power += np.float32(coefficient)
        power *= square
    power += np.float32(_GELU[-1])
    power *= x
    with np.errstate(over="ignore"):  # far below zero it is x / inf, and should be
        np.exp(power, out=power)
    power += np.float32(1)
    x /= power
