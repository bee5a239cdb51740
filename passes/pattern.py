"""The pattern language of rules, in the IR's own vocabulary.

    call("layer_norm", call("add", var("a"), var("b")), opt("scale"), opt("bias"), name="norm")

A number stands for that constant. A pattern matches an operand. Where it does not, it says what it
found and what it expected; the engine reports that as a near-miss when enough of the pattern had
matched. May import: ops, ir.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfgraph.errors import TfgraphError
from tfgraph.ir import Attr, Exact, Mask, Node, Value, exact
from tfgraph.ops import find_op
from tfgraph.ops.annotations import NUMBERS
from tfgraph.ops.place import user_location

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfgraph.ir import ExactLike, Operand
    from tfgraph.passes.draft import Draft

AttrLike = Attr | float


class NoMatch(Exception):
    """Raised by a rule's function to decline, with the reason that the user reads."""


@dataclass(frozen=True)
class State:
    """What has matched so far: bindings by name, and the nodes, marked True where a rule may
    leave them in place for other users."""

    bindings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    nodes: tuple[tuple[Node, bool], ...] = ()

    def bind(self, name: str, value: Any) -> State | None:
        """With one more binding; None if the name is bound to something else."""
        if name in self.bindings:
            return self if self.bindings[name] == value else None
        return State({**self.bindings, name: value}, self.nodes)

    def visit(self, node: Node, shared: bool) -> State:
        """With one more node."""
        return State(self.bindings, (*self.nodes, (node, shared)))


@dataclass
class Search:
    """A graph being searched, and the furthest mismatch."""

    graph: Draft
    depth: int = -1
    reason: str = ""

    def miss(self, state: State, reason: str) -> None:
        """Record a mismatch; the one after the most matched nodes is kept."""
        if len(state.nodes) > self.depth:
            self.depth, self.reason = len(state.nodes), reason


class Pattern(ABC):
    """Matches an operand in all ways that it can."""

    @abstractmethod
    def match(self, operand: Operand, state: State, search: Search) -> Iterator[State]:
        """The states after a match; none if there is no match."""

    def calls(self) -> Iterator[Call]:
        """The calls that occur in the pattern."""
        return iter(())


@dataclass(frozen=True)
class Var(Pattern):
    """Any value or exact scalar; the same one wherever the name occurs."""

    name: str

    def match(self, operand: Operand, state: State, search: Search) -> Iterator[State]:
        """Bind it."""
        if isinstance(operand, Value | Exact):
            yield from _bind(self.name, operand, state, search)
        else:
            search.miss(state, f"{_show(operand, search)} stands where a tensor is expected")


@dataclass(frozen=True)
class Opt(Var):
    """Like a variable, but the operand may be left out."""

    def match(self, operand: Operand, state: State, search: Search) -> Iterator[State]:
        """Bind it, or None."""
        if operand is None:
            yield from _bind(self.name, None, state, search)
        else:
            yield from super().match(operand, state, search)


@dataclass(frozen=True)
class Const(Pattern):
    """An exact scalar, any or a given one; bound where it has a name."""

    name: str | None
    value: Exact | None = None

    def match(self, operand: Operand, state: State, search: Search) -> Iterator[State]:
        """Bind it."""
        if not isinstance(operand, Exact):
            search.miss(state, f"{_show(operand, search)} is not a constant")
        elif self.value not in (None, operand):
            search.miss(state, f"{_show(operand, search)} is not {self.value}")
        elif self.name is None:
            yield state
        else:
            yield from _bind(self.name, operand, state, search)


@dataclass(frozen=True)
class Masked(Pattern):
    """A mask operand."""

    name: str

    def match(self, operand: Operand, state: State, search: Search) -> Iterator[State]:
        """Bind it."""
        if isinstance(operand, Mask):
            yield from _bind(self.name, operand, state, search)
        else:
            search.miss(state, f"{_show(operand, search)} stands where a mask is expected")


@dataclass(frozen=True)
class Call(Pattern):
    """The result of a node of one of `ops`, whose operands match `args` in order.

    Operands of a commutative op match in both orders. `shared` nodes may have other users: they
    are cheap, and stay for those. `why` is the reason given when the operand is no such node, and
    `advice` what may be done about it, by the op that stands there.
    """

    ops: tuple[str, ...]
    args: tuple[Pattern, ...]
    name: str | None = None
    attrs: Mapping[str, AttrLike] = field(default_factory=dict[str, AttrLike])
    shared: bool = False
    why: str | None = None
    advice: Mapping[str, str] = field(default_factory=dict[str, str])

    def match(self, operand: Operand, state: State, search: Search) -> Iterator[State]:
        """Match the node and its operands."""
        node = search.graph.producer.get(operand) if isinstance(operand, Value) else None
        if node is None or node.op not in self.ops:
            expected = self.why or f"expected {' or '.join(self.ops)}"
            advice = self.advice.get(node.op) if node else None
            found = _show(operand, search) + (f"; {advice}" if advice else "")
            search.miss(state, f"{expected}, found {found}")
            return
        for attr, given in self.attrs.items():
            wanted = find_op(node.op).attribute(attr, given)
            if node.attrs.get(attr) != wanted:
                got = _text(node.attrs.get(attr))
                search.miss(
                    state.visit(node, self.shared),
                    f"{self.why + ': ' if self.why else ''}{node.op} has {attr}={got}, "
                    f"expected {_text(wanted)}",
                )
                return
        after = state.visit(node, self.shared)
        if self.name is None:
            yield from self._operands(node, after, search)
            return
        for bound in _bind(self.name, node, after, search):
            yield from self._operands(node, bound, search)

    def calls(self) -> Iterator[Call]:
        yield self
        for arg in self.args:
            yield from arg.calls()

    def check(self) -> None:
        """Raise TfgraphError for an op or attribute that is not there, or a value that it does not
        take."""
        for definition in map(find_op, self.ops):
            for attr, wanted in self.attrs.items():
                definition.attribute(attr, wanted)

    def _operands(self, node: Node, state: State, search: Search) -> Iterator[State]:
        operands = list(node.operands)
        if len(operands) > len(self.args):
            search.miss(state, f"{node.op} has {len(operands)} operands")
            return
        operands += [None] * (len(self.args) - len(operands))
        yield from _match_all(self.args, operands, state, search)
        if find_op(node.op).commutative and operands[0] != operands[1]:
            yield from _match_all(self.args, operands[::-1], state, search)


@dataclass(frozen=True)
class Either(Pattern):
    """Any of several patterns, the first that leads to a match."""

    patterns: tuple[Pattern, ...]

    def match(self, operand: Operand, state: State, search: Search) -> Iterator[State]:
        """All matches, in the order of the patterns."""
        before = search.depth, search.reason
        for pattern in self.patterns:
            for after in pattern.match(operand, state, search):
                # What kept the patterns before this one from matching is of no interest.
                search.depth, search.reason = before
                yield after

    def calls(self) -> Iterator[Call]:
        for pattern in self.patterns:
            yield from pattern.calls()


def var(name: str) -> Pattern:
    """Any value or exact scalar; the same one wherever the name occurs in a pattern."""
    return Var(name)


def opt(name: str) -> Pattern:
    """An operand that may be left out: the binding is then None."""
    return Opt(name)


def const(name: str, value: ExactLike | None = None) -> Pattern:
    """An exact scalar, which is bound as an `Exact`: any, or the one given."""
    return Const(name, None if value is None else _exact(value))


def masked(name: str) -> Pattern:
    """The mask operand of `mask` or `attention`."""
    return Masked(name)


def either(*patterns: Pattern | ExactLike) -> Pattern:
    """The first of several patterns that leads to a match. Names that only the others have are None
    in the rule's function."""
    return Either(tuple(map(_pattern, patterns)))


def call(
    op: str | Sequence[str],
    *args: Pattern | ExactLike,
    name: str | None = None,
    attrs: Mapping[str, AttrLike] | None = None,
    shared: bool = False,
    why: str | None = None,
    advice: Mapping[str, str] | None = None,
) -> Pattern:
    """The result of an op (or one of several); see `Call`. A number is that constant."""
    ops = (op,) if isinstance(op, str) else tuple(op)
    patterns = tuple(map(_pattern, args))
    return Call(ops, patterns, name, attrs or {}, shared, why, advice or {})


def _pattern(given: Any) -> Pattern:
    """What stands in a pattern, where a number means that constant."""
    if isinstance(given, Pattern):
        return given
    if isinstance(given, NUMBERS) and not isinstance(given, bool):
        return Const(None, _exact(given))
    name = given if isinstance(given, str) and given.isidentifier() else "x"
    raise TfgraphError(
        f"{given!r} is no pattern", user_location(), f'var("{name}") matches any value'
    )


def _exact(number: Any) -> Exact:
    try:
        return exact(number)
    except (ValueError, TypeError) as cause:
        raise TfgraphError(f"{number!r} is no constant", user_location()) from cause


def _bind(name: str, found: Node | Operand, state: State, search: Search) -> Iterator[State]:
    """The state with one more binding, unless the name stands for something else already."""
    bound = state.bind(name, found)
    if bound is not None:
        yield bound
    else:
        known = _show(state.bindings[name], search)
        search.miss(state, f"{_show(found, search)} is not {known}, which {name} is elsewhere")


def _match_all(
    patterns: Sequence[Pattern], operands: Sequence[Operand], state: State, search: Search
) -> Iterator[State]:
    if not patterns:
        yield state
        return
    for after in patterns[0].match(operands[0], state, search):
        yield from _match_all(patterns[1:], operands[1:], after, search)


def _show(operand: Node | Operand, search: Search) -> str:
    """What an operand is, for a reason: `%7 = transpose`, `the input %x`, `the constant 2`."""
    if operand is None:
        return "nothing"
    if isinstance(operand, Node):
        return f"{operand.outputs[0]} = {operand.op}"
    if not isinstance(operand, Value):
        return f"the {'mask' if isinstance(operand, Mask) else 'constant'} {operand}"
    node = search.graph.producer.get(operand)
    if node is not None:
        return f"{operand} = {node.op}"
    return f"the {'weight' if operand in search.graph.param_values else 'input'} {operand}"


def _text(attr: Attr) -> str:
    if isinstance(attr, tuple):
        return f"[{','.join(map(str, attr))}]"
    return str(attr)
