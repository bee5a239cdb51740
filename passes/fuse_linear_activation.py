"""fuse-linear-activation: a linear and the activation of its result become one op.

Legal when nothing else reads the linear's result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tfgraph.ops import ACTIVATIONS, linear_activation
from tfgraph.passes.pattern import call, opt, var
from tfgraph.passes.pipeline import RulePass, register_pass
from tfgraph.passes.rule import Rule, rule

if TYPE_CHECKING:
    from tfgraph.ir import Node


@rule(call(ACTIVATIONS, call("linear", var("x"), var("w"), opt("b")), name="act"))
def fuse_linear_activation(x: Any, w: Any, b: Any, act: Node) -> Any:
    """gelu(linear(x, w, b)) -> linear_activation(x, w, b), and so for the other activations."""
    return linear_activation(x, w, b, activation=act.op)


@register_pass
class FuseLinearActivation(RulePass):
    """linear + activation becomes one op."""

    name = "fuse-linear-activation"
    rules: ClassVar[list[Rule]] = [fuse_linear_activation]
