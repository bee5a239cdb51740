"""Functions without parameters that stand behind a model: losses, and sorting that is smooth.

May import: ops, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import Exact, as_dim, exact

if TYPE_CHECKING:
    from tfgraph.ir import ExactLike
    from tfgraph.ops import Array, Traced

IGNORED = -100
"""The label of positions that have no loss."""


def cross_entropy(logits: Array, labels: Array) -> Traced:
    """-log softmax(logits)[label] of each position: logits [..., classes] and integer labels [...]
    to [...]; 0 where the label is -100, and NaN for another that is no class."""
    if logits.type.rank < 1 or labels.shape != logits.shape[:-1]:
        raise TfgraphError(f"cross_entropy: labels {labels.type} are not those of {logits.type}")
    classes = logits.shape[-1]
    shifted = ops.sub(logits, ops.max_(logits, keepdims=True))
    total = ops.log(ops.sum_(ops.exp(shifted)))
    column = ops.reshape(labels, shape=(*labels.shape, as_dim(1)))
    here = ops.equal(column, ops.cast(ops.iota(length=classes), dtype=labels.dtype))
    zeros = ops.full(shape=(1,), value=0, dtype=logits.dtype)
    chosen = ops.sum_(ops.where(here, shifted, zeros))
    # A label that is no class is found nowhere: the quotient is then 0 / 0.
    found = ops.sum_(ops.cast(here, dtype=logits.dtype))
    loss = ops.div(ops.mul(ops.sub(total, chosen), found), found)
    ignored = ops.equal(labels, IGNORED)
    return cast("Traced", ops.where(ignored, zeros, loss))


def soft_sort(scores: Array, *, tau: ExactLike = 1) -> Traced:
    """softmax(((n + 1 - 2i) s - A 1) / tau) with A[i, j] = |s_i - s_j|: [..., n] to [..., n, n].

    Rows sum to 1; as tau goes to 0, row i is one at the place of the i-th largest score. Grover et
    al. 2019 (NeuralSort), equation 5.
    """
    temperature = exact(tau)
    if temperature.calls or temperature.factor <= 0:
        raise TfgraphError(f"soft_sort: tau is {temperature}, expected a positive rational")
    lead, n = tuple(scores.shape[:-1]), scores.shape[-1]
    row = ops.reshape(scores, shape=(*lead, as_dim(1), n))
    column = ops.reshape(scores, shape=(*lead, n, as_dim(1)))
    distances = ops.sum_(ops.abs_(ops.sub(row, column)), axis=-2, keepdims=True)
    count = ops.iota(length=n)  # i - 1, so that n + 1 - 2i is its maximum less twice itself
    factors = ops.sub(ops.max_(count, keepdims=True), ops.mul(count, 2))
    factors = ops.reshape(ops.cast(factors, dtype=scores.dtype), shape=(n, as_dim(1)))
    logits = ops.sub(ops.mul(factors, row), distances)
    return cast("Traced", ops.softmax(ops.mul(logits, Exact(1 / temperature.factor))))
