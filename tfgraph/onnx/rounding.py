"""ONNX's roundings to integers. May import: site, known, registry, ops, ir."""

from __future__ import annotations

from typing import Any

from tfgraph import ops
from tfgraph.ir import Dim
from tfgraph.onnx.known import Undecided
from tfgraph.onnx.registry import translates
from tfgraph.onnx.site import Site, Tensor


@translates("Floor")
def _floor(at: Site, x: Tensor, /) -> Any:
    folded = at.fold(at.type(x).dtype, _down, x)
    return ops.floor(at.tensor(x)) if folded is None else folded


@translates("Ceil")
def _ceil(at: Site, x: Tensor, /) -> Any:
    folded = at.fold(at.type(x).dtype, lambda n: n if isinstance(n, Dim) else -_down(-n), x)
    return ops.neg(ops.floor(ops.neg(at.tensor(x)))) if folded is None else folded


@translates("Round")
def _round(at: Site, x: Tensor, /) -> Any:
    return round_half_even(at.tensor(x))


def round_half_even(x: Any) -> Any:
    """The nearest integer, of two equally near ones the even one, as floats.

    x - floor(x) is exact, but for x just below 0, where it is rounded to 1/2 at least."""
    low = ops.floor(x)
    rest, odd = ops.sub(x, low), ops.sub(low, ops.mul(ops.floor(ops.mul(low, 0.5)), 2))
    tie = ops.logical_and(ops.equal(rest, 0.5), ops.equal(odd, 1))
    up = ops.logical_or(ops.less(0.5, rest), tie)
    return ops.add(low, ops.cast(up, dtype=x.dtype))


def _down(number: Any) -> Any:
    """The largest integer not above a number."""
    if isinstance(number, Dim):
        return number
    if number.calls:
        raise Undecided
    return number.factor // 1
