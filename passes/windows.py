"""Which masks comparisons of positions are: `causal`, and windows with their offsets. May import:
positions, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgraph.ir import Dim, as_dim
from tfgraph.ir import mask as masks

if TYPE_CHECKING:
    from tfgraph.ir import Mask, TensorType
    from tfgraph.ops.positions import Affine

_ZERO, _ONE = as_dim(0), as_dim(1)


def at_least_zero(
    gap: Affine, scores: TensorType, *, window: bool = False, start: Dim = _ZERO
) -> list[Mask] | None:
    """The masks that say that a sum over the axes of the scores is not negative. `start`: where the
    queries stand, if that is a number."""
    gap = gap.aligned(scores.rank)
    *outer, query, key = gap.steps
    if any(step.terms for step in outer):
        return None
    if scores.shape[-2] == _ONE:  # a single query does not say how it is counted
        query = -key
    square = scores.shape[-2] == scores.shape[-1]
    if (query, key) == (_ONE, -_ONE):  # key <= query + start
        found = _window(gap.start, _ZERO, square=square, left=False) if window else None
        if found is not None:
            return found
        return [masks.causal(gap.start if gap.start.terms or not square else None)]
    if (query, key) == (-_ONE, _ONE):  # key >= query - start
        return _window(gap.start, start, square=square, left=True)
    if all(s.is_const and int(s) >= 0 for s in (query, key)):
        return [] if gap.start.is_const and int(gap.start) >= 0 else None
    return None


def start_of(query: Affine) -> Dim:
    """The position of the first query, where a sum says that as a number: 0 for others."""
    return as_dim(max(0, int(query.start))) if query.start.is_const else _ZERO


def _window(reach: Dim, start: Dim, *, square: bool, left: bool) -> list[Mask] | None:
    """A window that ends so far from the index of the query, of which what is symbolic is the
    offset of the queries."""
    most = as_dim(dict(reach.terms).get((), 0))
    offset = most - reach if left else reach - most
    if not offset.terms and not square:
        most, offset = most + start, start
    if int(most) < 0 or (square and offset.terms):
        return None
    place = None if square else offset
    return [masks.window(most, None, place) if left else masks.window(None, most, place)]


def joined(found: list[Mask]) -> list[Mask]:
    """Windows to the left and to the right, one after the other, as one."""
    together: list[Mask] = []
    for mask in found:
        match together, mask:
            case ([*_, masks.Window(None, Dim() as right, a)], masks.Window(left, None, b)) | (
                [*_, masks.Window(left, None, b)],
                masks.Window(None, Dim() as right, a),
            ) if _same_place(a, b, right):
                together[-1] = masks.window(left, right - (b or _ZERO) + (a or _ZERO), b)
            case _:
                together.append(mask)
    return together


def _same_place(a: Dim | None, b: Dim | None, right: Dim) -> bool:
    """Whether a window to the right of queries at `a` may be one of queries at `b`."""
    if a == b:
        return True
    assert a is not None  # where there are as many queries as keys, both are
    assert b is not None
    return a == _ZERO and b.is_const and int(right - b) >= 0


def whole(mask: Mask, scores: TensorType) -> list[Mask]:
    """A window of the past and the query itself is causal, one without ends hides nothing."""
    match mask:
        case masks.Window(None, None, _):
            return []
        case masks.Window(None, right, offset) if right == _ZERO:
            return [masks.causal(offset)]
        case masks.Window(None, Dim() as right, Dim() as offset) if offset.is_const:
            square = scores.shape[-2] == scores.shape[-1]
            return [mask] if square else [masks.causal(offset + right)]
        case _:
            return [mask]
