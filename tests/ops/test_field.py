"""The field domain: its arithmetic against Python's integers, and what it knows of functions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tfgraph.ir import DType, exact, rsqrt, sqrt
from tfgraph.ir.exact import call
from tfgraph.ops import xp
from tfgraph.ops.evaluate import evaluate
from tfgraph.ops.field import Draw, FieldArray, NotInField, Redraw, modular
from tfgraph.ops.field.degree import CONSTANT, VARIABLE, Degree
from tfgraph.ops.field.draw import FEW, PRIMES

F32 = DType.float32
P, Q = zip(*PRIMES[:FEW], strict=True)
MODULI = P + Q


def is_prime(n: int) -> bool:
    """Miller and Rabin, with bases that decide for all n below 3.3e24."""
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        x = pow(base, odd, n)
        if x not in (1, n - 1) and all((x := x * x % n) != n - 1 for _ in range(twos - 1)):
            return False
    return True


def test_the_primes_are_what_is_said_of_them() -> None:
    for p, q in PRIMES:
        assert p == 2 * q + 1 < 2**31
        assert is_prime(p)
        assert is_prime(q)
        for small in (2, 3, 5, 7, 11, 13, 17, 19):
            for m in (p, q):
                assert pow(modular.root(small, m) or 0, 2, m) == small
        assert modular.root(p - 1, p) is None  # -1 has no root where p is 3 modulo 4


@pytest.fixture
def draw() -> Draw:
    return Draw(7)


def numbers(draw: Draw, *shape: int) -> FieldArray:
    return FieldArray.variables(draw, F32, shape)


def integers(x: FieldArray, moduli: tuple[int, ...] = P) -> Any:
    """The residues as Python's integers, one array of objects for each modulus."""
    rows = x.numbers if moduli == P else x.q
    assert rows is not None
    return [row.astype(object) for row in rows]


@pytest.mark.parametrize(
    "shapes", [((2, 3), (2, 3)), ((2, 3), (3,)), ((4, 1, 2), (3, 1)), ((), (5,))]
)
def test_sums_and_products_are_pythons(draw: Draw, shapes: Any) -> None:
    a, b = (numbers(draw, *shape) for shape in shapes)
    for moduli in (P, Q):
        for m, x, y, add, sub, mul, div in zip(
            moduli,
            *(integers(v, moduli) for v in (a, b, a.binary("add", b), a.binary("sub", b))),
            *(integers(v, moduli) for v in (a.binary("mul", b), a.binary("div", b))),
            strict=True,
        ):
            assert np.array_equal(add, (x + y) % m)
            assert np.array_equal(sub, (x - y) % m)
            assert np.array_equal(mul, x * y % m)
            assert np.array_equal(div * y % m, np.broadcast_to(x % m, div.shape))


@pytest.mark.parametrize(
    "shapes",
    [((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((2, 1, 3, 5), (4, 5, 2)), ((1, 700), (700, 1))],
)
def test_matrix_products_are_pythons(draw: Draw, shapes: Any) -> None:
    a, b = (numbers(draw, *shape) for shape in shapes)
    found = a.matmul(b)
    for moduli in (P, Q):
        for m, x, y, z in zip(moduli, *(integers(v, moduli) for v in (a, b, found)), strict=True):
            assert np.array_equal(z, np.matmul(x, y) % m)


def test_the_largest_residues_do_not_overflow(draw: Draw) -> None:
    ones = np.stack([np.full((1, 4000), m - 1, np.uint64) for m in MODULI])
    found = modular.matmul(ones, ones.transpose(0, 2, 1), MODULI)
    assert found.reshape(-1).tolist() == [4000] * len(MODULI)  # (-1)(-1) each


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sums_and_means(draw: Draw, axis: int) -> None:
    x = numbers(draw, 3, 5)
    made = x.reduce("sum", axis), x.reduce("mean", axis), x.scan("sum", axis)
    for m, row, total, mean, running in zip(P, *map(integers, (x, *made)), strict=True):
        assert np.array_equal(total, row.sum(axis=axis, keepdims=True) % m)
        assert np.array_equal(mean * row.shape[axis] % m, total)
        assert np.array_equal(running, row.cumsum(axis=axis) % m)


@pytest.mark.parametrize(
    ("move", "same"),
    [
        (lambda x, y: x.reshape((4, 6)), lambda x, y: x.reshape(4, 6)),
        (lambda x, y: x.transpose((2, 0, 1)), lambda x, y: x.transpose(2, 0, 1)),
        (lambda x, y: x.slice(-1, 1, 3), lambda x, y: x[:, :, 1:3]),
        (lambda x, y: x.slice(1, 0, 1).broadcast((2, 3, 4)), lambda x, y: x[:, [0, 0, 0]]),
        (lambda x, y: x.join([y, x], 0), lambda x, y: np.concatenate([x, y, x], 0)),
        (lambda x, y: x.join([y], -1), lambda x, y: np.concatenate([x, y], -1)),
    ],
)  # fmt: skip
def test_residues_and_flags_move_together(draw: Draw, move: Any, same: Any) -> None:
    arrays = [numbers(draw, 2, 3, 4) for _ in range(2)]
    keep = np.random.default_rng(0).integers(0, 2, (2, 2, 3, 4)).astype(bool)
    hidden = [x.hide(FieldArray.integers(draw, k)) for x, k in zip(arrays, keep, strict=True)]
    for pair in (arrays, hidden):
        made = move(*pair)
        assert np.array_equal(made.flags(), same(*(x.flags() for x in pair)))
        for moduli in (P, Q):
            rows = [integers(x, moduli) for x in pair]
            for found, *given in zip(integers(made, moduli), *rows, strict=True):
                assert np.array_equal(found, same(*given))


def test_exp_turns_sums_into_products(draw: Draw) -> None:
    a, b = numbers(draw, 4), numbers(draw, 4)
    together = xp.exp(xp.add(a, b))
    apart = xp.mul(xp.exp(a), xp.exp(b))
    assert not together.differs(apart)  # type: ignore[attr-defined]
    assert xp.exp(a).differs(xp.exp(b))  # type: ignore[attr-defined]
    assert set(xp.exp(a.like(0)).numbers.tolist()) == {1}  # type: ignore[attr-defined]


def test_softmax_does_not_depend_on_a_shift_and_a_hidden_key_weighs_nothing(draw: Draw) -> None:
    from tfgraph.ops import softmax

    x, shift = numbers(draw, 2, 5), numbers(draw, 2, 1)
    assert not softmax(x).differs(softmax(xp.add(x, shift)))  # type: ignore[attr-defined]
    allowed = np.array([[True, False, True, True, False], [False] * 5])
    weights: Any = softmax(x.hide(FieldArray.integers(draw, allowed)))
    assert np.array_equal((weights.numbers != 0).all(axis=0), allowed)
    assert weights.numbers[:, 0].sum(axis=-1).tolist() != [0] * len(P)
    assert (weights.reduce("sum", -1).numbers[:, 0, 0] == 1).all()
    few = softmax(x.slice(0, 0, 1).take(FieldArray.integers(draw, np.array([0, 2, 3])), 1))
    assert not few.differs(  # type: ignore[attr-defined]
        weights.slice(0, 0, 1).take(FieldArray.integers(draw, np.array([0, 2, 3])), 1)
    )
    assert (draw.masked, draw.chosen) == (True, True)
    first, second = allowed, np.array([True, True, False, True, False])
    twice: Any = x.hide(FieldArray.integers(draw, first)).hide(FieldArray.integers(draw, second))
    assert np.array_equal(twice.flags(), ~(first & second))


@pytest.mark.parametrize("function", ["tanh", "erf", "sin", "cos", "sqrt", "log", "floor", "abs"])
def test_functions_are_equal_on_equal_operands_alone(draw: Draw, function: str) -> None:
    x = numbers(draw, 50)
    once, again = x.unary(function), x.binary("mul", x.like(1)).unary(function)
    assert not once.differs(again)
    assert once.differs(x)
    assert len(set(once.numbers[0].tolist())) == 50
    mirrored = x.unary("neg").unary(function)
    if function in ("cos", "abs"):
        assert not once.differs(mirrored)
    elif function in ("tanh", "erf", "sin"):
        assert not once.unary("neg").differs(mirrored)
    else:
        assert once.differs(mirrored)
    assert Draw(8).opaque(function, x.numbers, VARIABLE)[0].tolist() != once.numbers.tolist()


def test_another_function_is_another(draw: Draw) -> None:
    x = numbers(draw, 9)
    assert x.unary("tanh").differs(x.unary("erf"))
    assert x.unary("sin").differs(x.unary("cos"))


def test_the_order_is_one(draw: Draw) -> None:
    a, b, c = (numbers(draw, 40) for _ in range(3))
    high, low = a.binary("maximum", b), a.binary("minimum", b)
    assert not high.differs(b.binary("maximum", a))
    assert not high.binary("add", low).differs(a.binary("add", b))
    assert not high.binary("maximum", c).differs(a.binary("maximum", b.binary("maximum", c)))
    stacked = a.reshape((40, 1)).join([b.reshape((40, 1)), c.reshape((40, 1))], 1)
    assert not stacked.reduce("max", 1).reshape((40,)).differs(high.binary("maximum", c))
    assert not a.binary("maximum", a).differs(a)
    # relu is not the identity, nor its negative: about half of all numbers rank below 0.
    kept = (a.binary("maximum", a.like(0)).numbers == a.numbers).all(axis=0)
    assert 5 < kept.sum() < 35
    below = a.binary("less", b).integer.data
    assert np.array_equal(below, (high.numbers == b.numbers).all(axis=0))
    values, order = stacked.topk(2)
    assert not values.slice(1, 0, 1).reshape((40,)).differs(high.binary("maximum", c))
    assert order.dtype == DType.int64


@pytest.mark.parametrize(
    ("product", "value"),
    [
        ((rsqrt(96), rsqrt(96)), Fraction(1, 96)),
        ((sqrt(12), sqrt(3)), Fraction(6)),
        ((sqrt(exact(0.75)), sqrt(12)), Fraction(3)),
        ((rsqrt(64),), Fraction(1, 8)),
        ((exact(0.044715), exact(2)), Fraction(8943, 100000)),
        ((call("exp", 2), call("exp", -2)), Fraction(1)),
    ],
)
def test_constants_are_the_expressions_that_they_are(draw: Draw, product: Any, value: Any) -> None:
    x = numbers(draw, 1).like(1)
    for factor in product:
        x = x.binary("mul", x.like(factor))
    assert not x.differs(x.like(exact(value)))
    assert x.differs(x.like(exact(value) + 1))


def test_a_rounded_constant_is_another(draw: Draw) -> None:
    x = numbers(draw, 1)
    assert x.like(rsqrt(32)).differs(x.like(float(rsqrt(32))))


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2, 0.5, 1.5, -0.5])
def test_powers(draw: Draw, exponent: float) -> None:
    x = numbers(draw, 6)
    found = x.binary("pow", x.like(exponent))
    want = x.like(1).broadcast((6,))
    for _ in range(int(abs(exponent))):
        want = want.binary("mul", x)
    if exponent % 1:
        want = want.binary("mul", x.unary("sqrt"))
    assert not found.differs(want.like(1).binary("div", want) if exponent < 0 else want)


def test_other_powers_are_functions_of_both(draw: Draw) -> None:
    x, y = numbers(draw, 6), numbers(draw, 6)
    assert not x.binary("pow", y).differs(x.binary("pow", y.binary("mul", y.like(1))))
    assert x.binary("pow", y).differs(y.binary("pow", x))
    assert x.like(2).binary("pow", y).differs(x.like(3).binary("pow", y))
    assert x.binary("pow", x.like(0.3)).differs(x.binary("pow", x.like(0.4)))


def test_integers_and_bools_are_themselves(draw: Draw) -> None:
    i = FieldArray.integers(draw, np.array([3, -2, 7]))
    assert i.binary("mul", i.like(2)).integer.data.tolist() == [6, -4, 14]
    x = i.cast(F32)
    assert integers(x)[0].tolist() == [3, P[0] - 2, 7]
    assert not x.binary("mul", x).differs(i.binary("mul", i).cast(F32))
    assert i.iota(4).integer.data.tolist() == [0, 1, 2, 3]


def test_what_has_no_meaning_is_said(draw: Draw) -> None:
    x, i = numbers(draw, 2, 2), FieldArray.integers(draw, np.array([[1, 0], [0, 1]]))
    hidden = x.hide(i.cast(DType.bool_))
    for wrong, message in (
        (lambda: x.cast(DType.int64), "a float becomes"),
        (lambda: x.binary("pow", hidden), "pow with -inf"),
        (lambda: hidden.matmul(x), "a product of -inf"),
        (lambda: x.binary("sub", hidden), "sub with -inf"),
        (lambda: hidden.unary("tanh"), "tanh of -inf"),
        (lambda: hidden.reduce("sum", 0), "the sum of -inf"),
        (lambda: i.matmul(i), "stands where a float is expected"),
    ):
        with pytest.raises(NotInField, match=message):
            wrong()
    with pytest.raises(Redraw, match="division by zero"):
        x.binary("div", x.binary("sub", x))
    with pytest.raises(IndexError, match="out of range"):
        x.take(i.like(5), 0)


def test_degrees(draw: Draw) -> None:
    """Of x1 x2 + x3 over (y1 y2), and of fractions that share a denominator."""
    x = numbers(draw, 3, 5)
    shares = x.binary("div", x.reduce("sum", 1))
    assert (shares.degree.top, shares.degree.bottom) == (1 + 2, 3)  # of three sums
    product = VARIABLE.times(VARIABLE)
    assert product.plus(VARIABLE).top == 2
    assert (CONSTANT.times(VARIABLE).total, CONSTANT.inverse(9).total) == (1, 0)
    share = VARIABLE.times(VARIABLE.inverse(5))  # x over one of five sums
    assert (share.top, share.bottom) == (1 + 4, 5)
    assert share.plus(share).bottom == 5  # the same five again
    other = VARIABLE.times(VARIABLE.inverse(3))
    both = share.plus(other)
    assert (both.top, both.bottom) == (5 + 3, 8)
    assert share.times(share).bottom == 10
    assert (Degree(2).inverse(1).top, Degree(2).inverse(1).bottom) == (0, 2)


def test_the_probability_of_error(draw: Draw) -> None:
    """That of Schwartz and Zippel, where nothing was asked of a random function; pairs else."""
    x = numbers(draw, 3)
    x.binary("mul", x).differs(x)
    assert draw.error == pytest.approx(np.prod([2 / q for q in Q]), abs=0)
    x.unary("tanh")
    pairs = 1 + 3 * 2 / 2 + 6 * 5 / 2  # of tanh, and of ranks: which of x and -x it is asked for
    assert draw.error == pytest.approx(pairs * np.prod([2 / q for q in Q]), abs=0)


def test_a_transformer_means_the_same_in_both_domains() -> None:
    """A node that a field test takes for equal is equal in floats: here of a whole encoder layer,
    whose field values change with every weight."""
    from tfgraph import blocks, ops

    with ops.graph("g") as g:
        x = g.input("x", "f32", 1, 3, 8)
        g.output("y", blocks.encoder(x, 1, blocks.Layer(heads=2, ffn=16)))
    graph = g.build()
    names = [i.value for i in graph.inputs] + [p.value for p in graph.params]

    def run(changed: str) -> Any:
        draw = Draw(1)
        given = {v.name: numbers(draw, *map(int, v.type.shape)) for v in names}
        if changed:
            given[changed] = numbers(draw, *map(int, given[changed].shape))
        like = FieldArray.integers(draw, np.zeros((), np.int64))
        return list(evaluate(graph, given, {}, like))[-1][1][0].numbers

    plain = run("")
    cancels = {v.name for v in names if v.name.endswith("attention.k.bias")}
    assert len(cancels) == 1
    for value in names:
        # All keys shifted alike shift a row's scores alike, which softmax does not see.
        same = np.array_equal(plain, run(value.name))
        assert same == (value.name in cancels), value.name
