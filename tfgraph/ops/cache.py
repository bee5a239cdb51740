"""The cache of keys and values, and the rule that lets a kernel write it in place.

A *state* is an input marked `= state()`: what it becomes is the output of the same name. It is read
by one op of `APPENDS` and by nothing else, so nobody can see it both before and after. May import:
the core ops, rotary, define, infer, ir, errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError
from tfgraph.ir import TensorType, as_dim
from tfgraph.ops.define import op
from tfgraph.ops.elementwise import less, logical_and, logical_not, maximum, minimum, sub, where
from tfgraph.ops.infer import require_dim, same_dtype
from tfgraph.ops.movement import iota, reshape, slice_, take
from tfgraph.ops.rotary import infer_rotary, rotary, rotary_flops

if TYPE_CHECKING:
    from tfgraph.ir import Dim, DimLike, Graph, Node, Value
    from tfgraph.ops.array import Array

APPENDS = {"cache_append": {0: 1}, "append_kv": {0: 2, 1: 3}, "rotary_append_kv": {0: 3, 1: 4}}
"""The ops that put rows into caches: the numbers of the operands that are a cache, and of those
that are its new rows. The last results are what becomes of the caches, in the same order."""


def _cache_append(cache: TensorType, new: TensorType, *, at: Dim) -> TensorType:
    same_dtype(cache, new)
    if cache.rank != 3 or new.rank != 3:
        raise TfgraphError(f"expected [batch, rows, width], got {cache} and {new}")
    for axis, what in ((0, "batch"), (2, "width")):
        require_dim(f"the {what} of {new}", new.shape[axis], cache.shape[axis])
    room = cache.shape[1] - new.shape[1] - at
    if (at.is_const and int(at) < 0) or (room.is_const and int(room) < 0):
        raise TfgraphError(f"rows {at} to {at + new.shape[1]} are not rows of {cache}")
    return cache


def _free(*types: TensorType, **attrs: object) -> Dim:
    """Moving computes nothing."""
    return as_dim(0)


@op(infer=_cache_append, kind="composite", flops=_free)
def cache_append(cache: Array, new: Array, /, *, at: DimLike) -> Array:
    """`cache` [batch, capacity, width] with its rows from `at` on replaced by `new`
    [batch, rows, width]."""
    at, capacity, rows = as_dim(at), cache.shape[1], new.shape[1]
    row = iota(length=capacity)
    first, end = _number(at), _number(at + rows)
    inside = logical_and(logical_not(less(row, first)), less(row, end))
    source = minimum(maximum(sub(row, first), 0), sub(sub(end, first), 1))
    return where(reshape(inside, shape=(1, capacity, 1)), take(new, source, axis=1), cache)


def _number(value: Dim) -> Array:
    """A size as a tensor i64[1]."""
    return slice_(iota(length=value + 1), axis=0, start=value, stop=value + 1)


def _append_kv(
    keys: TensorType, values: TensorType, k: TensorType, v: TensorType, *, at: Dim
) -> tuple[TensorType, TensorType]:
    both = _cache_append(keys, k, at=at), _cache_append(values, v, at=at)
    require_dim(f"the rows of {v}", v.shape[1], k.shape[1])
    return both


@op(infer=_append_kv, kind="composite", flops=_free)
def append_kv(
    keys: Array, values: Array, k: Array, v: Array, /, *, at: DimLike
) -> tuple[Array, Array]:
    """`cache_append` of k to `keys`, and of v to `values`."""
    return cache_append(keys, k, at=at), cache_append(values, v, at=at)


def _rotary_append_kv(
    keys: TensorType,
    values: TensorType,
    q: TensorType,
    k: TensorType,
    v: TensorType,
    cos: TensorType,
    sin: TensorType,
    *,
    at: Dim,
    heads: int,
    kv_heads: int,
    interleaved: bool,
) -> tuple[TensorType, TensorType, TensorType]:
    turned = infer_rotary(q, cos, sin, heads=heads, interleaved=interleaved)
    infer_rotary(k, cos, sin, heads=kv_heads, interleaved=interleaved)
    return turned, *_append_kv(keys, values, k, v, at=at)


def _turned_flops(*types: TensorType, heads: int, kv_heads: int, **attrs: object) -> Dim:
    _, _, q, k, _, cos, sin = types
    return rotary_flops(q, cos, sin, heads=heads) + rotary_flops(k, cos, sin, heads=kv_heads)


@op(infer=_rotary_append_kv, kind="composite", flops=_turned_flops)
def rotary_append_kv(
    keys: Array,
    values: Array,
    q: Array,
    k: Array,
    v: Array,
    cos: Array,
    sin: Array,
    /,
    *,
    at: DimLike,
    heads: int,
    kv_heads: int,
    interleaved: bool = False,
) -> tuple[Array, Array, Array]:
    """`rotary` of q, and `append_kv` of v and of the `rotary` of k. q has `heads` heads, k has
    `kv_heads`."""
    turned = rotary(q, cos, sin, heads=heads, interleaved=interleaved)
    k = rotary(k, cos, sin, heads=kv_heads, interleaved=interleaved)
    return turned, *append_kv(keys, values, k, v, at=at)


def becomes(node: Node, cache: Value) -> Value:
    """What one of `APPENDS` makes of a cache that it puts rows into."""
    caches = len(APPENDS[node.op])
    return node.outputs[-caches:][node.inputs.index(cache)]


def check_states(graph: Graph) -> None:
    """Raise TfgraphError where a state is read by anything but one of `APPENDS`, once, or where the
    output of its name is not what that makes of it."""
    outputs = {output.name: output.value for output in graph.outputs}
    for item in graph.inputs:
        fill, state = item.fill, item.value
        if fill is None or fill.kind != "state":
            continue
        readers = graph.users.get(state, ())
        others = [n for n in readers if not _only_appends(n, state)]
        if others or len(readers) != 1:
            node = (others or readers[1:] or (None,))[0]
            found = f"%{node.outputs[0].name} = {node.op}" if node else "nothing"
            raise TfgraphError(
                f"state {state} is read by {found}: one cache_append reads a state, and only that",
                node.location if node else fill.location,
                "read the result of cache_append, which has the old rows and the new ones",
            )
        if state in graph.output_values:
            raise TfgraphError(f"state {state} is an output itself", fill.location)
        after = becomes(readers[0], state)
        if outputs.get(state.name) != after:
            raise TfgraphError(
                f"state {state}: the output '{state.name}' is not what {readers[0].op} makes of it",
                readers[0].location,
                f"return {state.name}={after}",
            )


def _only_appends(node: Node, state: Value) -> bool:
    return node.inputs.count(state) == 1 and node.inputs.index(state) in APPENDS.get(node.op, ())
