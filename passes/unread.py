"""Why masks keep no structure, in words, for the report: what a condition or a bias depends on.

May import: draft, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgraph.ir import mask as masks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgraph.ir import Mask, Value
    from tfgraph.passes.draft import Draft

_PRODUCTS = ("matmul", "linear", "embedding", "softmax", "attention", "weighted_sum")
"""What computes activations: what these are made of says no more."""
_FEW = 3


def unread(parts: Sequence[Mask], graph: Draft) -> str:
    """Why each mask without structure has none; empty where all have."""
    reasons: list[str] = []
    for part in parts:
        match part:
            case masks.Dense(allowed):
                said = f"dense(%{allowed.value.name}) has no structure that is known"
                reasons.append(f"{said}: {_made_of(allowed.value, graph)}")
            case masks.Bias(values):
                said = f"bias(%{values.value.name}) is no slopes and no buckets of distances"
                reasons.append(f"{said}: {_made_of(values.value, graph)}")
            case _:
                pass
    return "; ".join(reasons)


def _made_of(value: Value, graph: Draft) -> str:
    found = [f"%{v.name}" for v in _sources(value, graph)]
    if not found:
        return "its elements are constants"
    return f"it is computed from {', '.join(found[:_FEW])}{', ...' * (len(found) > _FEW)}"


def _sources(value: Value, graph: Draft) -> list[Value]:
    """The inputs and activations that a value is computed from, nearest first."""
    queue = [value]
    found: list[Value] = []
    for at in queue:
        node = graph.producer.get(at)
        if node is not None and node.op not in _PRODUCTS:
            queue += [v for v in dict.fromkeys(node.inputs) if v not in queue]
        elif at not in graph.param_values:
            found.append(at)
    return found
