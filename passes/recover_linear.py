"""recover-linear: the product of a tensor and a matrix that is given is a linear, and a vector that
is given and added to it is its bias. Given are weights, and inputs too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tfgraph.ops import linear
from tfgraph.passes.pattern import NoMatch, call, var
from tfgraph.passes.pipeline import RulePass, register_pass
from tfgraph.passes.rule import Match, Rule, rule

if TYPE_CHECKING:
    from tfgraph.ir import Value


@rule(call("matmul", var("x"), var("w")), name="linear")
def _linear(x: Any, w: Any, match: Match) -> Any:
    """x @ w -> linear(x, w), where w [in, out] is given, or computed from what is given."""
    if len(w.shape) != 2 or not _is_given(w.value, match):
        raise NoMatch
    return linear(x, w)


@rule(call("add", call("linear", var("x"), var("w"), name="product"), var("b")), near=10**6)
def join_bias(x: Any, w: Any, b: Any, match: Match) -> Any:
    """linear(x, w) + b -> linear(x, w, b), where b [out] is given, or computed so."""
    if getattr(b, "shape", None) != w.shape[1:] or not _is_given(b.value, match):
        raise NoMatch
    return linear(x, w, b)


def _is_given(value: Value, match: Match) -> bool:
    """Whether a value is given, or of fixed size and computed from such alone."""
    node = match.graph.producer.get(value)
    if node is None:
        return True
    if not node.inputs or not node.is_static:
        return False
    return all(_is_given(v, match) for v in node.inputs)


@register_pass
class RecoverLinear(RulePass):
    """Products with weights, and the biases added to them."""

    name = "recover-linear"
    rules: ClassVar[list[Rule]] = [_linear, join_bias]
