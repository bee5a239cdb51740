"""fold-constants: computes at compile time what is known exactly, and rounds nothing.

Tensors of one repeated constant (`full`) move and combine into others, as exact numbers. What is
computed from weights alone stays in the graph, so that the text needs no bytes; a compiling backend
computes it once, when it makes an artifact.

Legal where the result is exact: sums, differences and products of rationals, products with roots,
quotients by a rational other than 0. Integers that would wrap around stay, and so do floats that
would overflow, lose digits as subnormal numbers, or be -0, which no exact number is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tfgraph.ir import Exact, Value, exact
from tfgraph.ir.legal import is_normal
from tfgraph.ops import full
from tfgraph.passes.pattern import NoMatch, call, var
from tfgraph.passes.pipeline import RulePass, register_pass
from tfgraph.passes.rule import SILENT, Match, Rule, rule

if TYPE_CHECKING:
    from tfgraph.ir import Node, Operand


@rule(
    call(
        ("reshape", "transpose", "broadcast_to", "slice"),
        call("full", name="source", shared=True),
        name="moved",
    ),
    near=SILENT,
)
def move_full(source: Node, moved: Node) -> Any:
    """A reshape, transpose, broadcast or slice of full(c) -> full(c) of its shape."""
    return _full(source.attrs["value"], moved)


@rule(call(("add", "sub", "mul", "div"), var("a"), var("b"), name="node"))
def combine_full(node: Node, match: Match) -> Any:
    """full(c) + full(d), full(c) + d -> full(c + d), and so for -, * and /."""
    a, b = (_constant(operand, match) for operand in node.operands)
    if a is None or b is None:
        raise NoMatch
    return _folded(_combined(node, a, b), node, a, b)


@rule(call("neg", call("full", name="source", shared=True), name="node"), near=SILENT)
def negate_full(source: Node, node: Node) -> Any:
    """-full(c) -> full(-c)."""
    return _folded(_exact(source.attrs["value"]) * -1, node, exact(-1))


def _constant(operand: Operand, match: Match) -> Exact | None:
    """The number that an operand repeats; None if it is none."""
    if isinstance(operand, Exact):
        return operand
    assert isinstance(operand, Value)
    source = match.graph.producer.get(operand)
    return _exact(source.attrs["value"]) if source is not None and source.op == "full" else None


def _combined(node: Node, a: Exact, b: Exact) -> Exact:
    if node.op == "mul":
        return a * b
    if a.calls or b.calls:
        raise NoMatch("the sum of roots has no exact form")
    if node.op == "div":
        if not b.factor:
            raise NoMatch("a constant is divided by 0")
        return Exact(a.factor / b.factor)
    return Exact(a.factor + b.factor if node.op == "add" else a.factor - b.factor)


def _folded(value: Exact, node: Node, *operands: Exact) -> Any:
    """full(value), where the node's arithmetic on the operands gives nothing else."""
    dtype = node.output.type.dtype
    if dtype.is_float:
        for number in (value, *operands):
            if number.factor and not is_normal(number, dtype):
                raise NoMatch(f"{number} is no normal number of {dtype}")
        if not value.factor and node.op not in ("add", "sub") and _negative(operands):
            raise NoMatch("the result is -0")
    return _full(value, node)


def _negative(operands: tuple[Exact, ...]) -> bool:
    return any(number.factor < 0 for number in operands)


def _full(value: Any, node: Node) -> Any:
    type_ = node.output.type
    return full(shape=type_.shape, value=_exact(value), dtype=type_.dtype)


def _exact(value: Any) -> Exact:
    return exact(value)


@register_pass
class FoldConstants(RulePass):
    """Computes tensors of one repeated constant, exactly."""

    name = "fold-constants"
    rules: ClassVar[list[Rule]] = [move_full, combine_full, negate_full]
