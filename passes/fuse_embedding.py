"""fuse-embedding: embeddings are scaled and added, to one another and to what is added to each row
or sequence alike, by one op. What does not match runs as well in parts, and is not reported.

Legal where no other reads the rows in between. What is of the sum's own shape, and no embedding, is
left alone: an add & norm may take it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tfgraph.ir import Exact
from tfgraph.ops import embedding_sum
from tfgraph.passes.pattern import NoMatch, call, const, either, opt, var
from tfgraph.passes.pipeline import RulePass, register_pass
from tfgraph.passes.rule import SILENT, Rule, rule

if TYPE_CHECKING:
    from tfgraph.ir import Node

_EMBEDDING = call("embedding", var("ids"), var("table"))
# As many operands as tokens and two more tables have.
_SUM = call(
    "embedding_sum", var("ids"), var("table"), opt("a"), opt("b"), opt("c"), opt("d"), name="before"
)
_TERM = either(call("embedding", var("more_ids"), var("more_rows")), var("term"))


@rule(call("mul", _EMBEDDING, const("scale")), near=SILENT)
def scale_embedding(ids: Any, table: Any, scale: Exact) -> Any:
    """embedding(ids) * scale -> embedding_sum(ids) {scale}."""
    return embedding_sum(ids, table, scale=scale)


@rule(call("add", either(_SUM, _EMBEDDING), _TERM, name="total"), near=SILENT)
def add_to_embedding(
    ids: Any,
    table: Any,
    a: Any,
    b: Any,
    c: Any,
    d: Any,
    more_ids: Any,
    more_rows: Any,
    term: Any,
    before: Node | None,
    total: Node,
) -> Any:
    """embedding_sum(...) + x -> embedding_sum(..., x), an embedding being a sum of one term."""
    if more_ids is not None:
        added = [more_ids, more_rows]
    elif isinstance(term, Exact) or term.shape == total.output.type.shape:
        raise NoMatch
    else:
        added = [term]
    others = [x for x in (a, b, c, d) if x is not None]
    scale: Any = 1 if before is None else before.attrs["scale"]
    return embedding_sum(ids, table, *others, *added, scale=scale)


@register_pass
class FuseEmbedding(RulePass):
    """Embeddings, their scale and what is added to them become one op."""

    name = "fuse-embedding"
    rules: ClassVar[list[Rule]] = [scale_embedding, add_to_embedding]
