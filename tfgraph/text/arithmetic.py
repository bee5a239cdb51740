"""Sizes and exact constants: the arithmetic in the textual IR. May import: lexer, ir, errors.

Garbage must cost no more than its length, so every size and constant is kept small: see the limits
below. Real models come nowhere near them.
"""

from __future__ import annotations

from fractions import Fraction
from math import isfinite, prod
from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError
from tfgraph.ir import Dim, Exact, as_dim, dim_max, dim_min
from tfgraph.ir.dim import Extremum, FloorDiv
from tfgraph.ir.exact import FUNCTIONS, call
from tfgraph.text.lexer import located

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgraph.errors import Location
    from tfgraph.text.lexer import Cursor

RESERVED = ("true", "false", "None", "min", "max")  # not names of symbols
LARGEST_SIZE = 2**40
LARGEST_EXPONENT = 400
HIGHEST_RANK = 32
_MOST_TERMS, _MOST_FACTORS, _MOST_ARGUMENTS, _DEEPEST_DIM = 32, 16, 32, 5
_MOST_EXPANDED = 1000  # terms of the product of a shape's sizes
_MOST_BITS = 3000  # of a constant's numerator and denominator


def dim(c: Cursor) -> Dim:
    """A size: integers, symbols, `+ - * //`, `min`, `max` and parentheses.

    A minus in front is that of its whole term: -a//2 is -(a//2).
    """
    with c.nested():
        minus = c.accept("-")
        total = -_dim_term(c) if minus else _dim_term(c)
        while c.sees("+", "-"):
            sign = c.next()
            term = _dim_term(c)
            total = _checked(total + term if sign.kind == "+" else total - term, sign.location)
    return total


def _dim_term(c: Cursor) -> Dim:
    value = _dim_factor(c)
    while c.sees("*", "//"):
        sign = c.next()
        other = _dim_factor(c)
        with located(sign.location):
            if sign.kind == "*":
                if len(value.terms) * len(other.terms) > _MOST_EXPANDED:
                    raise TfgraphError("a size with too many terms")
                value = value * other
            elif not other.terms:
                raise TfgraphError("division by zero")
            else:
                value = value // other
        value = _checked(value, sign.location)
    return value


def _dim_factor(c: Cursor) -> Dim:
    token = c.token
    if c.accept("("):
        value = dim(c)
        c.expect(")")
        return value
    if token.kind == "number":
        return as_dim(integer(c, "a size", LARGEST_SIZE))
    if token.kind != "name":
        raise c.wrong("a size", "integers and symbols such as batch, joined by + - * // min max")
    c.next()
    if token.text in ("min", "max") and c.accept("("):
        args = [dim(c)]
        while c.accept(","):
            args.append(dim(c))
        c.expect(")")
        if len(args) > _MOST_ARGUMENTS:
            raise TfgraphError(
                f"{token.text} of {len(args)} sizes: at most {_MOST_ARGUMENTS}", token.location
            )
        value = dim_min(*args) if token.text == "min" else dim_max(*args)
        return _checked(value, token.location)
    check_symbol(token.text, token.location)
    return as_dim(token.text)


def check_symbol(name: str, where: Location) -> None:
    """Raise unless `name` may be a symbol's."""
    if name in RESERVED or not name.isidentifier():
        raise TfgraphError(f"'{name}' is not a symbol's name", where)


def integer(c: Cursor, what: str, limit: int = 2**63) -> int:
    """An integer, with a minus allowed, of a magnitude of at most `limit`."""
    minus = c.accept("-")
    token = c.expect("number", what)
    if not token.text.isdigit():
        raise TfgraphError(f"expected an integer, found {token}", token.location)
    value = -int(token.text) if minus else int(token.text)
    if abs(value) > limit:
        raise TfgraphError(f"{what} beyond {limit}", token.location)
    return value


def _checked(value: Dim, where: Location) -> Dim:
    if any(abs(coefficient) > LARGEST_SIZE for _, coefficient in value.terms):
        raise TfgraphError(f"a size above {LARGEST_SIZE}", where)
    powers = [sum(power for _, power in monomial) for monomial, _ in value.terms]
    if len(value.terms) > _MOST_TERMS or max(powers, default=0) > _MOST_FACTORS:
        raise TfgraphError("a size with too many terms", where)
    if _depth(value) > _DEEPEST_DIM:
        raise TfgraphError("a size with too many divisions inside one another", where)
    return value


def _depth(value: Dim) -> int:
    """How deep floor divisions, minima and maxima stand inside one another."""
    inner: list[Dim] = []
    for monomial, _ in value.terms:
        for atom, _ in monomial:
            if isinstance(atom, FloorDiv):
                inner += [atom.numerator, atom.divisor]
            elif isinstance(atom, Extremum):
                inner += atom.args
    return 1 + max(map(_depth, inner)) if inner else 0


def check_shape(shape: Sequence[Dim], where: Location) -> None:
    """Raise where sizes are negative or absurd, or too many."""
    check_sizes(shape, where)
    for size in shape:
        _checked(size, where)
        if size.is_const and int(size) < 0:
            raise TfgraphError(f"a negative size, {size}", where)


def check_sizes(sizes: Sequence[Dim], where: Location) -> None:
    """Raise where there are too many sizes, or their product would have too many terms."""
    if len(sizes) > HIGHEST_RANK:
        raise TfgraphError(f"{len(sizes)} sizes: at most {HIGHEST_RANK}", where)
    if prod(max(1, len(size.terms)) for size in sizes) > _MOST_EXPANDED:
        raise TfgraphError("sizes with too many terms", where)


def constant(c: Cursor) -> Exact:
    """An exact number: 16, 0.1, 1e-05, 1/3, rsqrt(64), 2*sqrt(3)."""
    with c.nested():
        start = c.token.location
        minus = c.accept("-")
        value = _constant_factor(c)
        factors = 1
        while c.sees("*", "/"):
            sign = c.next()
            other = _constant_factor(c)
            factors += 1
            if factors > _MOST_FACTORS:
                raise TfgraphError("a constant with too many factors", sign.location)
            if sign.kind == "/":
                other = _inverse(other, sign.location)
            value = value * other
        if minus:
            value = value * -1
        _check_constant(value, start)
    return value


def _constant_factor(c: Cursor) -> Exact:
    token = c.token
    if c.accept("("):
        value = constant(c)
        c.expect(")")
        return value
    if token.kind == "number":
        c.next()
        exponent = token.text.lower().partition("e")[2]
        if exponent and (len(exponent) > 6 or abs(int(exponent)) > LARGEST_EXPONENT):
            raise TfgraphError(f"the number {token} is out of range", token.location)
        return Exact(Fraction(token.text))
    if token.kind == "name" and token.text in FUNCTIONS and c.peek().kind == "(":
        c.next()
        c.next()
        argument = constant(c)
        c.expect(")")
        with located(token.location):
            return call(token.text, argument)
    raise c.wrong("a number", f"or one of {', '.join(FUNCTIONS)} of a number")


def _inverse(value: Exact, where: Location) -> Exact:
    if value.calls:
        raise TfgraphError(f"only a rational divides, not {value}", where, "1/sqrt(x) is rsqrt(x)")
    if not value.factor:
        raise TfgraphError("division by zero", where)
    return Exact(1 / value.factor)


def _check_constant(value: Exact, where: Location) -> None:
    bits = max(value.factor.numerator.bit_length(), value.factor.denominator.bit_length())
    try:
        fine = bits <= _MOST_BITS and isfinite(float(value))
    except (ArithmeticError, ValueError):
        fine = False
    if not fine:
        raise TfgraphError("the number is out of the range of float64", where)
