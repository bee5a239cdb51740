"""What stands on top of a stack: poolers, language model heads, classifiers.

May import: basic, ops, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tfgraph import ops
from tfgraph.blocks.basic import labelled, linear, norm, require_size, width_of
from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from tfgraph.ir import ExactLike
    from tfgraph.ops import Array, Traced


def first_token(x: Array) -> Traced:
    """The vector of the first position: [batch, seq, width] to [batch, width]."""
    if len(x.shape) != 3:
        raise TfgraphError(f"expected [batch, seq, width], got {x.type}")
    batch, _, width = x.shape
    return cast("Traced", ops.reshape(ops.slice_(x, axis=1, start=0, stop=1), shape=(batch, width)))


def pooler(x: Array, *, activation: str = "tanh", name: str = "pooler") -> Traced:
    """activation(linear(first token)): [batch, seq, width] to [batch, width].

    Devlin et al. 2018.
    """
    builder = ops.current()
    name = builder.unique(name)
    with builder.scope(name):
        y = linear(first_token(x), width_of(x), name="dense")
    return labelled(ops.activation(activation)(y), name)


def vocabulary_transform(
    x: Array,
    width: int,
    *,
    activation: str = "gelu",
    kind: str = "layer_norm",
    eps: ExactLike = 1e-5,
    name: str = "transform",
) -> Traced:
    """norm(activation(linear(x))), which stands before the masked language model's head: x
    [..., in] to [..., width]. Devlin et al. 2018, as in the implementation."""
    builder = ops.current()
    name = builder.unique(name)
    with builder.scope(name):
        y = ops.activation(activation)(linear(x, width, name="dense"))
        y = norm(y, kind=kind, eps=eps, name="norm")
    return labelled(y, name)


def lm_head(
    x: Array,
    vocabulary: int,
    *,
    table: Traced | None = None,
    bias: bool = False,
    name: str = "lm_head",
) -> Traced:
    """Logits [..., vocabulary]. With `table` [vocabulary, width], that of the tokens, the head is
    tied to it: x table^T (Press and Wolf 2017); else it has a `weight` of its own."""
    require_size(f"{name}: the vocabulary", vocabulary)
    if table is None:
        return linear(x, vocabulary, bias=bias, name=name)
    builder = ops.current()
    name = builder.unique(name)
    with builder.scope(name):
        b = builder.param("bias", x.dtype, vocabulary) if bias else None
        logits = ops.linear(x, ops.transpose(table, perm=(1, 0)), b)
    return labelled(logits, name)


def classifier(
    x: Array, labels: int, *, activation: str | None = None, name: str = "classifier"
) -> Traced:
    """Logits of a row's class: [batch, width] to [batch, labels], after a dense layer with
    `activation` where one is given (Sanh et al. 2019)."""
    require_size(f"{name}: the number of labels", labels)
    builder = ops.current()
    name = builder.unique(name)
    with builder.scope(name):
        if activation is not None:
            x = ops.activation(activation)(linear(x, width_of(x), name="dense"))
        y = linear(x, labels, name="out")
    return labelled(y, name)
