"""Rules: a pattern, and a function that returns the replacement or says why not.

    @rule(call("layer_norm", call("add", var("a"), var("b"), name="add"), opt("scale"), name="norm"))
    def add_layer_norm(a, b, scale, add, norm, match):
        '''layer_norm(a + b) -> add_layer_norm(a, b).'''

The function's parameters are the pattern's names: variables arrive as traced values to which ops
apply as in the DSL, named calls as nodes, `match` as the `Match`. It returns the value that
replaces the root's result, or a dict from nodes to their replacements. May import: pattern, ops, ir.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfgraph.errors import Location
from tfgraph.ir import Mask, Node, Value
from tfgraph.ops import Builder, Traced
from tfgraph.passes.pattern import Call, NoMatch, Search, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tfgraph.ir import Graph
    from tfgraph.passes.pattern import Pattern


@dataclass(frozen=True)
class Match:
    """One occurrence of a rule's pattern in a graph."""

    graph: Graph
    root: Node
    state: State

    def outside_user(self, node: Node) -> str | None:
        """Who reads a result of `node` outside of the match, in words; None if nobody does."""
        inside = {n.outputs for n, _ in self.state.nodes}
        for value in node.outputs:
            if value in self.graph.output_values:
                return "the graph's outputs"
            for user in self.graph.users.get(value, ()):
                if user.outputs not in inside:
                    return f"%{user.outputs[0].name} = {user.op}"
        return None

    def escapes(self, node: Node) -> bool:
        """Whether a result of `node` is read outside of the match."""
        return self.outside_user(node) is not None


@dataclass(frozen=True)
class Rule:
    """A named rewrite. `near`: how many nodes must match for a mismatch to be worth a report."""

    name: str
    pattern: Call
    function: Callable[..., Any]
    near: int
    location: Location

    @property
    def doc(self) -> str:
        """The rewrite in one line."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    def matches(self, graph: Graph, root: Node, search: Search) -> Iterator[Match]:
        """All ways in which the pattern matches at `root`."""
        for state in self.pattern.match(root.outputs[-1], State(), search):
            yield Match(graph, root, state)

    def replace(self, match: Match, builder: Builder) -> Mapping[Value, Value]:
        """Run the function; the old values with what replaces them. New nodes are in `builder`.

        Raises NoMatch where the rule declines, or where the rewrite would swallow a value that is
        read elsewhere.
        """
        wanted = inspect.signature(self.function).parameters
        given = {k: _traced(v, builder) for k, v in match.state.bindings.items() if k in wanted}
        missing = {k: None for k in wanted if k not in given and k != "match"}
        if "match" in wanted:
            given["match"] = match
        with builder, builder.at(match.root.location):
            result = self.function(**given, **missing)
        replaced = result if isinstance(result, dict) else {match.root: result}
        self._check_swallowed(match, replaced)
        return {
            old: new.value
            for node, result in replaced.items()
            for old, new in zip(
                node.outputs, result if isinstance(result, tuple) else (result,), strict=True
            )
        }

    def _check_swallowed(self, match: Match, replaced: Mapping[Node, Any]) -> None:
        for node, shared in match.state.nodes:
            if shared or node in replaced or node == match.root:
                continue
            user = match.outside_user(node)
            if user is not None:
                raise NoMatch(f"%{node.outputs[0].name} = {node.op} is also read by {user}")


def rule(
    pattern: Pattern, *, near: int = 1, name: str | None = None
) -> Callable[[Callable[..., Any]], Rule]:
    """Make a rule of a function; its name, with dashes, is the rule's unless `name` is given."""
    if not isinstance(pattern, Call):
        raise TypeError("the root of a rule's pattern is a call")

    def make(function: Callable[..., Any]) -> Rule:
        code = function.__code__
        return Rule(
            name or function.__name__.replace("_", "-"),
            pattern,
            function,
            near,
            Location(code.co_filename, code.co_firstlineno),
        )

    return make


def _traced(bound: Any, builder: Builder) -> Any:
    if isinstance(bound, Value):
        return Traced(builder, bound)
    if isinstance(bound, Mask):
        return bound.map(lambda value: Traced(builder, value))
    return bound
