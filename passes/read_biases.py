"""What tensors that are added to scores say about distances: ALiBi, and the buckets of T5.

ALiBi is a slope for each head times the distance. Rows of a table whose index depends on the
distance alone are `relative` where that index is T5's bucket at every distance that there may be:
all are looked at, so it does not matter how an exporter computes it. May import: positions, ops,
ir.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.ir import Exact, as_dim
from tfgraph.ir import mask as masks
from tfgraph.ir.mask import FARTHEST_BUCKET, bucket_bounds
from tfgraph.ops import FloatArray, Traced, current, reshape
from tfgraph.ops.evaluate import run_node
from tfgraph.ops.positions import affine
from tfgraph.passes.behind import bare, in_front

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgraph.ir import Dim, Mask, Node, TensorType, Value
    from tfgraph.ops.positions import Affine

    Makers = Mapping[Value, Node]
    NDArray = np.ndarray[Any, Any]

FARTHEST = 1 << 16
"""Distances that are looked at, either way: lengths are no larger."""
_ZERO, _ONE = as_dim(0), as_dim(1)
_OF_ELEMENTS = (
    *("add", "sub", "mul", "div", "neg", "abs", "minimum", "maximum", "less", "equal", "where"),
    *("logical_and", "logical_or", "logical_not", "cast", "log", "floor", "full"),
)


def read_bias(value: Value, scores: TensorType, makers: Makers) -> list[Mask] | None:
    """The biases that a tensor added to the scores [batch, heads, query, key] is; None where it is
    not understood, and for scores of fewer axes: there it is a term of any mask, in its order."""
    node = bare(value, makers)
    if node is None or scores.rank < 4:
        return None
    if node.op == "mul":
        return _alibi(node, scores, makers)
    if node.op == "transpose" and node.attrs["perm"] == (2, 0, 1):
        rows = makers.get(node.inputs[0])
        return None if rows is None else _relative(rows, scores, makers)
    return None


def _alibi(node: Node, scores: TensorType, makers: Makers) -> list[Mask] | None:
    """slope[head] * (j - i)."""
    if len(node.inputs) != 2:
        return None
    heads = scores.shape[-3]
    for slopes, far in (node.inputs, node.inputs[::-1]):
        cast = makers.get(far)
        if slopes.type.shape != (heads, _ONE, _ONE) or cast is None or cast.op != "cast":
            continue
        distance = affine(cast.inputs[0], makers)
        offset = () if distance is None else _offset(distance, scores)
        if offset:
            return [masks.alibi(reshape(Traced(current(), slopes), shape=(heads,)), *offset)]
    return None


def _relative(rows: Node, scores: TensorType, makers: Makers) -> list[Mask] | None:
    """The rows [query, key, head] of a table, by the buckets of distances."""
    if rows.op != "embedding":
        return None
    index, table = rows.inputs
    if not table.type.shape[0].is_const:
        return None
    found = _of_distance(index, makers, scores)
    if found is None:
        return None
    offset, nodes, distance = found
    numbers = np.arange(-FARTHEST, FARTHEST)
    buckets = _evaluated(nodes, distance, index, numbers)
    said = {int(o.factor) for n in nodes for o in n.operands if isinstance(o, Exact)}
    kind = _kind(int(table.type.shape[0]), numbers, buckets, said)
    if kind is None:
        return None
    most, both = kind
    return [masks.relative(Traced(current(), table), most, bidirectional=both, offset=offset)]


def _of_distance(
    index: Value, makers: Makers, scores: TensorType
) -> tuple[Dim | None, list[Node], Value] | None:
    """The offset of the queries, the nodes that compute an index of distances alone, in order, and
    the value that holds the distances."""
    nodes: dict[Value, Node] = {}
    distances: dict[Value, Dim | None] = {}

    def visit(value: Value) -> bool:
        line, node = affine(value, makers), makers.get(value)
        start = () if line is None else _offset(line, scores)
        if start:
            distances[value] = start[0]
            return True
        if node is None or not (node.op in _OF_ELEMENTS or in_front(node)):
            return False
        if not all(map(visit, node.inputs)):
            return False
        nodes[value] = node
        return True

    if not visit(index) or len(distances) != 1:
        return None
    ((distance, offset),) = distances.items()
    return offset, list(nodes.values()), distance


def _evaluated(nodes: list[Node], distance: Value, index: Value, numbers: NDArray) -> NDArray:
    """The index at each distance."""
    known = {distance.name: FloatArray(numbers)}
    like = FloatArray(np.zeros((), np.float64))
    for node in nodes:
        name = node.output.name
        if in_front(node):
            known[name] = known[node.inputs[0].name]
        elif node.op == "full":
            (known[name],) = run_node(
                replace(node, attrs={**node.attrs, "shape": ()}), {}, {}, like
            )
        else:
            (known[name],) = run_node(node, known, {}, like)
    return np.broadcast_to(known[index.name].data, numbers.shape)


def _kind(rows: int, numbers: NDArray, buckets: NDArray, said: set[int]) -> tuple[int, bool] | None:
    """The largest distance that T5's buckets tell apart, and whether they tell both directions
    apart; None where these are others. Where several do, it is one that the file says, or the usual
    one, or the least."""
    for both in (True, False):
        count = rows // 2 if both else rows
        reached = buckets[FARTHEST::-1]  # by distances 0, 1, ...
        last = int(np.argmax(reached == count - 1))
        for most in (*said, FARTHEST_BUCKET, *range(last, 3 * last)):
            bounds = bucket_bounds(count, most)
            expected = np.searchsorted(bounds, np.maximum(-numbers, 0), side="right")
            if both:
                after = np.searchsorted(bounds, np.maximum(numbers, 0), side="right")
                expected = np.where(numbers > 0, count + after, expected)
            if (expected == buckets).all():
                return most, both
    return None


def _offset(line: Affine, scores: TensorType) -> tuple[Dim | None] | tuple[()]:
    """The offset where positions are j - (offset + i), in a tuple, which is empty where not."""
    *outer, query, key = line.aligned(max(2, len(line.steps))).steps
    if scores.shape[-2] == _ONE:  # a single query does not say how it is counted
        query = -key
    if any(step.terms for step in outer) or (query, key) != (as_dim(-1), _ONE):
        return ()
    square = scores.shape[-2] == scores.shape[-1]
    return (None if square and not line.start.terms else -line.start,)
