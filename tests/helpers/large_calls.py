"""Calls of the generic kernels that are large enough to be dealt to threads, and of every mask."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import tfgraph.ops as ops
from tfgraph.ir import as_dim, dim_max, dim_min
from tfgraph.ir.mask import alibi, bias, causal, dense, padding, prefix, relative, segments, window

if TYPE_CHECKING:
    from collections.abc import Callable

# Sizes at which results are dealt to threads, with rows that no vector width divides.
KEYS = as_dim("a") + "b"
SIZES = ({"a": 1, "b": 1}, {"a": 3, "b": 7}, {"a": 2, "b": 333})


MASKS: dict[str, Callable[[Any], Any]] = {
    "causal": lambda g: causal("a"),
    "window": lambda g: window(2, 1, "a"),
    "window_left": lambda g: window(3, offset="a"),
    "padding_lengths": lambda g: padding(g.input("lengths", "i32", "a")),
    "padding": lambda g: padding(g.input("keep", "i64", "a", KEYS)),
    "padding_bool": lambda g: padding(g.input("keep", "bool", "a", KEYS)),
    "prefix": lambda g: prefix(g.input("lengths", "i64", "a"), "a"),
    "segments": lambda g: segments(g.input("q", "i64", "a", "b"), g.input("k", "i32", "a", KEYS)),
    "dense": lambda g: dense(g.input("allowed", "bool", 4, 1, KEYS)),
    "bias": lambda g: bias(g.input("bias", "f32", "b", KEYS)),
    "alibi": lambda g: alibi(g.input("slopes", "f32", 4), "a"),
    "relative": lambda g: relative(g.input("table", "f32", 32, 4), 64, offset="a"),
    "relative_before": lambda g: relative(
        g.input("table", "f32", 9, 4), bidirectional=False, offset="a"
    ),
    "all": lambda g: (
        bias(g.input("bias", "f32", 4, "b", 1))
        & causal("a")
        & alibi(g.input("slopes", "f32", 4), "a")
        & padding(g.input("keep", "i32", "a", KEYS))
    ),
}


def _masked(g: Any, name: str) -> Any:
    return ops.mask(x_input(g, "a", 4, "b", KEYS), MASKS[name](g))


def x_input(g: Any, *shape: Any) -> Any:
    """The input x of that shape."""
    return g.input("x", "f32", *shape)


LARGE: dict[str, Callable[[Any], Any]] = {
    "add": lambda g: ops.add(x_input(g, "a", "b", 75), g.input("y", "f32", "b", 1)),
    "div": lambda g: ops.div(1, x_input(g, "a", "b", 75)),
    "maximum": lambda g: ops.maximum(x_input(g, "a", "b", 75), 0),
    "where": lambda g: ops.where(
        g.input("c", "bool", "a", 1, "b", 1), x_input(g, "a", 3, "b", 75), g.input("y", "f32")
    ),
    "exp": lambda g: ops.exp(x_input(g, "a", "b", 5, 3, 2)),
    "cast": lambda g: ops.cast(x_input(g, "a", "b", 75), dtype="i32"),
    "reshape": lambda g: ops.reshape(x_input(g, "a", "b", 75), shape=("a", 3, 25 * as_dim("b"))),
    "transpose": lambda g: ops.transpose(x_input(g, "a", "b", 5, 15), perm=(0, 2, 3, 1)),
    "broadcast_to": lambda g: ops.broadcast_to(x_input(g, "b", 1), shape=("a", "b", 75)),
    "concat": lambda g: ops.concat(
        x_input(g, "a", "b", 31), g.input("y", "f32", "a", "b", "b"), axis=-1
    ),
    "slice": lambda g: ops.slice_(
        x_input(g, "a", as_dim("b") + 4, 75), axis=1, start=3, stop=as_dim("b") + 3
    ),
    "take": lambda g: ops.take(x_input(g, "a", "b", 75), g.input("i", "i64", "b"), axis=1),
    "take_at": lambda g: ops.take_at(
        x_input(g, "b", 2, 75), g.input("i", "i64", "a"), g.input("j", "i64", 3, 1)
    ),
    "embedding": lambda g: ops.embedding(g.input("i", "i32", "a", "b"), x_input(g, 2, 75)),
    "iota": lambda g: ops.iota(length=100 * as_dim("b")),
    "full": lambda g: ops.full(shape=("a", "b", 75), value=-2.5),
    "sum": lambda g: ops.sum_(x_input(g, "a", "b", 75)),
    "mean": lambda g: ops.mean(x_input(g, "a", "b", 75), axis=1, keepdims=True),
    "max": lambda g: ops.max_(x_input(g, 75, "a", "b"), axis=0),
    "empty": lambda g: ops.empty(x_input(g, "a", "b", 75), axis=1),
    "softmax": lambda g: ops.softmax(x_input(g, "a", "b", 75), axis=1),
    "softmax_last": lambda g: ops.softmax(x_input(g, "a", 75, "b")),
    "cumsum": lambda g: ops.cumsum(x_input(g, "a", "b", 75), axis=1),
    "topk": lambda g: ops.topk(x_input(g, "a", "b", 75), k=7)[0],
    "matmul": lambda g: ops.matmul(x_input(g, "a", 1, 9, "b"), g.input("y", "f32", 3, "b", 75)),
    **{f"mask_{name}": partial(_masked, name=name) for name in MASKS},
    "dims": lambda g: ops.iota(
        length=dim_max("a", (as_dim("b") * 3 + 1) // 2 - 1) * dim_min("b", 5) + 2 * as_dim("b") - 1
    ),
}
