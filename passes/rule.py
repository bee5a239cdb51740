"""Rules: a pattern, and a function that returns the replacement or says why not.

    @rule(call("layer_norm", call("add", var("a"), var("b")), opt("scale"), name="norm"))
    def fuse(a, b, scale, norm):
        '''layer_norm(a + b) -> add_layer_norm(a, b).'''
        return add_layer_norm(a, b, scale, eps=norm.attrs["eps"])

The function's parameters are the pattern's names: variables arrive as traced values to which ops
apply as in the DSL, named calls as nodes, `match` as the `Match`. It returns the value that
replaces the root's result, or a dict from nodes to their replacements (a tuple where a node has
several results). May import: pattern, ops, ir.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from tfgraph.errors import Location, TfgraphError
from tfgraph.ir import Mask, Node, Value
from tfgraph.ops import Builder, Traced
from tfgraph.ops.operands import Refused
from tfgraph.ops.place import raised_location
from tfgraph.passes.pattern import Call, NoMatch, Search, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfgraph.passes.draft import Draft
    from tfgraph.passes.pattern import Pattern

SILENT = 10**6
"""As `near`: a mismatch of the rule is never worth a report."""


@dataclass(frozen=True)
class Match:
    """One occurrence of a rule's pattern in a graph."""

    graph: Draft
    root: Node
    state: State
    seen: dict[tuple[Value, ...], Node] = field(
        default_factory=dict[tuple[Value, ...], Node], compare=False
    )
    """Nodes outside of the match that the rule's function has looked at."""

    @property
    def makers(self) -> Mapping[Value, Node]:
        """The node that makes each value. One that is asked for belongs to what is replaced, where
        that is checked: a function that looks around asks this."""
        return _Makers(self)

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


class _Makers(Mapping[Value, Node]):
    """The producers of a graph, which remember what was asked for."""

    def __init__(self, match: Match) -> None:
        self._match = match

    def __getitem__(self, value: Value) -> Node:
        node = self._match.graph.producer[value]
        self._match.seen[node.outputs] = node
        return node

    def __iter__(self) -> Iterator[Value]:
        return iter(self._match.graph.producer)

    def __len__(self) -> int:
        return len(self._match.graph.producer)


@dataclass(frozen=True)
class Rule:
    """A named rewrite. `near`: how many nodes must match for a mismatch to be worth a report."""

    name: str
    pattern: Call
    function: Callable[..., Any]
    near: int
    location: Location
    reads: str = ""
    """What the rule takes for something that it nearly is: it cannot be proved then, and reports
    say so."""

    @property
    def doc(self) -> str:
        """The rewrite in one line."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    def check_ops(self) -> None:
        """Raise TfgraphError, at the rule's place, where the pattern names an op or an attribute
        that is not there, or one that no node can have. Called when the rule runs: until then a
        plugin may register the op."""
        try:
            for part in self.pattern.calls():
                part.check()
        except TfgraphError as error:
            message = f"rule {self.name}: {error.message}"
            raise TfgraphError(message, self.location, error.hint) from error

    def matches(self, graph: Draft, root: Node, search: Search) -> Iterator[Match]:
        """All ways in which the pattern matches at `root`."""
        for state in self.pattern.match(root.outputs[-1], State(), search):
            yield Match(graph, root, state)

    def replace(self, match: Match, builder: Builder) -> Mapping[Node, Any]:
        """Run the function; the nodes with what replaces them. New nodes are in `builder`.

        Raises NoMatch where the rule declines, where an op does not take the operands, or where
        the rewrite would swallow a value that is read elsewhere; TfgraphError, at the line in the
        rule, for any other exception of the function.
        """
        given: dict[str, Any] = dict.fromkeys(self._wanted)
        bindings = match.state.bindings
        given |= {k: _traced(v, builder) for k, v in bindings.items() if k in given}
        if "match" in given:
            given["match"] = match
        try:
            with builder, builder.at(match.root.location):
                result = self.function(**given)
        except NoMatch:
            raise
        except Refused as refused:
            raise NoMatch(refused.message) from refused
        except Exception as mistake:  # in the rule: that is not to decline
            blamed = self._blamed(mistake)
            if blamed is None:
                raise
            raise blamed from mistake
        replaced: dict[Node, Any] = (
            cast("dict[Node, Any]", result) if isinstance(result, dict) else {match.root: result}
        )
        self._check_swallowed(match, replaced)
        return replaced

    def checked(self, replaced: Mapping[Node, Any]) -> Mapping[Value, Value]:
        """The old values with the new ones. Raises TfgraphError, at the rule's place, where there
        are none, or where they are not values of the same types, or are replaced themselves."""
        if not replaced:
            raise TfgraphError(f"rule {self.name} replaces nothing", self.location)
        pairs: dict[Value, Value] = {}
        for node, result in replaced.items():
            results = _several(result)
            new = [r.value for r in results if isinstance(r, Traced)]
            if [v.type for v in new] != [v.type for v in node.outputs]:
                had = ", ".join(f"{v}: {v.type}" for v in node.outputs)
                got = ", ".join(str(r.type) if isinstance(r, Traced) else str(r) for r in results)
                message = f"rule {self.name} replaces {had} by {got}"
                raise TfgraphError(message, self.location)
            pairs |= zip(node.outputs, new, strict=True)
        for old, value in pairs.items():
            if value in pairs:
                message = f"rule {self.name} replaces {old} by {value}, which it also replaces"
                raise TfgraphError(message, self.location)
        return pairs

    def _blamed(self, mistake: Exception) -> TfgraphError | None:
        """The error, at its line in the rule, of what the function raised; None for a fault of this
        library's own code."""
        trace = mistake.__traceback__  # from the frame that called the function
        place = raised_location(trace and trace.tb_next)
        if isinstance(mistake, TfgraphError):
            told = f"rule {self.name}: {mistake.message}"
            return TfgraphError(told, mistake.location or place or self.location, mistake.hint)
        if place is None:
            return None
        told = f"rule {self.name}: {type(mistake).__name__}: {mistake}"
        return TfgraphError(told, place, "-v shows the traceback")

    @cached_property
    def _wanted(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.function).parameters)

    def _check_swallowed(self, match: Match, replaced: Mapping[Node, Any]) -> None:
        for node, shared in match.state.nodes:
            user = None if shared or node in replaced else match.outside_user(node)
            if user is not None and node is not match.root:
                raise NoMatch(f"%{node.outputs[0].name} = {node.op} is also read by {user}")


def rule(
    pattern: Pattern, *, near: int = 1, name: str | None = None, reads: str = ""
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
            reads,
        )

    return make


def _several(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)  # pyright: ignore[reportUnknownVariableType]


def _traced(bound: Any, builder: Builder) -> Any:
    if isinstance(bound, Value):
        return Traced(builder, bound)
    if isinstance(bound, Mask):
        return bound.map(lambda value: Traced(builder, value))
    return bound
