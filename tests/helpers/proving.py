"""Passes of a rule or two, and graphs of a node or two, for the tests of proofs."""

from __future__ import annotations

import inspect
import itertools
from typing import TYPE_CHECKING, Any

from tfgraph import ops
from tfgraph.passes import NoMatch, Pass, Rule, RulePass

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.ir import Graph
    from tfgraph.ops import Builder


def rules_pass(*rules: Rule) -> Pass:
    """A pass of these rules."""

    class Chosen(RulePass):
        name = "chosen"

    Chosen.rules = list(rules)  # type: ignore[misc]
    return Chosen()


def once(wrong: Rule) -> Rule:
    """The rule, which applies at most once, since it may match what it makes."""
    left = itertools.count()

    def function(**given: Any) -> Any:
        if next(left):
            raise NoMatch
        return wrong.function(**given)

    function.__signature__ = inspect.signature(wrong.function)  # type: ignore[attr-defined]
    return Rule(wrong.name, wrong.pattern, function, wrong.near, wrong.location)


def one(build: Callable[[Builder], Any]) -> Graph:
    with ops.graph("g") as g:
        g.output("y", build(g))
    return g.build()
