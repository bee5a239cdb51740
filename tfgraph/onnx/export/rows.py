"""Where a row may be -inf all along: ONNX's Softmax makes NaN of it, and ours zeros.

A mask hides no whole row where all its parts surely allow the same key, the first or the query's
own. May import: ir.
"""

from __future__ import annotations

from enum import IntEnum
from functools import singledispatch
from typing import TYPE_CHECKING

from tfgraph.ir import Mask, Value, as_dim
from tfgraph.ir.mask import Alibi, Bias, Causal, Prefix, Relative, Segments, Window

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgraph.ir import Dim, Graph, Node, TensorType


class Low(IntEnum):
    """Where a value may be -inf: nowhere, not all along its last axis, or all along."""

    NOWHERE = 0
    SOME = 1
    ROWS = 2


_ARITHMETIC = ("add", "sub", "mul", "div", "neg", "maximum", "minimum", "where", "cast")
_MOVES = ("reshape", "transpose", "broadcast_to", "concat", "slice", "take")


def find_low(graph: Graph) -> Mapping[Value, Low]:
    """How low each value may be. Inputs hold anything; products and norms, and so what is
    calculated of them, are finite."""
    low = {i.value: Low.ROWS for i in graph.inputs if i.value.type.dtype.is_float}
    for node in graph.nodes:
        low |= dict.fromkeys(node.outputs, _of_node(node, low))
    return low


def _of_node(node: Node, low: Mapping[Value, Low]) -> Low:
    if node.op == "log":
        return Low.ROWS
    if node.op == "mask":
        scores, m = node.operands
        assert isinstance(scores, Value)
        assert isinstance(m, Mask)
        return _both(low.get(scores, Low.NOWHERE), _of_mask(m, scores.type, low))
    found = [low.get(value, Low.NOWHERE) for value in node.inputs]
    if node.op in _MOVES:
        return Low.ROWS if any(found) else Low.NOWHERE
    if node.op in _ARITHMETIC:
        total = Low.NOWHERE
        for each in found:
            total = _both(total, each)
        return total
    return Low.NOWHERE


def _both(a: Low, b: Low) -> Low:
    """Two that are low in places may together be low all along."""
    return max(a, b) if Low.NOWHERE in (a, b) else Low.ROWS


def _of_mask(m: Mask, scores: TensorType, low: Mapping[Value, Low]) -> Low:
    """How low a mask makes scores that are finite."""
    hiding = Low.NOWHERE
    sure = {"first", "self"}
    for part in m.parts:
        if isinstance(part, Bias):
            hiding = _both(hiding, low.get(part.values, Low.NOWHERE))
        elif not isinstance(part, Alibi | Relative):
            hiding = max(hiding, Low.SOME)
            sure &= _allows(part, scores)
    return hiding if sure or not hiding else Low.ROWS


@singledispatch
def _allows(part: Mask, scores: TensorType) -> set[str]:
    """Which of the first key and the query's own every query may surely attend to."""
    return set()


@_allows.register(Causal)
@_allows.register(Prefix)
def _not_after(part: Causal | Prefix, scores: TensorType) -> set[str]:
    return {"first"} | _own(part.offset, scores) if _at_least_0(part.offset) else set()


@_allows.register(Window)
def _near(part: Window, scores: TensorType) -> set[str]:
    first = {"first"} if part.left is None and _at_least_0(part.offset) else set[str]()
    return first | _own(part.offset, scores)


@_allows.register(Segments)
def _same_segment(part: Segments, scores: TensorType) -> set[str]:
    return {"self"} if part.query == part.key else set()


def _own(offset: Dim | None, scores: TensorType) -> set[str]:
    """A query's own key is there where the queries end before the keys do."""
    queries, keys = scores.shape[-2:]
    start = offset or as_dim(0)
    inside = _at_least_0(start) and _at_least_0(keys - queries - start)
    return {"self"} if inside else set()


def _at_least_0(dim: Dim | None) -> bool:
    return dim is None or all(coefficient >= 0 for _, coefficient in dim.terms)
