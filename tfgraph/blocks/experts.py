"""Mixture of experts, dense: every expert computes every token, and a token's sum takes those that
the router chose. So a token's result depends on nothing but the token. May import: basic, ops, ir.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from tfgraph import ops
from tfgraph.blocks.basic import feed_forward, labelled, linear, require_size, width_of
from tfgraph.errors import TfgraphError
from tfgraph.ir import as_dim

if TYPE_CHECKING:
    from tfgraph.ops import Array, Traced


@dataclass(frozen=True)
class Experts:
    """How many feed-forward networks stand beside each other, and how many serve a token.

    With `normalise` the weights of those that serve it sum to 1. `shared` is the width of another
    network that serves all tokens.
    """

    count: int
    active: int = 2
    normalise: bool = True
    shared: int | None = None

    def __post_init__(self) -> None:
        require_size("experts: count", self.count)
        require_size("experts: active", self.active)
        if self.active > self.count:
            raise TfgraphError(f"{self.active} active experts of {self.count}")
        if self.shared is not None:
            require_size("experts: shared", self.shared)


def mixture_of_experts(
    x: Array,
    width: int,
    experts: Experts,
    *,
    activation: str = "silu",
    gated: bool = True,
    bias: bool = False,
    name: str = "ffn",
) -> Traced:
    """sum_e w_e(x) expert_e(x) over feed-forward networks of that width; x [batch, s, width] stays.

    w is softmax(x R) where it is among the `active` largest of the token (the expert of the lower
    number where two are equal), else exactly 0, and a weight of 0 takes nothing, be the expert's
    result NaN. Shazeer et al. 2017; softmax first, then top-k: Fedus et al. 2021, Mixtral 2024;
    shared expert: Dai et al. 2024.
    """
    builder = ops.current()
    name = builder.unique(name)

    def expert(y: Array, middle: int, name: str) -> Traced:
        return feed_forward(y, middle, activation=activation, gated=gated, bias=bias, name=name)

    with builder.scope(name):
        probabilities = ops.softmax(linear(x, experts.count, bias=False, name="router"))
        labelled(probabilities, "probabilities")
        weights = labelled(_chosen(probabilities, experts), "weights")
        lead, size = tuple(x.shape[:-1]), as_dim(width_of(x))
        results = [expert(x, width, f"experts.{i}") for i in range(experts.count)]
        rows = [ops.reshape(y, shape=(*lead, as_dim(1), size)) for y in results]
        row = ops.reshape(weights, shape=(*lead, as_dim(1), as_dim(experts.count)))
        mixed = ops.weighted_sum(row, ops.concat(*rows, axis=len(lead)))
        y = ops.reshape(mixed, shape=(*lead, size))
        if experts.shared is not None:
            y = ops.add(y, expert(x, experts.shared, "shared"))
    return labelled(y, name)


def _chosen(probabilities: Array, experts: Experts) -> Traced:
    """The largest of the probabilities [..., experts], the others exactly 0."""
    values, indices = ops.topk(probabilities, k=experts.active)
    if experts.normalise:
        values = ops.div(values, ops.sum_(values, keepdims=True))
    lead, k = tuple(values.shape[:-1]), as_dim(experts.active)
    here = ops.equal(
        ops.reshape(indices, shape=(*lead, k, as_dim(1))), ops.iota(length=experts.count)
    )
    zeros = ops.full(shape=(1,), value=0, dtype=values.dtype)
    placed = ops.where(here, ops.reshape(values, shape=(*lead, k, as_dim(1))), zeros)
    return cast("Traced", ops.sum_(placed, axis=len(lead)))
