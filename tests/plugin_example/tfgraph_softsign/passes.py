"""A rule that joins a pass of tfgraph, and a pass with a rule of its own."""

from typing import Any, ClassVar

from tfgraph.ir import exact
from tfgraph.passes import Rule, RulePass, call, const, rule, var
from tfgraph_softsign.ops import softsign


@rule(call("neg", call("neg", var("x"))))
def double_negation(x: Any) -> Any:
    """-(-x) -> x."""
    return x


@rule(call("div", var("x"), call("add", const("one", exact(1)), call("abs", var("x")))))
def recover_softsign(x: Any) -> Any:
    """x / (1 + |x|) -> softsign(x)."""
    return softsign(x)


class RecoverSoftsign(RulePass):
    """Finds softsign where a graph spells it out."""

    name = "recover-softsign"
    rules: ClassVar[list[Rule]] = [recover_softsign]
