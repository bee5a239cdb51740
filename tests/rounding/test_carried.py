"""What a primitive's bound promises: no operands within their errors lead any farther. Against the
functions themselves, in float64, at operands moved as far as their errors say and less far."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from tfgraph import ops
from tfgraph.backends.rounding import LARGEST, SMALLEST, UNITS
from tfgraph.ir import DType
from tfgraph.rounding import carried, end_to_end, isolated_bounds
from tfgraph.rounding.unsure import unsure_integer, unsure_less, unsure_order

if TYPE_CHECKING:
    from collections.abc import Callable

NDArray = np.ndarray[Any, Any]
MOVES = (-1.0, -0.5, 0.0, 0.5, 1.0)
NONE = -np.inf  # of what is not known to be above anything

FUNCTIONS: dict[str, Callable[[NDArray], Any]] = {
    **{name: getattr(np, name) for name in ("exp", "log", "sqrt", "sin", "cos", "tanh", "floor")},
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
}
OPERATORS: dict[str, Callable[[NDArray, NDArray], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
}


def operands(seed: int) -> tuple[NDArray, NDArray]:
    """Numbers of many sizes, and errors from none to some that are larger than they."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(2000) * 10.0 ** rng.integers(-3, 2, 2000)
    e = np.abs(x) * rng.choice([0, 1e-6, 1e-2, 0.3, 0.9, 1.5], 2000)
    return x, e


def assert_covers(bound: NDArray, y: NDArray, moved: NDArray) -> None:
    """What is no number there, as the root of less than 0, has no finite bound."""
    apart = np.where(np.isnan(moved), np.inf, np.abs(moved - y))
    room = 1.0001 * bound + 1e-15 * np.abs(y)  # of the test's own roundings
    assert (apart <= room).all(), float((apart - room).max())


@np.errstate(all="ignore")
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_function_moves_no_farther(name: str) -> None:
    assert FUNCTIONS.keys() == carried.UNARY.keys()
    (x, e), f = operands(0), FUNCTIONS[name]
    if name in ("sqrt", "log"):
        x = np.abs(x)
    y = f(x)
    for least in (NONE, 0.0) if name == "sqrt" else (NONE,):
        bound = carried.UNARY[name](x, y, e, least)
        for move in MOVES:
            assert_covers(bound, y, f(np.maximum(x + move * e, least)))
        assert not bound[e == 0].any()
    near = (e > 0) & (e < 1e-5 * np.abs(x))
    if name not in ("sin", "cos", "floor"):  # whose bounds know no slope
        first = np.abs(f(x + e) - y)
        assert (bound[near] <= 1.01 * first[near] + 1e-12 * np.abs(y[near])).all()


@np.errstate(all="ignore")
@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_an_operator_moves_no_farther(name: str) -> None:
    assert OPERATORS.keys() | {"pow"} == carried.BINARY.keys()
    (a, ea), (b, eb), f = operands(1), operands(2), OPERATORS[name]
    y = f(a, b)
    bound = carried.BINARY[name](a, b, y, ea, eb, NONE)
    assert bound is not None
    for move in MOVES:
        for other in MOVES:
            assert_covers(bound, y, f(a + move * ea, b + other * eb))
    one_exact = carried.BINARY[name](a, b, y, None, eb, NONE)
    assert one_exact is not None
    assert (one_exact <= bound).all()
    assert carried.BINARY[name](a, b, y, None, None, NONE) is None


@np.errstate(all="ignore")
@pytest.mark.parametrize("exponent", [2.0, 3.0, 0.5, -1.0])
def test_a_power_moves_no_farther(exponent: float) -> None:
    (a, ea), b = operands(3), np.asarray(exponent)
    y = np.power(a, b)
    bound = carried.BINARY["pow"](a, b, y, ea, None, NONE)
    assert bound is not None
    real = np.isfinite(y)
    for move in MOVES:
        moved = np.power(a + move * ea, b)
        assert_covers(bound[real], y[real], moved[real])


def test_a_product_of_matrices_moves_no_farther() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((5, 7)), rng.standard_normal((7, 3))
    ea, eb = 0.5 * np.abs(a), 0.5 * np.abs(b)
    bound = carried.times(np.abs(a), np.abs(b), ea, eb, np.matmul)
    assert bound is not None
    moved = np.matmul(np.abs(a) + ea, np.abs(b) + eb)
    np.testing.assert_allclose(bound, moved - np.matmul(np.abs(a), np.abs(b)))


def test_what_may_come_out_either_way_is_unsure() -> None:
    """A comparison, an order or a conversion that some operands within the errors turn."""
    rng = np.random.default_rng(5)
    x, y = rng.standard_normal((2, 400, 5)) * 2
    error = rng.choice([0, 1e-3, 0.1, 0.5], (400, 5))
    rows = error.max(axis=-1, keepdims=True)
    less, integers = unsure_less(x, y, error), unsure_integer(x, error, DType.int64)
    places = {k: unsure_order(x, rows, k) for k in (1, 3, 5)}
    turned = np.zeros((3, 400, 5), bool)
    for _ in range(60):
        move = rng.choice([-1, -0.7, 0.7, 1], x.shape)
        turned[0] |= ((x + move * error < y) != (x < y)) & (error > 0)
        turned[1] |= np.trunc(x + move * error) != np.trunc(x)
        turned[2] |= np.argsort(-(x + move * rows), axis=-1) != np.argsort(-x, axis=-1)
    assert np.isinf(less[turned[0]]).all()
    assert np.isinf(integers[turned[1]]).all()
    for k, unsure in places.items():
        assert np.isinf(unsure[turned[2][:, :k]]).all()
    assert turned.any(axis=(1, 2)).all()
    assert all((unsure == 0).any() for unsure in (less, integers, *places.values()))


def test_a_place_is_unsure_up_to_the_next_one() -> None:
    """Of 6, 4, 3 and a little more, 3: the third place is unsure, and the fourth."""
    x = np.array([1, 1 + 2.0**-22, 4 / 3, 2], np.float32)
    for k, places in ((1, [0]), (2, [0, 0]), (3, [0, 0, np.inf]), (4, [0, 0, np.inf, np.inf])):
        with ops.graph("order") as g:
            g.output("y", ops.topk(ops.mul(g.input("x", "f32", 4), 3), k=k)[1])
        graph = g.build()
        assert isolated_bounds(graph, {}, {"x": x}, {}, None)["y"].tolist() == places
        (spread,) = end_to_end(graph, {}, {"x": x}, {}, None).values()
        assert spread == max(places)


def test_a_choice_that_is_unsure_may_be_off_by_both() -> None:
    with ops.graph("choice") as g:
        x = g.input("x", "f32", 2)
        a, b = ops.exp(x), ops.exp(ops.mul(x, 3))
        g.output("y", ops.where(ops.less(ops.mul(x, 3), 3), a, b))
        g.output("a", a)
        g.output("b", b)
    given = np.array([1, 0.5], np.float32)
    bounds = isolated_bounds(g.build(), {}, {"x": given}, {}, None)
    apart = np.exp(3.0) - np.e
    largest = max(bounds["a"][0], bounds["b"][0])
    assert apart + largest <= bounds["y"][0] < apart + 2.1 * largest
    assert bounds["y"][1] == bounds["a"][1]


@pytest.mark.parametrize("dtype", UNITS)
def test_the_numbers_of_a_dtype(dtype: str) -> None:
    limits: Any = ml_dtypes.finfo(dtype)
    assert 2 * UNITS[dtype] == float(limits.eps)
    assert SMALLEST[dtype] == float(limits.smallest_subnormal)
    assert LARGEST[dtype] <= float(limits.max) < 2 * LARGEST[dtype]
