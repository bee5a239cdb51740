"""The vector functions against float64 over the whole float32 range, in units of the last place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.kernels import compile_kernels, objects_of
from tvm.tirx.script import builder as T

from tfgraph.backends.tvm.cpu import emit, vector_math
from tfgraph.backends.tvm.target import cpu_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfgraph.runtime.jit import Program


def _sigmoid(x: Any) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1.0) / (1.0 + small)


def _normal_cdf(x: Any) -> Any:
    return np.vectorize(math.erfc, otypes=[float])(-x / math.sqrt(2.0)) / 2.0


@dataclass(frozen=True)
class Function:
    """The exact function, where it is tested, and the error allowed, in ulp."""

    exact: Callable[[Any], Any]
    ulp: float
    low: float = -math.inf
    high: float = math.inf


FUNCTIONS = {
    "exp": Function(np.exp, 1.5),
    "exp2": Function(np.exp2, 1.5),
    "exp2_nonpositive": Function(np.exp2, 1.5, -126.0, 0.0),
    "tanh": Function(np.tanh, 2.5),
    "erf": Function(np.vectorize(math.erf, otypes=[float]), 1.5),
    "normal_cdf": Function(_normal_cdf, 3.0, low=0.0),
    "sigmoid": Function(_sigmoid, 2.5),
    "log": Function(np.log, 1.5),
    "rsqrt": Function(lambda x: 1.0 / np.sqrt(x), 1.6),
}


def kernel(name: str, lanes: int) -> Any:
    """y = f(x) on (n,), `lanes` elements at a time."""
    with emit.function(f"{name}_{lanes}") as builder:
        n = emit.symbol("n")
        x, y = emit.argument("x", (n,)), emit.argument("y", (n,))
        with emit.body(), emit.loop(T.floordiv(n, T.int64(lanes))) as i:
            index = i if lanes == 1 else T.ramp(i * lanes, 1, lanes)
            T.buffer_store(y, getattr(vector_math, name)(x[index]), [index])
    return builder.get()


def _all_kernels() -> dict[str, Any]:
    lanes = (1, cpu_machine().lanes)
    return {f"{name}_{n}": kernel(name, n) for name in FUNCTIONS for n in lanes}


@pytest.fixture(scope="module")
def program() -> Iterator[Program]:
    with compile_kernels(_all_kernels(), threads=1) as program:
        yield program


def grid() -> Any:
    """Both signs: every magnitude evenly in its exponent, and the ranges where functions bend."""
    magnitudes = np.concatenate(
        [
            10.0 ** np.linspace(-44.8, 38.5, 40_000),
            np.linspace(0.0, 160.0, 40_000),
            np.linspace(0.0, 5.0, 40_000),
            np.linspace(0.5, 2.0, 20_000),
            [0.0, 1e-45, 2.0**-126, 88.72, 88.73, 103.97, 103.98, 127.99999, 128.0, 3.4028235e38],
            [math.inf, math.nan, 149.0, 149.5, 150.5, 0.93],
        ]
    )
    values = np.concatenate([magnitudes, -magnitudes]).astype(np.float32)
    return np.resize(values, (len(values) + 15) // 16 * 16)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_accurate_over_the_whole_range(program: Program, name: str) -> None:
    function, x = FUNCTIONS[name], grid()
    x = x[((x >= function.low) & (x <= function.high)) | np.isnan(x)]
    x = x[: len(x) // 16 * 16]
    (y,) = program.call(f"{name}_{cpu_machine().lanes}", [x])
    with np.errstate(all="ignore"):
        exact = function.exact(x.astype(np.float64))
        rounded = exact.astype(np.float32)
        finite = np.isfinite(rounded)
        error = np.abs(y.astype(np.float64) - exact)[finite] / np.spacing(np.abs(rounded[finite]))
    assert error.max() <= function.ulp, x[finite][error.argmax()]
    assert np.array_equal(y[~finite], rounded[~finite], equal_nan=True)  # inf and NaN exactly


@pytest.mark.parametrize("name", FUNCTIONS)
def test_scalar_and_vector_have_the_same_bits(program: Program, name: str) -> None:
    x = grid()[::5]
    x = x[: len(x) // 16 * 16].copy()
    (one,) = program.call(f"{name}_1", [x])
    (many,) = program.call(f"{name}_{cpu_machine().lanes}", [x])
    same = one.view(np.int32) == many.view(np.int32)
    assert (same | (np.isnan(one) & np.isnan(many))).all()


@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_odd_and_saturated(program: Program, name: str) -> None:
    x = np.abs(grid())
    positive = program.call(f"{name}_1", [x])[0]
    negative = program.call(f"{name}_1", [-x])[0]
    known = ~np.isnan(x)
    assert np.array_equal(positive[known], -negative[known])
    assert np.signbit(program.call(f"{name}_1", [np.float32([-0.0])])[0])[0]
    assert (positive[x > 10] == 1.0).all()
    assert (positive[known] <= 1.0).all()


def test_normal_cdf_is_within_its_bound_and_saturates(program: Program) -> None:
    x = grid()
    (y,) = program.call(f"normal_cdf_{cpu_machine().lanes}", [x])
    known = ~np.isnan(x)
    assert np.abs(y - _normal_cdf(x.astype(np.float64)))[known].max() <= 2e-7
    assert (y[x < -5.4] == 0.0).all()
    assert (y[x > 5.4] == 1.0).all()


@pytest.mark.parametrize("payload", [0x7FC00000, 0x7FC12345, -0x3FFFFF, 0x7F800001])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_nan_stays_nan(program: Program, name: str, payload: int) -> None:
    x = np.full(cpu_machine().lanes, payload, np.int32).view(np.float32)
    for lanes in (1, cpu_machine().lanes):
        assert np.isnan(program.call(f"{name}_{lanes}", [x])[0]).all()


def test_underflow_is_zero(program: Program) -> None:
    x = np.float32([-126.5, -150, -1e9, -np.inf])
    assert np.array_equal(program.call("exp2_nonpositive_1", [x])[0], np.zeros(4))
    assert np.array_equal(program.call("exp_1", [x * 10])[0], np.zeros(4))
    assert program.call("exp2_nonpositive_1", [np.float32([0.0])])[0][0] == 1.0
    assert program.call("exp_1", [np.float32([0.0])])[0][0] == 1.0


def test_no_call_of_the_maths_library() -> None:
    code = b"".join(objects_of(_all_kernels()))
    for symbol in (b"expf", b"exp2f", b"tanhf", b"erff", b"logf", b"sqrtf", b"fmaf"):
        assert symbol + b"\0" not in code


@pytest.mark.parametrize(
    "name", sorted(set(FUNCTIONS) & set(vector_math.ACCURACY) - {"normal_cdf"})
)
def test_as_accurate_as_declared(name: str) -> None:
    """1 ulp is up to 2 units of 2**-24."""
    assert vector_math.ACCURACY[name].relative == pytest.approx(2 * FUNCTIONS[name].ulp)


def test_the_normal_cdf_is_as_accurate_as_declared(program: Program) -> None:
    x = grid()
    x = x[np.isfinite(x)]
    x = x[: len(x) // 16 * 16]
    (y,) = program.call(f"normal_cdf_{cpu_machine().lanes}", [x])
    error = np.abs(y.astype(np.float64) - _normal_cdf(x.astype(np.float64)))
    assert error.max() <= vector_math.ACCURACY["normal_cdf"].absolute * 2.0**-24
