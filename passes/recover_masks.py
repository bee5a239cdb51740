"""recover-masks: what is added to scores before a softmax becomes a mask with structure.

Exporters add 0 where a key may be seen and the least number of the type where not, and compute
where that is from positions. What is understood becomes `causal`, `window`, `padding`; a condition
that is not becomes `dense`, and a tensor that is added stays one, as `bias`.

Reading the least number as minus infinity keeps every value but those of rows with no allowed key,
which become zeros: such a rewrite is reported as `changes-empty-rows`. A guard that puts zeros for
the NaN of such rows is then needless; without it a NaN of the scores themselves stays NaN. With
`strict` the arithmetic stays as it is, and the sum is a bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar

from tfgraph.ir import Value
from tfgraph.ir import mask as masks
from tfgraph.ops import Traced, current, mask, reshape, softmax
from tfgraph.passes.pattern import NoMatch, call, masked, var
from tfgraph.passes.pipeline import RulePass, register_pass
from tfgraph.passes.read_masks import Reader, opposite
from tfgraph.passes.rewrite import Rewrites, apply_rules
from tfgraph.passes.rule import Match, Rule, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfgraph.ir import Graph, Mask, Node

_SCALED = ("mul", "div", "tanh")
_SILENT = 10**6
LEAST = "the least number of a type as minus infinity"
"""What rules read that change rows with no allowed key."""


@rule(
    call("softmax", call("add", var("a"), var("b"), name="sum"), name="softmax"),
    near=2,
    name="changes-empty-rows",
    reads=LEAST,
)
def _hidden(a: Any, b: Any, softmax: Node, match: Match) -> Any:
    """softmax(scores + where(allowed, 0, -3e38)) -> softmax(mask(scores, allowed))."""
    return _masked(a, b, softmax, match, strict=False)


@rule(
    call("softmax", call("add", var("a"), var("b"), name="sum"), name="softmax"),
    near=2,
    name="bias",
)
def _added(a: Any, b: Any, softmax: Node, match: Match) -> Any:
    """softmax(scores + t) -> softmax(mask(scores, bias(t)))."""
    return _masked(a, b, softmax, match, strict=True)


@rule(
    call("softmax", call("where", var("condition"), var("a"), var("b"), name="chosen"), name="s"),
    near=2,
    name="filled-changes-empty-rows",
    reads=LEAST,
)
def _filled(condition: Any, a: Any, b: Any, s: Node, match: Match) -> Any:
    """softmax(where(allowed, scores, -3e38)) -> softmax(mask(scores, allowed))."""
    reader = Reader(match.makers)
    if _leads_to_scores(a.value, match) and reader.hides(b.value):
        scores, allowed = a, reader.allowed(condition.value, a.type)
    elif _leads_to_scores(b.value, match) and reader.hides(a.value):
        scores, allowed = b, reader.allowed(opposite(condition.value), b.type)
    else:
        raise NoMatch("neither branch is the product of Q and K, with the other a least number")
    node = match.makers[scores.value]
    if node.op == "add":
        x, y = (Traced(current(), v) for v in node.inputs)
        scores, added = _sides(x, y, match)
        if scores is None:
            raise NoMatch("neither side of the sum is the product of Q and K")
        allowed = [*map(_bias, added), *allowed]
    return _softmax(scores, allowed, s)


@rule(call("mask", var("scores"), masked("m"), name="node"), near=_SILENT, name="structure")
def _structure(scores: Any, m: Mask, match: Match) -> Any:
    """mask(scores, dense(condition)) -> mask(scores, causal() & ...), where that is understood."""
    reader = Reader(match.makers)
    parts: list[Mask] = []
    changed = False
    for part in m.parts:
        known = [part]
        if isinstance(part, masks.Dense):
            known = reader.allowed(part.allowed.value, scores.type)
            changed = changed or len(known) != 1 or not isinstance(known[0], masks.Dense)
        parts += known
    if not changed:
        raise NoMatch
    return _applied(scores, parts)


@rule(call("mask", var("scores"), masked("m"), name="node"), near=_SILENT, reads=LEAST)
def bias_changes_empty_rows(scores: Any, m: Mask, match: Match) -> Any:
    """mask(scores, bias(where(allowed, 0, -3e38))) -> mask(scores, allowed)."""
    reader = Reader(match.makers)
    parts: list[Mask] = []
    found = False
    for part in m.parts:
        terms = list(_terms(part.values.value, match)) if isinstance(part, masks.Bias) else []
        hidden = [reader.hidden(t, scores.type) for t in terms]
        if any(h is not None for h in hidden):
            found = True
            for term, known in zip(terms, hidden, strict=True):
                parts += [_bias(term)] if known is None else known
        else:
            parts.append(part)
    if not found:
        raise NoMatch
    return _applied(scores, parts)


@rule(
    call(
        "where",
        call("logical_not", call("equal", var("p"), var("p"))),
        var("zero"),
        var("p"),
        why="expected where(isnan(p), 0, p)",
    ),
    near=_SILENT,
    reads="a softmax's NaN as a row that may attend to nothing",
)
def guard_changes_nan_rows(p: Any, zero: Any, match: Match) -> Any:
    """where(isnan(p), 0, p) -> p, where p is a softmax, which gives zeros for an empty row."""
    node = match.makers.get(p.value)
    if node is None or node.op != "softmax" or not Reader(match.makers).is_zero(zero.value):
        raise NoMatch
    return p


def _applied(scores: Any, parts: list[Mask]) -> Any:
    """The scores under the masks, which may be none."""
    if not parts:
        return reshape(scores, shape=scores.shape)
    return mask(scores, reduce(lambda x, y: x & y, parts))


def _masked(a: Any, b: Any, node: Node, match: Match, *, strict: bool) -> Any:
    scores, added = _sides(a, b, match)
    if scores is None:
        raise NoMatch("neither side of the sum is the product of Q and K")
    reader = Reader(match.makers)
    parts: list[Mask] = []
    found = False
    for value in added:
        hidden = None if strict else reader.hidden(value, scores.type)
        found = found or hidden is not None
        parts += [_bias(value)] if hidden is None else hidden
    if found == strict:
        raise NoMatch("nothing that is added hides scores")
    return _softmax(scores, parts, node)


def _softmax(scores: Any, parts: list[Mask], node: Node) -> Any:
    axis: Any = node.attrs["axis"]
    if axis not in (-1, len(scores.shape) - 1):
        raise NoMatch(f"the softmax is over axis {axis}, not over the keys")
    scores = _applied(scores, parts) if parts else scores
    return softmax(scores, axis=axis)


def _bias(value: Value) -> Mask:
    return masks.bias(Traced(current(), value))


def _sides(a: Any, b: Any, match: Match) -> tuple[Any, list[Value]]:
    """The scores, and what is added to them, one after another."""
    for scores, other in ((a, b), (b, a)):
        if not isinstance(scores, Traced) or not isinstance(other, Traced):
            continue
        added: list[Value] = []
        value = scores.value
        while not _is_scores(value, match):
            node = match.makers.get(value)
            if node is None or node.op != "add" or match.graph.users[value][1:]:
                break
            x, y = node.operands
            if not isinstance(x, Value) or not isinstance(y, Value):
                break
            value, rest = (x, y) if _leads_to_scores(x, match) else (y, x)
            added.append(rest)
        else:
            terms = [*added[::-1], *_terms(other.value, match)]
            if all(t.type.rank <= value.type.rank for t in terms):
                return Traced(current(), value), terms
    return None, []


def _terms(value: Value, match: Match) -> Iterator[Value]:
    """What a sum adds up, where each is a tensor."""
    node = match.makers.get(value)
    if node is not None and node.op == "add":
        x, y = node.operands
        if isinstance(x, Value) and isinstance(y, Value):
            yield from (*_terms(x, match), *_terms(y, match))
            return
    yield value


def _leads_to_scores(value: Value, match: Match) -> bool:
    node = match.makers.get(value)
    if node is not None and node.op == "add":
        return any(_leads_to_scores(v, match) for v in node.inputs)
    return _is_scores(value, match)


def _is_scores(value: Value, match: Match) -> bool:
    """Whether a value is a product of two activations, scaled or capped."""
    node = match.graph.producer.get(value)
    while node is not None and node.op in _SCALED and len(node.inputs) == 1:
        node = match.graph.producer.get(node.inputs[0])
    return node is not None and node.op == "matmul" and node.output.type.rank >= 3


@register_pass
@dataclass(frozen=True)
class RecoverMasks(RulePass):
    """Sums and choices before a softmax become masks."""

    name = "recover-masks"
    rules: ClassVar[list[Rule]] = [
        _hidden,
        _added,
        _filled,
        _structure,
        bias_changes_empty_rows,
        guard_changes_nan_rows,
    ]
    strict: bool = False
    """Whether the arithmetic of rows with no allowed key stays as it is."""

    def run(self, graph: Graph) -> Rewrites:
        """Apply the rules; of strict ones those alone that change no value."""
        return apply_rules(graph, [_added, _structure] if self.strict else self.rules)
