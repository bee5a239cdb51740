"""fuse-gated-linear: a linear and the gate that its result is multiplied by become one op.

The gate is any tensor of the result's shape: mostly the activation of another linear, as in GLU and
its kin. Legal when nothing else reads the linear's result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tfgraph.ops import Traced, gated_linear
from tfgraph.passes.pattern import NoMatch, call, opt, var
from tfgraph.passes.pipeline import RulePass, register_pass
from tfgraph.passes.rule import Rule, rule

if TYPE_CHECKING:
    from tfgraph.ir import Node

_LINEAR = call("linear", var("x"), var("w"), opt("b"), name="linear")


@rule(call("mul", _LINEAR, var("gate")), near=2)
def fuse_gated_linear(x: Any, w: Any, b: Any, gate: Any, linear: Node) -> Any:
    """linear(x, w, b) * gate -> gated_linear(x, w, gate, b)."""
    if isinstance(gate, Traced) and gate.value == linear.output:
        raise NoMatch("the linear is its own gate: it would be computed twice")
    return gated_linear(x, w, gate, b)


@register_pass
class FuseGatedLinear(RulePass):
    """linear + mul becomes one op."""

    name = "fuse-gated-linear"
    rules: ClassVar[list[Rule]] = [fuse_gated_linear]
