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

from tfgraph.ir import Mask, Value, as_dim
from tfgraph.ir import mask as masks
from tfgraph.ops import Traced, add, attention, current, mask, reshape, softmax
from tfgraph.passes.pattern import NoMatch, call, masked, var
from tfgraph.passes.pipeline import RulePass, register_pass
from tfgraph.passes.read_biases import read_bias
from tfgraph.passes.read_masks import Reader, opposite
from tfgraph.passes.rewrite import Rewrites, apply_rules
from tfgraph.passes.rule import Match, Rule, rule
from tfgraph.passes.unread import unread
from tfgraph.passes.windows import whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfgraph.ir import Graph, Node, TensorType

_SCALED = ("mul", "div", "tanh")
_SILENT = 10**6
_ADDED = (masks.Bias, masks.Alibi, masks.Relative)
LEAST = "the least number of a type as minus infinity"
"""What rules read that change rows with no allowed key."""


@rule(
    call("softmax", call("add", var("a"), var("b"), name="sum"), name="softmax"),
    near=2,
    name="changes-empty-rows",
    reads=LEAST,
)
def _hidden(sum: Node, softmax: Node, match: Match) -> Any:
    """softmax(scores + where(allowed, 0, -3e38)) -> softmax(mask(scores, allowed))."""
    return _masked(sum, softmax, match, strict=False)


@rule(
    call("softmax", call("add", var("a"), var("b"), name="sum"), name="softmax"),
    near=2,
    name="bias",
)
def _added(sum: Node, softmax: Node, match: Match) -> Any:
    """softmax(scores + t) -> softmax(mask(scores, bias(t)))."""
    return _masked(sum, softmax, match, strict=True)


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
        scores, added = _sides(node, match)
        if scores is None:
            raise NoMatch("neither side of the sum is the product of Q and K")
        allowed = [*map(_bias, added), *allowed]
    return _softmax(scores, allowed, s)


@rule(call("mask", var("scores"), masked("m")), name="structure")
def _structure(scores: Any, m: Mask, match: Match) -> Any:
    """mask(scores, dense(condition) & bias(t)) -> mask(scores, causal() & alibi(s) & ...), where
    that is understood."""
    return _applied(scores, _parts(m, scores.type, match))


@rule(call("attention", var("q"), var("k"), var("v"), masked("m"), name="node"), near=_SILENT)
def structure_of_attention(q: Any, k: Any, v: Any, m: Mask, node: Node, match: Match) -> Any:
    """attention(Q, K, V, dense(condition) & ...) -> attention(Q, K, V, causal() & ...)."""
    attrs: Any = node.attrs
    shape = (q.shape[0], as_dim(attrs["heads"]), q.shape[1], k.shape[1])
    parts = _parts(m, q.type.with_shape(shape), match)
    return attention(q, k, v, _joined(parts), **attrs)


def _parts(m: Mask, scores: TensorType, match: Match) -> list[Mask]:
    """The masks that are understood, in order. Raises NoMatch where they are no others: with the
    reason, where some have no structure."""
    reader = Reader(match.makers)
    parts: list[Mask] = []
    for part in m.parts:
        known = whole(part, scores)
        if isinstance(part, masks.Dense):
            known = reader.allowed(part.allowed.value, scores)
        elif isinstance(part, masks.Bias):
            known = _understood(part.values.value, scores, match)
        elif isinstance(part, masks.Padding):
            known = [masks.padding(Traced(current(), reader.integer(part.keep.value)))]
        parts += known
    parts = _ordered(parts)
    if [*map(str, parts)] == [*map(str, m.parts)]:
        raise NoMatch(unread(parts, match.graph))
    return parts


@rule(call("mask", var("scores"), masked("m")), reads=LEAST)
def bias_changes_empty_rows(scores: Any, m: Mask, match: Match) -> Any:
    """mask(scores, bias(where(allowed, t, -3e38))) -> mask(scores, allowed & bias(t)), where t may
    be 0."""
    reader = Reader(match.makers)
    parts: list[Mask] = []
    found = False
    for part in m.parts:
        hidden = None
        if isinstance(part, masks.Bias):
            value = part.values.value
            hidden = reader.hidden(value, scores.type)
            hidden = reader.chosen(value, scores.type) if hidden is None else hidden
        found = found or hidden is not None
        parts += [part] if hidden is None else hidden
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


@rule(call("mask", call("add", var("a"), var("b"), name="sum"), masked("m")), near=_SILENT)
def added_before(a: Any, b: Any, m: Mask, sum: Node, match: Match) -> Any:
    """mask(scores + t, m) -> mask(scores, bias(t) & m)."""
    if len(sum.inputs) < 2 or _leads_to_scores(b.value, match):
        raise NoMatch
    return _applied(a, [masks.bias(b), *m.parts])


@rule(call("add", var("a"), var("b"), name="sum"))
def positions_added(a: Any, b: Any, sum: Node, match: Match) -> Any:
    """x + slopes (j - i) -> mask(x, alibi(slopes)), and so for `relative`, where the sum is no term
    of another."""
    if any(user.op == "add" for user in match.graph.users.get(sum.output, ())):
        raise NoMatch
    if len(sum.inputs) < 2 or a.type != sum.output.type:
        raise NoMatch
    found = read_bias(b.value, a.type, match.makers)
    if found is None:
        raise NoMatch
    return _applied(a, found)


@rule(call("mask", var("x"), masked("m")))
def sum_of_others(x: Any, m: Mask, match: Match) -> Any:
    """mask(x, bias(t)) -> x + t, where x is no product of queries and keys."""
    if not all(isinstance(part, masks.Bias) for part in m.parts) or _leads_to_scores(
        x.value, match
    ):
        raise NoMatch
    return reduce(add, [x, *(part.values for part in m.parts)])  # type: ignore[attr-defined]


@rule(call("mask", call("mask", var("scores"), masked("first")), masked("m")), near=_SILENT)
def merge_masks(scores: Any, first: Mask, m: Mask) -> Any:
    """mask(mask(scores, m), n) -> mask(scores, m & n)."""
    return _applied(scores, [*first.parts, *m.parts])


@rule(call("mask", var("scores"), masked("m")))
def masked_bias(scores: Any, m: Mask, match: Match) -> Any:
    """mask(scores, bias(mask(t, m))) -> mask(scores, bias(t) & m)."""
    parts: list[Mask] = []
    found = False
    reader = Reader(match.makers)
    for part in m.parts:
        node = reader.bare(part.values.value) if isinstance(part, masks.Bias) else None
        if node is None or node.op != "mask":
            parts.append(part)
            continue
        found = True
        t, inner = node.operands
        assert isinstance(t, Value)
        assert isinstance(inner, Mask)
        _check_same_axes(inner, t, scores)
        parts += [] if reader.is_zero(t) else [_bias(t)]
        parts += inner.map(lambda v: Traced(current(), v)).parts
    if not found:
        raise NoMatch
    return _applied(scores, parts)


def _check_same_axes(inner: Mask, t: Value, scores: Any) -> None:
    """Decline unless the masks of a tensor mean the same of the scores that it is added to."""
    ours = t.type.shape
    theirs = scores.shape
    for part in inner.parts:
        match part:
            case masks.Dense() | masks.Bias():
                same = True
            case masks.Causal() | masks.Window() | masks.Alibi() | masks.Relative():
                same = ours[-2:] == theirs[-2:]
            case _:
                same = len(ours) == len(theirs) and ours[-2:] == theirs[-2:]
        if not same:
            raise NoMatch("a mask of other axes")


def _understood(value: Value, scores: TensorType, match: Match) -> list[Mask]:
    """The biases that a tensor is, those of a sum one by one."""
    terms = list(_terms(value, match))
    found = [read_bias(term, scores, match.makers) for term in terms]
    return [m for t, f in zip(terms, found, strict=True) for m in f or [_bias(_narrow(t, match))]]


def _narrow(value: Value, match: Match) -> Value:
    """The tensor that was repeated up to the shape of the scores."""
    node = match.graph.producer.get(value)
    if node is not None and node.op == "broadcast_to":
        return match.makers[value].inputs[0]
    return value


def _applied(scores: Any, parts: list[Mask]) -> Any:
    """The scores under the masks, which may be none: what hides stands before what is added."""
    joined = _joined(parts)
    return reshape(scores, shape=scores.shape) if joined is None else mask(scores, joined)


def _joined(parts: list[Mask]) -> Mask | None:
    return reduce(lambda x, y: x & y, _ordered(parts)) if parts else None


def _ordered(parts: list[Mask]) -> list[Mask]:
    return sorted(parts, key=lambda part: isinstance(part, _ADDED))


def _masked(sum: Node, node: Node, match: Match, *, strict: bool) -> Any:
    scores, added = _sides(sum, match)
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
    return softmax(_applied(scores, parts))


def _bias(value: Value) -> Mask:
    return masks.bias(Traced(current(), value))


def _sides(sum: Node, match: Match) -> tuple[Any, list[Value]]:
    """The scores, and what is added to them, one after another."""
    if len(sum.inputs) < 2:
        return None, []
    for value, other in (sum.inputs, sum.inputs[::-1]):
        added: list[Value] = []
        while not _is_scores(value, match):
            node = match.makers.get(value)
            if node is None or node.op != "add" or len(node.inputs) < 2:
                break
            x, y = node.inputs
            value, rest = (x, y) if _leads_to_scores(x, match) else (y, x)
            added.append(rest)
        else:
            return Traced(current(), value), [*added[::-1], *_terms(other, match)]
    return None, []


def _terms(value: Value, match: Match) -> Iterator[Value]:
    """What a sum adds up, where each is a tensor."""
    node = match.makers.get(value)
    if node is not None and node.op == "add" and len(node.inputs) == 2:
        for term in node.inputs:
            yield from _terms(term, match)
    else:
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
        structure_of_attention,
        added_before,
        masked_bias,
        positions_added,
        merge_masks,
        sum_of_others,
    ]
    strict: bool = False
    """Whether the arithmetic of rows with no allowed key stays as it is."""

    def run(self, graph: Graph) -> Rewrites:
        """Apply the rules; of strict ones those alone that change no value."""
        exact = [r for r in self.rules if not r.reads]
        return apply_rules(graph, exact if self.strict else self.rules)
