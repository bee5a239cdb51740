"""The domain over JAX beside NumPy: what it does that no model of the benchmarks asks for, too."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfgraph.ir import DType

jax = pytest.importorskip("jax")

X = np.array([[3, -1, 3, 0], [2, 5, -4, 5]], np.float32)
ROWS = np.array([[1, 0], [1, 1]], np.int64)
COLUMN = np.array([[0], [3]], np.int64)


@pytest.fixture(scope="module")
def domain() -> Any:
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    jax.config.update("jax_enable_x64", True)
    yield import_module("jax_side").JaxArray
    sys.path.pop(0)


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda x, a: x.scan("sum", 1), np.cumsum(X, 1)),
        (lambda x, a: x.reduce("max", 0), X.max(0, keepdims=True)),
        (lambda x, a: x.take(a(ROWS), 0), X[ROWS]),
        (lambda x, a: x.take_at([a(ROWS), a(COLUMN)]), X[ROWS, COLUMN]),
        (lambda x, a: x.topk(3)[0], np.array([[3, 3, 0], [5, 5, 2]], np.float32)),
        (lambda x, a: x.topk(3)[1], np.array([[0, 2, 3], [1, 3, 0]])),
        (lambda x, a: x.broadcast((3, 2, 4)), np.stack([X, X, X])),
        (lambda x, a: x.slice(1, 1, 3), X[:, 1:3]),
        (lambda x, a: x.join([x], 0), np.concatenate([X, X])),
        (lambda x, a: x.hide(a(X == 3)), np.where(X == 3, X, np.float32(-np.inf))),
        (lambda x, a: x.hide(a(X > 4)).empty(1), np.array([[True], [False]])),
        (lambda x, a: x.iota(3), np.arange(3)),
        (lambda x, a: x.cast(DType.int32), X.astype(np.int32)),
        (lambda x, a: x.binary("sub", x.like(2)), X - 2),
        (lambda x, a: x.binary_after("sub", 2), 2 - X),
        (lambda x, a: x.unary("neg"), -X),
    ],
)
def test_a_primitive_is_that_of_numpy(domain: Any, f: Any, expected: Any) -> None:
    found = np.asarray(f(domain(jax.numpy.asarray(X)), lambda a: domain(jax.numpy.asarray(a))).data)
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)
