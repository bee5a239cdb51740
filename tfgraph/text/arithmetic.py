"""Sizes and exact constants: the arithmetic in the textual IR. May import: lexer, ir, errors.

Garbage must cost no more than its length, so every size and constant is kept small on the way: see
`tfgraph.ir.legal`.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError
from tfgraph.ir import Dim, Exact, as_dim, dim_max, dim_min
from tfgraph.ir.exact import FUNCTIONS, call
from tfgraph.ir.legal import (
    LARGEST_SIZE,
    MOST_ARGUMENTS,
    MOST_EXPANDED,
    MOST_FACTORS,
    check_constant,
    check_dim,
)
from tfgraph.text.lexer import located

if TYPE_CHECKING:
    from tfgraph.errors import Location
    from tfgraph.text.lexer import Cursor

LARGEST_EXPONENT = 400


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
                if len(value.terms) * len(other.terms) > MOST_EXPANDED:
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
        if len(args) > MOST_ARGUMENTS:
            raise TfgraphError(
                f"{token.text} of {len(args)} sizes: at most {MOST_ARGUMENTS}", token.location
            )
        value = dim_min(*args) if token.text == "min" else dim_max(*args)
        return _checked(value, token.location)
    with located(token.location):
        return as_dim(token.text)


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
    with located(where):
        check_dim(value)
    return value


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
            if factors > MOST_FACTORS:
                raise TfgraphError("a constant with too many factors", sign.location)
            if sign.kind == "/":
                other = _inverse(other, sign.location)
            value = value * other
        if minus:
            value = value * -1
        with located(start):
            check_constant(value)
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
