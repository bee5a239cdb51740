"""Which decimals are read as what they were before they were rounded, and which are left."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from tfgraph import ops
from tfgraph.ir import DType, Exact, exact, rsqrt, sqrt
from tfgraph.passes import PASSES, run_pipeline
from tfgraph.passes.recover_constants import read

F32, F64 = DType.float32, DType.float64
READ: list[tuple[str, DType, Any]] = [
    ("0.17677669", F32, rsqrt(32)),
    ("5.656854", F32, sqrt(32)),
    ("1.4142135", F32, sqrt(2)),
    ("-0.70710677", F32, rsqrt(2) * -1),
    ("0.33333334", F32, Fraction(1, 3)),
    ("0.3333334", F32, Fraction(1, 3)),  # 1.7 ulp beside it
    ("-0.33333334", F32, Fraction(-1, 3)),
    ("0.016129032", F32, Fraction(1, 62)),
    ("9.536743e-07", F32, Fraction(1, 1 << 20)),
    ("0.00024318695", F32, Fraction(255, 1 << 20)),
    ("0.33333333333333337", F64, Fraction(1, 3)),
    ("0.0004886391399951136", F64, Fraction(2, 4093)),
    ("0.17677669529663687", F64, rsqrt(32)),
    ("127.99609", F32, sqrt(16383)),
]
LEFT: list[tuple[str, DType]] = [
    ("0", F32), ("0.5", F32), ("0.12345678", F32),
    ("100.005", F32),  # sqrt(10001), but a number of six digits
    ("0.0100005", F32),
    ("0.33333343", F32),  # 3 ulp of 1/3
    ("9.5367431640625e-07", F32),  # 2^-20 itself
    ("0.00024509804", F32),  # 1/4080, which is 257 / 2^20 nearly
    ("0.029850746", F32),  # 2/67
    ("128.00391", F32),  # sqrt(16385)
    ("0.33333334", F64), ("0.33333334", DType.float16),
]  # fmt: skip


@pytest.mark.parametrize(("text", "dtype", "want"), READ)
def test_read(text: str, dtype: DType, want: Any) -> None:
    assert read(Exact(Fraction(text)), dtype) == exact(want)


@pytest.mark.parametrize(("text", "dtype"), LEFT)
def test_left(text: str, dtype: DType) -> None:
    assert read(Exact(Fraction(text)), dtype) is None


def test_what_is_no_decimal_is_left() -> None:
    assert read(exact(Fraction(333333333, 10**9 + 1)), F32) is None
    assert read(rsqrt(2) * Exact(Fraction("0.33333334")), F32) is None


def test_constants_wherever_they_stand() -> None:
    """Factors, divisors, what is repeated and what is listed, in the type of each."""
    third = exact(0.33333334)
    with ops.graph("g") as g:
        x = g.input("x", "f32", 2)
        made = x * third, x / third, ops.full(shape=(2, 1), value=third, dtype="f32")
        listed = ops.constant(values=[third, 2], shape=(1, 2), dtype="f32")
        for i, value in enumerate((*made, listed)):
            g.output(f"y{i}", value)
        half = g.input("half", "f16", 2)
        listed = ops.constant(values=[3, 2], shape=(2,), dtype="f32")
        wide = exact(1 / 3)
        g.output("wide", ops.full(shape=(2,), value=wide, dtype="f64"))
        g.output("wide_list", ops.constant(values=[wide, 2], shape=(2,), dtype="f64"))
        kept = half * third, ops.full(shape=(2,), value=third, dtype="f16"), listed
        for i, value in enumerate(kept):
            g.output(f"kept{i}", value)
    graph, (report,) = run_pipeline(g.build(), [PASSES["recover-constants"]()])
    assert report.applied == {"constant": 2, "repeated": 2, "listed": 2}
    assert report.declined == ()
    assert report.reads
    mul, div, full, constant, *others = graph.nodes
    exact_third = exact(Fraction(1, 3))
    assert (mul.op, mul.operands[1]) == ("mul", exact_third)
    assert (div.op, div.operands[1]) == ("div", exact_third)
    assert full.attrs["value"] == exact_third
    assert constant.attrs["values"] == (exact_third, exact(2))
    assert [str(n.output.type) for n in (full, constant)] == ["f32[2,1]", "f32[1,2]"]
    assert [(n.op, str(n.output.type)) for n in others if n.output.type.dtype == F64] == [
        ("full", "f64[2]"),
        ("constant", "f64[2]"),
    ]


def test_each_constant_is_said_to_be_read() -> None:
    for make in (
        lambda: ops.current().input("x", "f32", 2) * 0.33333334,
        lambda: ops.full(shape=(2,), value=0.33333334, dtype="f32"),
        lambda: ops.constant(values=[0.33333334, 2], shape=(2,), dtype="f32"),
    ):
        with ops.graph("g") as g:
            g.output("y", make())
        _, (report,) = run_pipeline(g.build(), [PASSES["recover-constants"]()])
        assert report.reads == {"a rounded decimal as the constant that it was"}
