"""Exact constants: what they hold, how they multiply and print, and what is refused."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from helpers.tolerance import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st

from tfgraph.ir import Exact, exact, rsqrt, sqrt
from tfgraph.ir.exact import FUNCTIONS, call

rationals = st.fractions(max_denominator=10**6)
positive = st.fractions(min_value=Fraction(1, 1000), max_value=1000, max_denominator=1000)


def read(text: str) -> Fraction | float:
    """What is printed, computed by Python in floating point."""
    return eval(text, {"__builtins__": {}, **FUNCTIONS})


@pytest.mark.parametrize("value", [0.1, 1e-6, 1e-5, 0.044715, 1.702, 1e30, 5e-324, -2.5, 1e-300])
def test_a_float_is_its_shortest_decimal(value: float) -> None:
    assert exact(value).factor == Fraction(repr(value))
    assert float(exact(value)) == value
    assert exact(np.float64(value)) == exact(value)


def test_one_millionth() -> None:
    assert exact(1e-6).factor == Fraction(1, 10**6)
    assert exact(1e-6) == exact(Fraction(1, 10**6))
    assert str(exact(1e-6)) == "1e-06"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="is not a finite constant"):
        exact(value)


@given(rationals, rationals)
def test_rationals_multiply_exactly(a: Fraction, b: Fraction) -> None:
    assert (exact(a) * exact(b)).factor == a * b
    assert exact(a) * b == exact(b) * a


@given(
    st.one_of(
        rationals,
        st.integers(-(10**40), 10**40),
        st.floats(allow_nan=False, allow_infinity=False).map(lambda x: Fraction(repr(x))),
    )
)
def test_a_printed_rational_reads_back_exactly(value: Fraction | int) -> None:
    # "1/3" and "2.5e-07" are both how Fraction reads them.
    assert Fraction(str(exact(value))) == value


@given(positive, positive, positive)
def test_products_of_calls(a: Fraction, b: Fraction, c: Fraction) -> None:
    product = sqrt(a) * rsqrt(b) * c * call("exp", Fraction(1, 2))
    want = math.sqrt(a) / math.sqrt(b) * float(c) * math.exp(0.5)
    assert_close(float(product), want, length=16)
    assert_close(read(str(product)), want, length=16)
    assert product == call("exp", Fraction(1, 2)) * (exact(c) * rsqrt(b) * sqrt(a))


@given(positive)
def test_roots_leave_where_they_can(a: Fraction) -> None:
    assert sqrt(a) * sqrt(a) == exact(a)
    assert rsqrt(a) * rsqrt(a) == exact(1 / a)
    assert sqrt(a * a) == exact(a)
    assert rsqrt(a * a) == exact(1 / a)
    assert sqrt(a) * sqrt(a) * sqrt(a) == exact(a) * sqrt(a)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (exact(3), "3"),
        (exact(-0.5), "-0.5"),
        (exact(Fraction(1, 3)), "1/3"),
        (exact(10**16), "1e+16"),
        (exact(10**16 + 1), "10000000000000001"),
        (exact(10**15), "1000000000000000"),
        (rsqrt(64), "0.125"),
        (rsqrt(32), "rsqrt(32)"),
        (rsqrt(32) * 2, "2*rsqrt(32)"),
        (sqrt(2) * rsqrt(3), "rsqrt(3)*sqrt(2)"),
        (exact(-1) * sqrt(2), "-1*sqrt(2)"),
        (call("log", 2), "log(2)"),
        (sqrt(0.5), "sqrt(0.5)"),
        (sqrt(Fraction(1, 3)), "sqrt(1/3)"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_prints(value: Exact, text: str) -> None:
    assert str(value) == text
    assert_close(float(read(text)), float(value), length=4)


def test_huge_integers_print() -> None:
    assert str(exact(10**400)) == "1" + "0" * 400


@pytest.mark.parametrize(
    ("function", "bad"), [("sqrt", 0), ("rsqrt", -1), ("log", 0), ("sqrt", -4)]
)
def test_arguments_must_be_positive(function: str, bad: int) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        call(function, bad)


def test_arguments_must_be_rational() -> None:
    with pytest.raises(ValueError, match=r"sqrt\(rsqrt\(2\)\): the argument must be rational"):
        sqrt(rsqrt(2))


@pytest.mark.parametrize(
    ("value", "is_integer"), [(3, True), (0, True), (0.5, False), (sqrt(2), False), (sqrt(4), True)]
)
def test_is_integer(value: Any, is_integer: bool) -> None:
    assert exact(value).is_integer is is_integer


@settings(max_examples=50)
@given(rationals.filter(bool))
def test_float_rounds_once(value: Fraction) -> None:
    assert float(exact(value)) == value.numerator / value.denominator


@given(rationals, rationals)
def test_rationals_calculate_exactly(a: Fraction, b: Fraction) -> None:
    assert exact(a) + b == b + exact(a) == exact(a + b)
    assert exact(a) - b == exact(a - b)
    assert b - exact(a) == exact(b - a)
    assert -exact(a) == exact(-a)
    if b:
        assert exact(a) / b == a / exact(b) == exact(a / b)


@given(rationals, rationals, positive.filter(lambda x: x < 300), st.sampled_from(["sqrt", "exp"]))
def test_multiples_of_one_irrational_calculate_exactly(
    a: Fraction, b: Fraction, x: Fraction, function: str
) -> None:
    unit = call(function, x)
    assert float(a * unit + b * unit) == pytest.approx(float((a + b) * unit))
    assert a * unit - a * unit == exact(0)
    assert a * unit + 0 == 0 + a * unit == a * unit
    if b:
        assert float(a / (b * unit)) == pytest.approx(float(a) / (float(b) * float(unit)))


def test_what_has_no_exact_form_is_refused() -> None:
    with pytest.raises(ValueError, match=r"sqrt\(2\) \+ 1 has no exact form"):
        sqrt(2) + 1
    with pytest.raises(ValueError, match=r"1/log\(2\) has no exact form"):
        1 / call("log", 2)
    with pytest.raises(ZeroDivisionError):
        exact(1) / 0
    with pytest.raises(TypeError):
        exact(1) + "1"  # type: ignore[operator]
