"""Dimensions of the IR as int64 expressions of TVM. May import: tvm, tfgraph.ir."""

from __future__ import annotations

import operator
from functools import reduce
from typing import TYPE_CHECKING, Any

from tvm import tirx

from tfgraph.ir import Dim, as_dim, dim_max, dim_min, dims_of
from tfgraph.ir.dim import Extremum, FloorDiv

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfgraph.ir import Node
    from tfgraph.ir.dim import Atom

Expr = Any


def to_expr(dim: Dim, variables: Mapping[str, Expr]) -> Expr:
    """The dimension over `variables`, int64 expressions by symbol. Raises KeyError for others."""
    total: Expr = None
    for monomial, coefficient in dim.terms:
        factors = [_atom(atom, variables) for atom, power in monomial for _ in range(power)]
        if coefficient != 1 or not factors:
            factors.append(_const(coefficient))
        term = reduce(lambda a, b: a * b, factors)
        total = term if total is None else total + term
    return _const(0) if total is None else total


def from_expr(expr: Expr) -> Dim:
    """The reverse: an integer expression as a dimension over the names of its variables."""
    if isinstance(expr, tirx.IntImm):
        return as_dim(expr.value)
    if isinstance(expr, tirx.Var):
        return as_dim(expr.name)
    return _OPERATORS[type(expr)](from_expr(expr.a), from_expr(expr.b))


_OPERATORS: dict[Any, Callable[[Dim, Dim], Dim]] = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
    tirx.FloorDiv: operator.floordiv,
    tirx.Min: dim_min,
    tirx.Max: dim_max,
}


def symbols_of(node: Node) -> tuple[str, ...]:
    """All symbols in the types, attributes and masks of a node, sorted."""
    dims = [d for value in (*node.inputs, *node.outputs) for d in value.type.shape]
    for part in (*node.attrs.values(), *node.operands):
        dims += dims_of(part)
    return tuple(sorted({symbol for dim in dims for symbol in dim.symbols}))


def _atom(atom: Atom, variables: Mapping[str, Expr]) -> Expr:
    if isinstance(atom, str):
        return variables[atom]
    if isinstance(atom, FloorDiv):
        return tirx.floordiv(to_expr(atom.numerator, variables), to_expr(atom.divisor, variables))
    assert isinstance(atom, Extremum)
    pick = tirx.min if atom.kind == "min" else tirx.max
    return reduce(pick, (to_expr(arg, variables) for arg in atom.args))


def _const(value: int) -> Expr:
    return tirx.const(value, "int64")
