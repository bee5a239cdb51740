"""Rows that may attend to nothing give zeros in ONNX too; what keeps them so stands only where a
mask may hide a whole row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.onnx_export import Session, by_reference, operators, written
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import alibi, bias, causal, dense, ops, padding, prefix, relative, segments, window
from tfgraph.ir import as_dim

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.ir import Graph, Mask

    NDArray = np.ndarray[Any, Any]


def attention(make: Callable[[Any], Mask | None]) -> Graph:
    """Of two heads over x [batch, s, 8], with the mask that `make` makes in the graph."""
    with tfgraph.graph("one") as g:
        x = g.input("x", "f32", "batch", "s", 8)
        q, k, v = (ops.linear(x, g.param(name, "f32", 8, 8)) for name in "qkv")
        q, k, v = (ops.split_heads(t, 2) for t in (q, k, v))
        scores: Any = ops.matmul(q, ops.transpose(k, perm=(0, 1, 3, 2))) * 0.5
        m = make(g)
        scores = scores if m is None else ops.mask(scores, m)
        g.output("y", ops.merge_heads(ops.weighted_sum(ops.softmax(scores), v)))
    return g.build()


WEIGHTS = {n: np.random.default_rng(ord(n)).normal(size=(8, 8)).astype(np.float32) for n in "qkv"}


def formula(x: NDArray, allowed: NDArray) -> NDArray:
    """softmax(Q K^T / 2 where allowed) V in float64; a row without a key gives zeros."""
    q, k, v = (
        (x.astype(np.float64) @ WEIGHTS[n]).reshape(*x.shape[:2], 2, 4).swapaxes(1, 2)
        for n in "qkv"
    )
    exps = np.where(allowed, np.exp(q @ k.swapaxes(2, 3) / 2), 0)
    total = exps.sum(-1, keepdims=True)
    y = exps / np.where(total == 0, 1, total) @ v
    return y.swapaxes(1, 2).reshape(x.shape)


@pytest.mark.parametrize("opset", [13, 20, 23, 24, 28])
@pytest.mark.parametrize("causal_too", [False, True])
def test_empty_rows(opset: int, causal_too: bool) -> None:
    def make(g: Any) -> Mask:
        m = padding(g.input("keep", "i64", "batch", "s"))
        return m & causal() if causal_too else m

    x = np.random.default_rng(0).normal(size=(3, 5, 8)).astype(np.float32)
    keep = np.array([[1, 1, 1, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 0]])
    model = written(attention(make), opset, WEIGHTS)
    allowed = np.broadcast_to(keep[:, None, None, :] != 0, (3, 1, 5, 5))
    allowed = allowed & np.tri(5, dtype=bool) if causal_too else allowed
    want = formula(x, allowed)
    assert not want[2].any()
    assert bool(want[1, 0].any()) != causal_too
    for got in (Session(model)(x=x, keep=keep), by_reference(model, x=x, keep=keep)):
        assert_close(got["y"], want, length=64)
        assert not got["y"][2].any()


def _ids(g: Any, name: str = "ids") -> Any:
    return g.input(name, "i64", "batch", "s")


WHOLE: dict[str, Callable[[Any], Mask | None]] = {
    "no mask": lambda g: None,
    "causal": lambda g: causal(),
    "causal, later": lambda g: causal(as_dim("s")),
    "window": lambda g: window(2, 0),
    "causal, window": lambda g: causal() & window(3),
    "prefix": lambda g: prefix(g.input("length", "i64", "batch")),
    "segments of one tensor": lambda g: segments(_ids(g)) & causal(),
    "alibi": lambda g: alibi(g.param("slopes", "f32", 2)) & causal(),
    "relative": lambda g: relative(g.param("table", "f32", 8, 2), 20),
    "a bias that is a weight": lambda g: bias(g.param("t", "f32", 2, 1, 1)),
}
"""Masks under which every query has a key."""

EMPTY: dict[str, Callable[[Any], Mask | None]] = {
    "padding": lambda g: padding(_ids(g)),
    "lengths": lambda g: padding(g.input("length", "i64", "batch")),
    "dense": lambda g: dense(g.input("t", "bool", "s", "s")),
    "causal, before": lambda g: causal(as_dim(-1)),
    "window, later": lambda g: window(1, 1, as_dim("s")),
    "causal, padding": lambda g: causal() & padding(_ids(g)),
    "segments": lambda g: segments(_ids(g), _ids(g, "of_keys")),
    "window, first": lambda g: window(None, 0, as_dim("s")) & window(0, None),
    "a bias that is an input": lambda g: bias(g.input("t", "f32", "s", "s")),
}
"""Masks that may leave a query without one."""


@pytest.mark.parametrize("name", WHOLE)
def test_no_guard_where_every_query_has_a_key(name: str) -> None:
    found = operators(written(attention(WHOLE[name]), 13, _all_weights()))
    assert (found["Softmax"], found["ReduceMax"]) == (1, 0)


@pytest.mark.parametrize("name", EMPTY)
def test_a_guard_where_a_query_may_have_none(name: str) -> None:
    found = operators(written(attention(EMPTY[name]), 13, _all_weights()))
    assert (found["Softmax"], found["ReduceMax"]) == (1, 1)


def _all_weights() -> dict[str, NDArray]:
    shapes = {"slopes": (2,), "table": (8, 2), "t": (2, 1, 1)}
    return WEIGHTS | {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("change", "guards"),
    [
        (lambda x: ops.softmax(x), 1),  # an input may hold -inf
        (lambda x: ops.softmax(ops.tanh(x)), 0),
        (lambda x: ops.softmax(ops.mask(ops.tanh(x), causal())), 0),
        (lambda x: ops.softmax(ops.mask(ops.tanh(x), causal()), axis=1), 0),
        (lambda x: ops.softmax(ops.mask(ops.tanh(x), causal()), axis=0), 1),  # of columns
        (lambda x: ops.softmax(ops.transpose(ops.mask(ops.tanh(x), causal()), perm=(1, 0))), 1),
        (lambda x: ops.softmax(ops.mask(ops.mask(ops.tanh(x), causal()), window(0))), 1),
        (lambda x: ops.softmax(ops.log(ops.abs_(ops.tanh(x)))), 1),
    ],
)
def test_where_rows_come_from(change: Callable[[Any], Any], guards: int) -> None:
    with tfgraph.graph("one") as g:
        g.output("y", change(g.input("x", "f32", "n", "n")))
    model = written(g.build(), 24)
    assert operators(model)["ReduceMax"] == guards
    x = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    if not operators(model)["Tanh"]:
        x[1] = -np.inf
    elif operators(model)["Log"]:
        x[1] = 0
    assert not np.isnan(Session(model)(x=x)["y"]).any()
