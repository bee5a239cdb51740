"""recover-bools: choices between bools and comparisons of them, which a runtime has not and a file
has in other operators."""

from __future__ import annotations

from typing import Any, ClassVar

from tfgraph.ir import DType
from tfgraph.ops import less, where
from tfgraph.passes.pattern import NoMatch, call, var
from tfgraph.passes.pipeline import RulePass, register_pass
from tfgraph.passes.rule import Rule, rule

_SILENT = 10**6
_CHOSEN = call("logical_and", var("condition"), var("yes"))
_OTHERWISE = call("logical_and", call("logical_not", var("condition"), shared=True), var("no"))


@rule(call("logical_or", _CHOSEN, _OTHERWISE), near=_SILENT)
def choice(condition: Any, yes: Any, no: Any) -> Any:
    """condition and yes, or not condition and no -> where(condition, yes, no)."""
    return where(condition, yes, no)


@rule(call("less", call("cast", var("a")), call("cast", var("b"))), near=_SILENT)
def smaller(a: Any, b: Any) -> Any:
    """int(a) < int(b) -> a < b, of bools."""
    if not a.dtype == b.dtype == DType.bool_:
        raise NoMatch
    return less(a, b)


@register_pass
class RecoverBools(RulePass):
    """Choices between bools and comparisons of them."""

    name = "recover-bools"
    rules: ClassVar[list[Rule]] = [choice, smaller]
