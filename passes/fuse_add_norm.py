"""fuse-add-norm: an add and the norm of its sum become one op.

Legal when both addends have the shape of the sum. Where the sum has other users, as in every
pre-norm block, the fused op returns it too. A row added to one addend (a bias) is folded in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tfgraph.ops import add_layer_norm, add_rms_norm
from tfgraph.passes.pattern import NoMatch, call, either, opt, var
from tfgraph.passes.pipeline import RulePass, register_pass
from tfgraph.passes.rule import Match, Rule, rule

if TYPE_CHECKING:
    from tfgraph.ir import Node

# The op takes nothing but a row for `shift`; where something else was added first, the second
# pattern of `_ADD` matches with that sum for `a`.
_SHIFTED = call("add", var("a"), var("shift"))
_ADD = either(
    call("add", _SHIFTED, var("b"), name="total"), call("add", var("a"), var("b"), name="total")
)
_SUM = either(_ADD, call("transpose", _ADD, name="moved"))


@rule(call("layer_norm", _SUM, opt("scale"), opt("bias"), name="norm"))
def fuse_add_layer_norm(
    a: Any,
    b: Any,
    shift: Any,
    scale: Any,
    bias: Any,
    total: Node,
    moved: Node | None,
    norm: Node,
    match: Match,
) -> Any:
    """layer_norm(a + b) -> add_layer_norm(a, b)."""
    _check(a, b, moved)
    keep = match.escapes(total)
    fused = add_layer_norm(a, b, scale, bias, shift, eps=_eps(norm), keep_sum=keep)
    return {total: fused[0], norm: fused[1]} if isinstance(fused, tuple) else fused


@rule(call("rms_norm", _SUM, opt("scale"), name="norm"))
def fuse_add_rms_norm(
    a: Any,
    b: Any,
    shift: Any,
    scale: Any,
    total: Node,
    moved: Node | None,
    norm: Node,
    match: Match,
) -> Any:
    """rms_norm(a + b) -> add_rms_norm(a, b)."""
    _check(a, b, moved)
    keep = match.escapes(total)
    fused = add_rms_norm(a, b, scale, shift, eps=_eps(norm), keep_sum=keep)
    return {total: fused[0], norm: fused[1]} if isinstance(fused, tuple) else fused


def _check(a: Any, b: Any, moved: Node | None) -> None:
    if moved is not None:
        raise NoMatch(f"the norm is over another axis: {moved.output} moves the axes of the sum")
    for x in (a, b):
        if not hasattr(x, "type"):
            raise NoMatch(f"the add is with the constant {x}")
    if a.shape != b.shape:
        raise NoMatch(f"the add broadcasts {a.type} with {b.type}")


def _eps(norm: Node) -> Any:
    return norm.attrs["eps"]


@register_pass
class FuseAddNorm(RulePass):
    """add + layer_norm or rms_norm becomes one op."""

    name = "fuse-add-norm"
    rules: ClassVar[list[Rule]] = [fuse_add_layer_norm, fuse_add_rms_norm]
