"""recover-heads: products of queries and keys whose heads are folded into the batch, and those
whose queries or keys are scaled before the product, become what fuse-attention reads.

Legal where a reshape [batch, heads, m, n] -> [batch*heads, m, n] folds heads, and nothing else. A
scale moves behind the product, which rounds otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tfgraph.ir import as_dim, exact
from tfgraph.ops import (
    add,
    div,
    matmul,
    mul,
    reshape,
    transpose,
    weighted_sum,
)
from tfgraph.passes.pattern import NoMatch, call, const, var
from tfgraph.passes.pipeline import RulePass, register_pass
from tfgraph.passes.rule import Match, Rule, rule
from tfgraph.passes.simplify import drop_no_op, merge_factors, merge_reshapes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.ir import Exact, Node, Value

_SILENT = 10**6
_ONE = as_dim(1)
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "mul": mul,
    "div": div,
    "matmul": matmul,
    "weighted_sum": weighted_sum,
}


def _check_folds(node: Node) -> None:
    """Decline unless a reshape is [batch, heads, m, n] -> [batch*heads, m, n]."""
    before, after = node.inputs[0].type.shape, node.output.type.shape
    if len(before) != 4 or after != (before[0] * before[1], *before[2:]):
        raise NoMatch


_A, _B = (call("reshape", var(n), name=f"folded_{n}", shared=True) for n in "ab")


@rule(
    call("matmul", _A, call("transpose", _B, attrs={"perm": (0, 2, 1)}, shared=True), name="out"),
    near=_SILENT,
)
def unfold_scores(a: Any, b: Any, folded_a: Node, folded_b: Node, out: Node) -> Any:
    """Q K^T of folded heads -> of heads."""
    _check_folds(folded_a)
    _check_folds(folded_b)
    scores = matmul(a, transpose(b, perm=(0, 1, 3, 2)))
    return reshape(scores, shape=out.output.type.shape)


@rule(call(("matmul", "weighted_sum"), _A, _B, name="out"), near=_SILENT)
def unfold_product(a: Any, b: Any, folded_a: Node, folded_b: Node, out: Node) -> Any:
    """A product of folded heads -> of heads."""
    _check_folds(folded_a)
    _check_folds(folded_b)
    return reshape(_BINARY[out.op](a, b), shape=out.output.type.shape)


@rule(call(("mul", "div"), _A, const("c"), name="out"), near=_SILENT)
def unfold_scaled(a: Any, c: Exact, folded_a: Node, out: Node) -> Any:
    """Folded scores times a constant -> the scores of heads times it, folded."""
    _check_folds(folded_a)
    return reshape(_BINARY[out.op](a, c), shape=out.output.type.shape)


@rule(call("add", _A, var("t"), name="out"), near=_SILENT)
def unfold_sum(a: Any, t: Any, folded_a: Node, out: Node) -> Any:
    """Folded scores and what is added to them -> of heads, folded."""
    _check_folds(folded_a)
    if not hasattr(t, "shape") or len(t.shape) != 3 or folded_a.output.type != out.output.type:
        raise NoMatch
    first = (_ONE, _ONE) if t.shape[0] == _ONE else a.shape[:2]
    return reshape(add(a, reshape(t, shape=(*first, *t.shape[1:]))), shape=out.output.type.shape)


@rule(
    call("reshape", call("transpose", _A, attrs={"perm": (0, 2, 1)}, shared=True), name="out"),
    near=_SILENT,
)
def unfold_transposed(a: Any, folded_a: Node, out: Node) -> Any:
    """The transposed keys of folded heads, as heads again -> of heads, whatever was folded: grouped
    heads are [batch, groups, each, m, n] before."""
    shape, (_, m, n) = out.output.type.shape, folded_a.output.type.shape
    if shape[2:] != (n, m):
        raise NoMatch
    return transpose(reshape(a, shape=(*shape[:2], m, n)), perm=(0, 1, 3, 2))


_OF_WEIGHTS = ("reshape", "transpose", "broadcast_to", "cast", "sum", "mul", "div")
"""What weights of 0 stay 0 in."""


@rule(call("matmul", var("w"), var("v")))
def weights_of_values(w: Any, v: Any, match: Match) -> Any:
    """w @ V -> weighted_sum(w, V), where w is a softmax, or 0 where something is not chosen."""
    if len(w.shape) < 3 or len(v.shape) != len(w.shape) or not _are_weights(w.value, match):
        raise NoMatch
    return weighted_sum(w, v)


def _are_weights(value: Value, match: Match) -> bool:
    node = match.graph.producer.get(value)
    while node is not None and node.op in _OF_WEIGHTS:
        node = match.graph.producer.get(node.inputs[0])
    if node is None or node.op == "softmax":
        return node is not None
    if node.op != "where":
        return False
    other = match.graph.producer.get(node.inputs[2])
    return other is not None and other.op == "full" and other.attrs["value"] == exact(0)


def _scaled(x: str) -> Any:
    return call(("mul", "div"), var(x), const("c"), name="scale", shared=True)


_ROOTED_Q, _ROOTED_K = (
    call("mul", var(n), call("sqrt", call("full", name=f"of_{n}"), shared=True), shared=True)
    for n in "qk"
)


def _number(full: Node) -> Exact:
    number: Any = full.attrs["value"]
    return number  # type: ignore[no-any-return]


@rule(call("matmul", _ROOTED_Q, _ROOTED_K, name="out"), near=_SILENT)
def scaled_by_roots(q: Any, k: Any, of_q: Node, of_k: Node, out: Node) -> Any:
    """(q sqrt(c)) (K^T sqrt(c)) -> (q K^T) c, of a c that is not negative."""
    c, other = (_number(node) for node in (of_q, of_k))
    if c != other or float(c) < 0:
        raise NoMatch
    scores = mul(matmul(q, k), c)
    if scores.type != out.output.type:  # what is repeated may have more axes
        raise NoMatch
    return scores


@rule(call("matmul", _scaled("q"), var("k"), name="out"), near=_SILENT)
def scaled_queries(q: Any, k: Any, c: Exact, scale: Node, out: Node) -> Any:
    """(q c) K^T -> (q K^T) c."""
    return _behind(q, k, c, scale, out)


@rule(call("matmul", var("q"), _scaled("k"), name="out"), near=_SILENT)
def scaled_keys(q: Any, k: Any, c: Exact, scale: Node, out: Node) -> Any:
    """q (K^T c) -> (q K^T) c."""
    return _behind(q, k, c, scale, out)


def _behind(q: Any, k: Any, c: Exact, scale: Node, out: Node) -> Any:
    if out.output.type.rank < 3 or len(q.shape) != len(k.shape):
        raise NoMatch
    return _BINARY[scale.op](matmul(q, k), c)


@rule(
    call("transpose", _scaled("k"), name="turned"),
    near=_SILENT,
)
def scaled_before_transpose(k: Any, c: Exact, scale: Node, turned: Node) -> Any:
    """(K c)^T -> K^T c, for the keys of heads."""
    perm: Any = turned.attrs["perm"]
    if perm not in ((0, 1, 3, 2), (0, 2, 1), (0, 2, 3, 1)):
        raise NoMatch
    return _BINARY[scale.op](transpose(k, perm=perm), c)


@register_pass
class RecoverHeads(RulePass):
    """Attention whose heads are folded into the batch, or scaled before the product."""

    name = "recover-heads"
    rules: ClassVar[list[Rule]] = [
        unfold_scores,
        unfold_transposed,
        unfold_product,
        unfold_scaled,
        unfold_sum,
        scaled_before_transpose,
        scaled_by_roots,
        scaled_queries,
        scaled_keys,
        weights_of_values,
    ]
    cleanups: ClassVar[list[Rule]] = [merge_reshapes, drop_no_op, merge_factors]
