"""ONNX's operators that write by index: no op of the IR writes into a tensor, so each result is
selected. May import: indexing, site, registry, ops, ir, errors."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import Dim, Value, as_dim, product
from tfgraph.onnx.indexing import along, from_front, integers
from tfgraph.onnx.registry import translates
from tfgraph.onnx.site import Site, Tensor, Two
from tfgraph.ops.positions import Affine, affine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgraph.ir import Node

MOST_PLACES = 64
"""Each place that is written takes a comparison with all positions."""

_REDUCTIONS: dict[str, Two] = {
    "none": lambda old, new: new,
    "add": ops.add,
    "mul": ops.mul,
    "max": ops.maximum,
    "min": ops.minimum,
}


@translates("ScatterND")
def _scatter_nd(
    at: Site, data: Tensor, indices: Tensor, updates: Tensor, /, *, reduction: str = "none"
) -> Any:
    """The last axis of the indices holds a place on as many axes of the data; the updates are
    written there, one after another."""
    value, ids, new = at.tensor(data), integers(at, indices), at.tensor(updates)
    if reduction not in _REDUCTIONS:
        raise TfgraphError(f"the reduction is '{reduction}', expected one of {list(_REDUCTIONS)}")
    combine = _REDUCTIONS[reduction]
    *outer, last = ids.shape
    if not last.is_const or not 1 <= int(last) <= len(value.shape):
        raise TfgraphError(f"indices {ids.type} for {value.type}")
    count = int(last)
    written, inner = value.shape[:count], value.shape[count:]
    if len(new.shape) != len(outer) + len(inner):
        raise TfgraphError(f"updates are {new.type} for {value.type} at {ids.type}")
    for have, want in zip(new.shape, (*outer, *inner), strict=True):
        at.require_equal(have, want)
    if tuple(outer) == written and _is_everywhere(ids.value, written, at.importer.producer):
        return combine(value, new)
    places = product(outer)
    if not places.is_const or int(places) > MOST_PLACES:
        raise TfgraphError(f"it writes {places} places, and {MOST_PLACES} are the most")
    ids = ops.reshape(ids, shape=(int(places), count))
    new = ops.reshape(new, shape=(int(places), *inner))
    columns = [
        from_front(at, ops.slice_(ids, axis=1, start=i, stop=i + 1), written[i])
        for i in range(count)
    ]
    for j in range(int(places)):
        here = [
            ops.equal(_positions(written[i], i, value, ids), _one(column, j, value))
            for i, column in enumerate(columns)
        ]
        row = ops.reshape(ops.slice_(new, axis=0, start=j, stop=j + 1), shape=(1, *inner))
        row = ops.reshape(row, shape=(*[1] * count, *inner))
        row = ops.broadcast_to(combine(value, row), shape=value.shape)
        value = ops.where(reduce(ops.logical_and, here), row, value)
    return value


def _positions(size: Dim, axis: int, value: Any, ids: Any) -> Any:
    line = along(size, axis, len(value.shape))
    return line if line.dtype == ids.dtype else ops.cast(line, dtype=ids.dtype)


def _one(column: Any, j: int, value: Any) -> Any:
    one = ops.slice_(column, axis=0, start=j, stop=j + 1)
    return ops.reshape(one, shape=(1,) * len(value.shape))


def _is_everywhere(ids: Value, sizes: tuple[Dim, ...], producer: Mapping[Value, Node]) -> bool:
    """Whether the indices are those of all places in order, as a slice that is written whole has
    them: columns side by side, each the positions on its axis."""
    node = producer.get(ids)
    if node is None or node.op != "concat" or len(node.inputs) != len(sizes):
        return False
    zero, one = as_dim(0), as_dim(1)
    for axis, column in enumerate(node.inputs):
        counted = tuple(
            one if i == axis and size != one else zero for i, size in enumerate((*sizes, one))
        )
        if affine(column, producer) != Affine(zero, counted):
            return False
    return True
