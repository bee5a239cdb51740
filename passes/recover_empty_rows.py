"""recover-empty-rows: where a row is -inf all along, by its maximum, and the zeros that stand there
for what a softmax of another kind makes of it.

Our softmax gives zeros there by itself, so what puts them is not needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tfgraph.ops import empty, softmax
from tfgraph.passes.pattern import NoMatch, call, var
from tfgraph.passes.pipeline import RulePass, register_pass
from tfgraph.passes.read_masks import Reader
from tfgraph.passes.rule import Match, Rule, rule

if TYPE_CHECKING:
    from tfgraph.ir import Node

_SILENT = 10**6
_MOST = call("reshape", call("max", var("x"), name="most", shared=True), shared=True)


@rule(call("reshape", call("empty", _MOST, shared=True), name="out"), near=_SILENT)
def empty_by_maximum(x: Any, most: Node, out: Node) -> Any:
    """max(x) is -inf -> empty(x). As many results as maxima: each tells of one of them."""
    axis: Any = most.attrs["axis"]
    found = empty(x, axis=axis)
    if found.type != out.output.type:
        raise NoMatch
    return found


@rule(
    call(
        "where",
        call("empty", var("x"), name="row"),
        var("zero"),
        call("softmax", var("x"), name="soft"),
    ),
    near=_SILENT,
)
def guarded_softmax(x: Any, zero: Any, row: Node, soft: Node, match: Match) -> Any:
    """where(empty(x), 0, softmax(x)) -> softmax(x)."""
    axis: Any = soft.attrs["axis"]
    rank = len(x.shape)
    if axis % rank != row.attrs["axis"] % rank:  # type: ignore[operator]
        raise NoMatch
    if not Reader(match.makers).is_zero(zero.value):
        raise NoMatch("where a row is empty stands something else than 0")
    return softmax(x, axis=axis)


@register_pass
class RecoverEmptyRows(RulePass):
    """Rows of -inf alone, and what stands there for their softmax."""

    name = "recover-empty-rows"
    rules: ClassVar[list[Rule]] = [empty_by_maximum, guarded_softmax]
