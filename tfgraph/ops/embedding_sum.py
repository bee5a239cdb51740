"""The sum of embeddings: tokens, their types and positions. May import: the core ops, define,
infer, ir.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from tfgraph.errors import TfgraphError
from tfgraph.ir import DType, Exact, TensorType, as_dim, exact, product
from tfgraph.ops.define import find_op, op
from tfgraph.ops.elementwise import add, mul
from tfgraph.ops.infer import broadcast, require_float
from tfgraph.ops.movement import embedding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgraph.ir import Dim, ExactLike
    from tfgraph.ops.array import Array

INDICES = (DType.int64, DType.int32)


def terms(operands: Sequence[Any]) -> list[tuple[Any, Any]]:
    """The terms of a sum, whose operands may be values, types or arrays: ids and the table whose
    rows they are, or None and what is added as it is."""
    found: list[tuple[Any, Any]] = []
    left = iter(operands)
    for operand in left:
        if getattr(operand, "type", operand).dtype not in INDICES:
            found.append((None, operand))
        elif (table := next(left, None)) is not None:
            found.append((operand, table))
        else:
            raise TfgraphError("the last operand is ids, which have no table behind them")
    return found


def _embedding_sum(*operands: TensorType, scale: Exact) -> TensorType:
    (ids, table), *others = terms(operands)
    if ids is None:
        raise TfgraphError(f"the first operand is {table}, expected ids, i64 or i32")
    first = _rows(ids, table)
    require_float(first)
    first = find_op("mul").result_types([first, scale], {})[0]
    return reduce(broadcast, (_rows(*term) for term in others), first)


def _rows(ids: TensorType | None, table: TensorType) -> TensorType:
    return table if ids is None else find_op("embedding").result_types([ids, table], {})[0]


def _flops(*operands: TensorType, scale: Exact) -> Dim:
    """The scale is of the first term, the additions are of the whole."""
    (ids, table), *others = terms(operands)
    scaled = product(_rows(ids, table).shape) if scale != exact(1) else as_dim(0)
    return scaled + len(others) * product(_embedding_sum(*operands, scale=scale).shape)


@op(infer=_embedding_sum, kind="composite", flops=_flops)
def embedding_sum(ids: Array, table: Array, /, *others: Array, scale: ExactLike = 1) -> Array:
    """`scale` times the rows of `table` at `ids`, plus each of the others in turn.

    Integers among the others are ids of the table behind them, whose rows are added; floats are
    added as they are. All floats are of one type, and terms broadcast as in `add`. The input of
    BERT is embedding_sum(ids, tokens, types, token_types, positions): Devlin et al. 2018, section
    3.
    """
    total = embedding(ids, table)
    if exact(scale) != exact(1):
        total = mul(total, scale)
    for index, term in terms(others):
        total = add(total, term if index is None else embedding(index, term))
    return total
