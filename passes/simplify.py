"""simplify: removes what changes nothing, and folds exact constants without rounding them.

Each rule keeps every value bit for bit, NaN and the sign of zero included: x - 0 is x, but x + 0 is
not where x is a float, since -0.0 + 0 is 0.0. The exception is merging constants, which rounds once
where two products round twice, and overflows only where the result does. It is not done where the
merged constant would be no normal number of the tensor's type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tfgraph.ir import Exact, as_dim, exact
from tfgraph.ir.legal import is_normal
from tfgraph.ops import reshape, transpose
from tfgraph.passes.pattern import NoMatch, call, const, var
from tfgraph.passes.pipeline import RulePass, register_pass
from tfgraph.passes.rule import Rule, rule

if TYPE_CHECKING:
    from tfgraph.ir import Node

# A mismatch of these is never worth a report.
_SILENT = 10**6


@rule(
    call("transpose", call("transpose", var("x"), name="first", shared=True), name="second"),
    near=_SILENT,
)
def merge_transposes(x: Any, first: Node, second: Node) -> Any:
    """transpose(transpose(x, p), q) -> transpose(x, p[q])."""
    perm = tuple(_ints(first.attrs["perm"])[i] for i in _ints(second.attrs["perm"]))
    return x if perm == tuple(range(len(perm))) else transpose(x, perm=perm)


@rule(call("transpose", var("x"), name="node"))
def drop_transpose(x: Any, node: Node) -> Any:
    """transpose(x, identity) -> x."""
    if _ints(node.attrs["perm"]) != tuple(range(len(x.shape))):
        raise NoMatch
    return x


@rule(call("reshape", call("reshape", var("x"), shared=True), name="second"), near=_SILENT)
def merge_reshapes(x: Any, second: Node) -> Any:
    """reshape(reshape(x)) -> reshape(x)."""
    shape = second.output.type.shape
    return x if shape == x.shape else reshape(x, shape=shape)


@rule(call(("reshape", "broadcast_to", "slice", "cast"), var("x"), name="node"))
def drop_no_op(x: Any, node: Node) -> Any:
    """A reshape, broadcast, slice or cast to the type that x has already -> x."""
    if node.output.type != x.type:
        raise NoMatch
    return x


@rule(call("concat", var("x")), near=_SILENT)
def drop_concat(x: Any) -> Any:
    """concat(x) -> x."""
    return x


@rule(call(("add", "sub"), var("x"), const("zero", exact(0)), name="node"), near=_SILENT)
def drop_zero(x: Any, node: Node) -> Any:
    """x - 0, and x + 0 of integers -> x."""
    if node.op == "add" and x.dtype.is_float:
        raise NoMatch
    return x


@rule(call(("mul", "div"), var("x"), const("one", exact(1))), near=_SILENT)
def drop_one(x: Any) -> Any:
    """x * 1, x / 1 -> x."""
    return x


@rule(call("mul", call("mul", var("x"), const("a")), const("b")), near=_SILENT)
def merge_factors(x: Any, a: Exact, b: Exact) -> Any:
    """(x * a) * b -> x * ab, exactly, for floats."""
    return _times(x, a * b)


@rule(call("mul", call("div", var("x"), const("a")), const("b")), near=_SILENT)
def merge_divisor(x: Any, a: Exact, b: Exact) -> Any:
    """(x / a) * b -> x * (b / a), exactly."""
    return _times(x, b * reciprocal(a))


def reciprocal(c: Exact) -> Exact:
    """1/c, exactly. Raises NoMatch for 0 and for a logarithm."""
    try:
        return 1 / c
    except ZeroDivisionError:
        raise NoMatch("a constant is divided by 0") from None
    except ValueError as no_form:
        raise NoMatch(str(no_form)) from None


def _times(x: Any, factor: Exact) -> Any:
    """x * factor, where the factor is a normal number of x's float type: as a constant it must not
    become 0 or inf, nor lose digits, where the two that made it did not."""
    if not x.dtype.is_float or not is_normal(factor, x.dtype):
        raise NoMatch
    return x * factor


@register_pass
class Simplify(RulePass):
    """Removes no-ops and folds exact constants."""

    name = "simplify"
    rules: ClassVar[list[Rule]] = [
        merge_transposes,
        drop_transpose,
        merge_reshapes,
        drop_no_op,
        drop_concat,
        drop_zero,
        drop_one,
        merge_factors,
        merge_divisor,
    ]


def _ints(attr: Any) -> tuple[int, ...]:
    return tuple(int(as_dim(i)) for i in attr)
