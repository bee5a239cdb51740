"""What Python and NumPy do with a value of a graph: an op, or an error with the user's line."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tfgraph.errors import TfgraphError
from tfgraph.ops import graph
from tfgraph.text import print_graph

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (lambda x: x > 0, "less(0, %x)"),
        (lambda x: x < 0, "less(%x, 0)"),
        (lambda x: x < x, "less(%x, %x)"),
        (lambda x: np.float64(0) < x, "less(0, %x)"),
        (lambda x: x**2, "pow(%x, 2)"),
        (lambda x: 2**x, "pow(2, %x)"),
        (abs, "abs(%x)"),
        (lambda x: np.float64(2) * x, "mul(2, %x)"),
        (lambda x: np.float32(2) - x, "sub(2, %x)"),
        (lambda x: x / np.float32(2), "div(%x, 2)"),
    ],
)
def test_operators_are_ops(write: Callable[[Any], Any], text: str) -> None:
    with graph("g") as g:
        g.output("y", write(g.input("x", "f32", 3)))
    assert f"= {text} :" in print_graph(g.build())


@pytest.mark.parametrize(
    ("write", "message", "hint"),
    [
        (lambda x: 1 if x else 2, "neither true nor false", "tfgraph.ops.where"),
        (lambda x: x > 0 and x < 1, "neither true nor false", "tfgraph.ops.where"),
        (lambda x: not x, "neither true nor false", "tfgraph.ops.where"),
        (lambda x: x == 0, "== is not an op", "tfgraph.ops.equal"),
        (lambda x: x != np.ones(3), "== is not an op", "tfgraph.ops.equal"),
        (lambda x: np.ones(3) == x, "numpy.equal cannot", "tfgraph.ops.equal"),
        (lambda x: x <= 0, "<= is not an op", "logical_or"),
        (lambda x: x >= 0, ">= is not an op", "logical_or"),
        (lambda x: x[0], "has no []", "tfgraph.ops.slice_"),
        (list, "cannot be iterated over", "tfgraph.ops.slice_"),
        (np.asarray, "is no array", "tfgraph.compile"),
        (np.exp, "numpy.exp cannot", "tfgraph.ops.exp is its op"),
        (np.absolute, "numpy.absolute cannot", "tfgraph.ops.abs_ is its op"),
        (np.sum, "numpy.sum cannot", "tfgraph.ops.sum_ is its op"),
        (np.linalg.norm, "numpy.norm cannot", "the ops of tfgraph.ops"),
        (lambda x: np.concatenate([x, x]), "numpy.concatenate", "tfgraph.ops.concat is"),
        (lambda x: np.ones((3, 3)) @ x, "numpy.matmul cannot", "tfgraph.ops.matmul is its op"),
        (lambda x: x.T, "has no attribute 'T'", "tfgraph.ops.transpose is its op"),
        (lambda x: x.mean(), "has no attribute 'mean'", "tfgraph.ops.mean is its op"),
        (lambda x: x.astype("f16"), "has no attribute 'astype'", "tfgraph.ops.cast is its op"),
        (lambda x: x.ndim, "has no attribute 'ndim'", "len(x.shape)"),
        (lambda x: x.shap, "has no attribute 'shap'", "did you mean 'shape'?"),
        (len, "has no len()", "x.shape"),
        (float, "is no number", "tfgraph.compile"),
        (int, "is no number", "tfgraph.compile"),
        (range, "is no number", "tfgraph.compile"),
        (round, "round is not an op", "tfgraph.ops.floor(x + 0.5)"),
        (lambda x: x // 2, "// is not an op", "tfgraph.ops.floor(a / b)"),
        (lambda x: 2 // x, "// is not an op", "tfgraph.ops.floor(a / b)"),
        (lambda x: x % 2, "% is not an op", "tfgraph.ops.floor(a / b)"),
        (lambda x: divmod(x, 2), "divmod is not an op", "tfgraph.ops.floor(a / b)"),
        (lambda x: x & x, "& is not an op", "tfgraph.ops.logical_and"),
        (lambda x: x | x, "| is not an op", "tfgraph.ops.logical_or"),
        (lambda x: x ^ 2, "^ is not an op", "a ** b"),
        (lambda x: ~x, "~ is not an op", "tfgraph.ops.logical_not"),
        (lambda x: x << 1, "<< and >> are not ops", "power of two"),
        (lambda x: +x, "+x is not an op", "x is the same"),
        (lambda x: 3 in x, "in asks for numbers", "tfgraph.compile"),
        (lambda x: x.__setitem__(0, 1), "cannot be changed", "tfgraph.ops.where"),
        (lambda x: [[1.0]] @ x, "is a list, expected a value", "g.param(...)"),
        (lambda x: x * np.ones(3), "is an ndarray", "g.param(...)"),
        (lambda x: np.ones(3) / x, "is an ndarray", "g.param(...)"),
    ],
)
def test_the_rest_is_refused(write: Callable[[Any], Any], message: str, hint: str) -> None:
    with pytest.raises(TfgraphError) as caught, graph("g") as g:
        write(g.input("x", "f32", 3))
    assert message in caught.value.message
    assert hint in str(caught.value.hint)
    assert caught.value.location is not None
    assert caught.value.location.file == __file__


def test_python_may_ask_what_a_value_has() -> None:
    with graph("g") as g:
        x = g.input("x", "f32", 3)
    assert getattr(x, "ndim", None) is None
    assert not hasattr(x, "T")
    assert not hasattr(x, "__array_interface__")
    assert copy.copy(x).value is x.value


def test_values_are_compared_by_identity_and_shown_shortly() -> None:
    with graph("g") as g:
        x, y = g.input("x", "f32", "n"), g.input("y", "f32", "n")
    assert x == x
    assert x != y
    assert x is not None
    assert [x, y].index(y) == 1
    assert {x: 1, y: 2}[x] == 1
    assert repr(x) == "<traced %x: f32[n]>"
    assert repr(g) == "<graph g, being built: 0 nodes>"
