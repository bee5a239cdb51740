"""Dimensions against Python integers, their normal form, and how they print."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tfgraph
from tfgraph.errors import Location, TfgraphError
from tfgraph.ir import Dim, as_dim, dim_max, dim_min, product
from tfgraph.ir.dim import size_of
from tfgraph.text import parse_dim

SYMBOLS = ("batch", "past", "seq")
SIZES = [
    {"batch": 1, "past": 1, "seq": 1},
    {"batch": 1, "past": 2, "seq": 3},
    {"batch": 4, "past": 1, "seq": 7},
    {"batch": 3, "past": 64, "seq": 65},
    {"batch": 17, "past": 1000, "seq": 128},
]
batch, past, seq = map(as_dim, SYMBOLS)


@dataclass(frozen=True)
class Expression:
    """A tree of operators over integers and symbols, computed in two ways."""

    operator: str
    args: tuple[Any, ...]

    def dim(self) -> Dim:
        args = [a.dim() if isinstance(a, Expression) else as_dim(a) for a in self.args]
        return _apply(self.operator, args, {"min": dim_min, "max": dim_max})

    def number(self, sizes: dict[str, int]) -> int:
        args = [
            a.number(sizes) if isinstance(a, Expression) else sizes[a] if isinstance(a, str) else a
            for a in self.args
        ]
        return _apply(self.operator, args, {"min": min, "max": max})


def _apply(operator: str, args: list[Any], extrema: dict[str, Any]) -> Any:
    match operator:
        case "+":
            return args[0] + args[1]
        case "-":
            return args[0] - args[1]
        case "*":
            return args[0] * args[1]
        case "//":
            return args[0] // args[1]
        case "%":
            return args[0] % args[1]
        case "neg":
            return -args[0]
    return extrema[operator](*args)


def _grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    pair = st.tuples(inner, inner)
    return st.one_of(
        st.builds(Expression, st.sampled_from(["+", "-", "*", "//", "%"]), pair),
        st.builds(Expression, st.sampled_from(["min", "max"]), st.tuples(inner, inner, inner)),
        st.builds(Expression, st.just("neg"), st.tuples(inner)),
    )


leaves = st.one_of(st.sampled_from(SYMBOLS), st.integers(-4, 12))
expressions = st.recursive(leaves, _grow, max_leaves=9).filter(lambda e: isinstance(e, Expression))


def _values(expression: Expression) -> list[int]:
    """The values at all SIZES; an example that divides by zero somewhere is left out."""
    try:
        return [expression.number(sizes) for sizes in SIZES]
    except ZeroDivisionError:
        assume(False)
        raise


@settings(max_examples=400, deadline=None)
@given(expressions)
def test_arithmetic_agrees_with_integers(expression: Expression) -> None:
    want = _values(expression)
    dim = expression.dim()
    assert [dim.evaluate(sizes) for sizes in SIZES] == want


@settings(max_examples=400, deadline=None)
@given(expressions)
def test_what_is_printed_evaluates_to_the_same(expression: Expression) -> None:
    want = _values(expression)
    text = str(expression.dim())
    names = {"min": min, "max": max, "__builtins__": {}}
    assert [eval(text, {**names, **sizes}) for sizes in SIZES] == want, text


@settings(max_examples=200, deadline=None)
@given(expressions, st.sampled_from(SIZES))
def test_symbols_may_be_replaced_one_after_another(expression: Expression, sizes: Any) -> None:
    _values(expression)
    dim = expression.dim()
    step = dim.substitute({"seq": sizes["seq"]}).substitute({"batch": sizes["batch"]})
    assert step.symbols <= {"past"}
    assert step.evaluate(sizes) == dim.evaluate(sizes)
    assert dim.substitute({}) == dim


simple = st.recursive(
    leaves.map(as_dim),
    lambda inner: st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: a * b, inner, inner),
        st.builds(lambda a, k: a // k, inner, st.integers(1, 6)),
        st.builds(dim_min, inner, inner),
        st.builds(dim_max, inner, inner),
    ),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None)
@given(simple, simple, simple)
def test_equal_after_reordering(a: Dim, b: Dim, c: Dim) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a * b == b * a
    assert (a * b) * c == a * (b * c)
    assert a * (b + c) == c * a + b * a
    assert a - b == -(b - a)
    assert a + b - b == a
    assert dim_min(a, b, c) == dim_min(c, dim_min(b, a))
    assert dim_max(a, b, c) == dim_max(c, dim_max(b, a))
    assert dim_max(a, a) == a == dim_min(a, a)
    assert hash(a + b) == hash(b + a)
    assert hash(a * b) == hash(b * a)


@settings(max_examples=200, deadline=None)
@given(simple, simple, st.integers(1, 9))
def test_division_forgets_common_factors_and_whole_multiples(a: Dim, b: Dim, k: int) -> None:
    assert (a * k) // k == a
    assert (a * k + b) // k == a + b // k
    assert (a * k) // (7 * k) == a // 7
    assert ((seq + k) // k + k) // 5 == (seq + k + k * k) // (5 * k)
    assert (a * k) % k == as_dim(0)
    assert (a * seq) // seq == a
    assert (a * seq) // (k * seq) == a // k


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (as_dim(0), "0"),
        (as_dim(-3), "-3"),
        (seq + seq, "2*seq"),
        (seq - seq, "0"),
        (past + seq - 1, "past + seq - 1"),
        (1 - seq, "1 - seq"),
        (-seq, "-seq"),
        (seq * batch, "batch*seq"),
        (seq * seq * 3, "3*seq*seq"),
        (256 * seq // 4, "64*seq"),
        ((seq * 6 + 3) // 4, "(seq + 1)//2 + seq"),
        ((seq + 3) // 4 * 4, "4*((seq + 3)//4)"),
        (-(past // 2), "-(past//2)"),
        (-((past + 1) // 2), "-((past + 1)//2)"),
        (1 - (past + 1) // 2, "1 - (past + 1)//2"),
        (seq // batch, "seq//batch"),
        (seq // (past + 1), "seq//(past + 1)"),
        ((seq * batch) // batch, "seq"),
        ((seq + 7) // 2 // 3, "(seq + 1)//6 + 1"),
        (((seq + 3) // 2 + 1) // 2, "(seq + 1)//4 + 1"),
        (seq // 1, "seq"),
        (seq % 4, "seq - (4*(seq//4))"),
        (seq % 1, "0"),
        (dim_min(seq, 128), "min(128, seq)"),
        (dim_max(seq, 1), "seq"),
        (dim_max(seq, 0, -5), "seq"),
        (dim_max(seq, 2), "max(2, seq)"),
        (dim_min(seq, 1), "1"),
        (dim_min(seq, 3, 5), "min(3, seq)"),
        (dim_max(seq - past, 0), "max(0, seq - past)"),
        (dim_max(3, 5), "5"),
        (dim_min(dim_min(seq, past), 7), "min(7, past, seq)"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_simplifies_and_prints(dim: Dim, text: str) -> None:
    assert str(dim) == text


def test_negative_divisors_floor_as_in_python() -> None:
    for n in range(1, 20):
        assert (seq // -3).evaluate({"seq": n}) == n // -3
        assert (-seq // 3).evaluate({"seq": n}) == -n // 3
        assert (seq % -3).evaluate({"seq": n}) == n % -3


def test_constants() -> None:
    assert int(as_dim(7)) == 7
    assert as_dim(7).is_const
    assert not seq.is_const
    assert (seq - seq).is_const
    assert int(seq - seq) == 0
    with pytest.raises(ValueError, match="seq is symbolic"):
        int(seq)


def test_symbols_are_found_everywhere() -> None:
    dim = dim_max(batch, 2) * (seq // (past + 1))
    assert dim.symbols == {"batch", "past", "seq"}
    assert (seq - seq).symbols == frozenset()


def test_evaluate_names_what_is_missing() -> None:
    with pytest.raises(KeyError, match="no size for batch, seq"):
        (seq * batch + past).evaluate({"past": 1})


def test_product_and_size() -> None:
    assert product([]) == as_dim(1)
    assert product([2, "seq", 3]) == 6 * seq
    assert size_of([as_dim(2), as_dim(3)]) == math.prod([2, 3])
    assert size_of([]) == 1
    assert size_of([as_dim(2), seq]) is None


@pytest.mark.parametrize(
    ("bad", "hint"),
    [
        ("", None),
        ("1", None),
        ("a b", None),
        ("min", None),
        ("max", None),
        ("true", None),
        ("None", None),
        ("s" * 481, None),
        ("seq+1", 'write tfgraph.ir.as_dim("seq") + 1'),
        ("t - s", 'write tfgraph.ir.as_dim("t") - "s"'),
        ("2 * s", 'write 2 * tfgraph.ir.as_dim("s")'),
        ("a//2", 'write tfgraph.ir.as_dim("a") // 2'),
    ],
)
def test_a_symbol_has_a_name(bad: str, hint: str | None) -> None:
    with pytest.raises(TfgraphError, match="is not a symbol's name") as caught:
        as_dim(bad)
    assert caught.value.hint == hint
    if hint is not None:  # it is what was meant
        made = eval(hint.removeprefix("write "), {"tfgraph": tfgraph})
        assert made == parse_dim(bad, Location("hint"))


def test_what_is_no_dimension_is_refused() -> None:
    with pytest.raises(TfgraphError, match=r"2.5 is no size: expected an integer"):
        as_dim(2.5)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        seq // 0
    with pytest.raises(ValueError, match="of no dimensions"):
        dim_min()
