"""Errors go where their elements go, through every primitive of both domains of errors.

Bounds: operands moved within theirs give results within those. Duals: to first order a set of
roundings moves a result as it is moved by operands that are so much off.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tfgraph.backends.rounding import Rounding
from tfgraph.ir import DType
from tfgraph.ops import FloatArray, find_op
from tfgraph.rounding.bounded import Bounded
from tfgraph.rounding.draws import Noise
from tfgraph.rounding.dual import Dual

NDArray = np.ndarray[Any, Any]
SHAPE = (4, 3, 5)
F32 = DType.float32
ROWS = np.array([2, 0, 2])

MOVEMENTS: dict[str, Any] = {
    "reshape": lambda a, b, plain: a.reshape((3, 20)),
    "transpose": lambda a, b, plain: a.transpose((2, 0, 1)),
    "broadcast": lambda a, b, plain: a.slice(0, 0, 1).broadcast((2, 1, 3, 5)),
    "slice": lambda a, b, plain: a.slice(1, 1, 3),
    "slice behind": lambda a, b, plain: a.slice(-1, 1, 3),
    "take": lambda a, b, plain: a.take(plain(ROWS), 0),
    "take behind": lambda a, b, plain: a.take(plain(ROWS), -1),
    "take at": lambda a, b, plain: a.take_at([plain(ROWS), plain(ROWS)]),
    "join": lambda a, b, plain: a.join([b, a], 0),
    "join behind": lambda a, b, plain: a.join([b], -1),
    "select": lambda a, b, plain: plain(np.arange(60).reshape(SHAPE) % 3 > 0).select(a, b),
    "neg": lambda a, b, plain: a.unary("neg"),
    "abs": lambda a, b, plain: a.unary("abs"),
    "largest": lambda a, b, plain: a.reduce("max", -1),
    "largest in front": lambda a, b, plain: a.reduce("max", 0),
    "top": lambda a, b, plain: a.topk(2)[0],
}
ARITHMETIC: dict[str, Any] = {
    **{f: lambda a, b, plain, f=f: a.unary(f) for f in ("exp", "sin", "cos", "tanh", "erf")},
    **{f: lambda a, b, plain, f=f: b.unary(f) for f in ("sqrt", "log")},
    **{f: lambda a, b, plain, f=f: a.binary(f, b) for f in ("add", "sub", "mul", "div")},
    **{f: lambda a, b, plain, f=f: a.binary(f, b) for f in ("maximum", "minimum")},
    "broadcast mul": lambda a, b, plain: a.binary("mul", b.slice(1, 0, 1).reshape((4, 1, 5))),
    "power": lambda a, b, plain: a.binary("pow", a.like(3)),
    "sum": lambda a, b, plain: a.reduce("sum", -1),
    "sum in front": lambda a, b, plain: a.reduce("sum", 0),
    "mean": lambda a, b, plain: a.reduce("mean", 1),
    "running sum": lambda a, b, plain: a.scan("sum", 1),
    "product": lambda a, b, plain: a.matmul(b.transpose((0, 2, 1))),
    "product of one": lambda a, b, plain: a.matmul(b.slice(0, 0, 1).reshape((5, 3))),
    "weighted sum": lambda a, b, plain: b.weighted_sum(a.transpose((0, 2, 1))),
}  # fmt: skip
NAMES = [*MOVEMENTS, *ARITHMETIC]


def operands() -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Numbers of any sign, well apart, and numbers above 0; a share by which each may be off."""
    rng = np.random.default_rng(0)
    a = rng.permutation(60).reshape(SHAPE) / 20 - 1.41
    b = rng.permutation(60).reshape(SHAPE) / 40 + 0.51
    return a, b, *(rng.uniform(0, 0.004, (2, *SHAPE)))


def exactly(name: str, a: NDArray, b: NDArray) -> NDArray:
    """What float64 gives."""
    f = (MOVEMENTS | ARITHMETIC)[name]
    made: NDArray = f(FloatArray(a), FloatArray(b), FloatArray).data
    return made


@pytest.mark.parametrize("name", NAMES)
def test_no_operands_within_their_errors_lead_out_of_a_bound(name: str) -> None:
    a, b, ea, eb = operands()
    given = [Bounded(x, F32, e, least=float((x - e).min())) for x, e in ((a, ea), (b, eb))]
    made = (MOVEMENTS | ARITHMETIC)[name](*given, lambda x: Bounded(x, DType(str(x.dtype))))
    want, worst, rng = exactly(name, a, b), 0.0, np.random.default_rng(1)
    np.testing.assert_array_equal(made.data, want)
    assert made.least <= (want - made.errors).min()
    for _ in range(20):
        signs = rng.choice([-1, 1], (2, *SHAPE))
        apart = np.abs(exactly(name, a + signs[0] * ea, b + signs[1] * eb) - want)
        assert (apart <= made.errors * (1 + 1e-9)).all()
        worst = max(worst, float(apart.max()))
    assert made.errors.max() < 8 * worst  # and not far above
    if name in MOVEMENTS and name not in ("largest", "largest in front", "top"):
        np.testing.assert_array_equal(made.errors, np.abs(exactly(name, ea, eb)))


@pytest.mark.parametrize("name", NAMES)
def test_a_set_of_roundings_moves_a_result_as_its_operands_do(name: str) -> None:
    a, b, ea, eb = operands()
    noise, rng = Noise(0), np.random.default_rng(1)
    signs = rng.choice([-1e-3, 1e-3], (2, noise.draws, *SHAPE))
    hardly = Rounding(arithmetic="float64")  # so that its own roundings are nothing
    tangents = signs[0] * ea, signs[1] * eb
    given = [Dual(x, F32, noise, t, rounding=hardly) for x, t in zip((a, b), tangents, strict=True)]
    made = (MOVEMENTS | ARITHMETIC)[name](*given, lambda x: Dual(x, DType(str(x.dtype)), noise))
    want = exactly(name, a, b)
    np.testing.assert_array_equal(made.data, want)
    assert made.sure
    for i, tangent in enumerate(made.settled.tangents):
        moved = exactly(name, a + tangents[0][i], b + tangents[1][i]) - want
        np.testing.assert_allclose(tangent, moved, rtol=1e-3, atol=1e-10)


def rms(x: NDArray) -> float:
    return float(np.sqrt(np.mean(np.square(x))))


@pytest.mark.parametrize("shift", [0, 2])
def test_sums_of_one_order_have_roundings_of_one_size(shift: float) -> None:
    """The last of a running sum is the sum, and a mean a share of it."""
    rng, noise, n = np.random.default_rng(0), Noise(0), 64
    x = Dual(rng.standard_normal((200, n)) + shift, F32, noise)
    total, mean = rms(x.reduce("sum", -1).tangents), rms(x.reduce("mean", -1).tangents)
    running = x.scan("sum", -1).tangents
    assert 0.8 * total < rms(running[..., -1]) < 1.25 * total
    assert rms(running[..., n // 2]) < 0.8 * total
    assert 0.8 * total / n < mean < 1.5 * total / n
    across = x.transpose((1, 0)).reduce("sum", 0)
    assert 0.8 * total < rms(across.tangents) < 1.25 * total


def test_what_an_unsure_index_reads_is_unsure() -> None:
    x = Bounded(np.arange(24.0).reshape(2, 3, 4), F32)
    index = Bounded(np.array([2, 0]), DType.int64, np.array([0, np.inf]))
    for axis in (1, -2):
        errors = x.take(index, axis).errors
        assert np.isinf(errors[:, 1]).all()
        assert not errors[:, 0].any()
    sure = Bounded(np.array([1, 1]), DType.int64)
    errors = x.take_at([sure, index]).errors
    assert np.isinf(errors[1]).all()
    assert not errors[0].any()


def test_two_that_round_once_may_be_a_unit_apart() -> None:
    """A kernel in float64, and the reference: where float64 is next to the middle."""
    x = np.linspace(1, 2, 7)
    given = Bounded(x, F32, rounding=Rounding(arithmetic="float64"))
    made: Any = given.apply(find_op("tanh"), [given], {})
    unit = np.spacing(np.tanh(x).astype(np.float32)).astype(np.float64)
    assert (made.errors >= unit).all()
    assert (made.errors < 2.1 * unit).all()
