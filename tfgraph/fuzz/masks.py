"""Random masks for attention: up to three of any kinds, joined. May import: ir."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from tfgraph.ir.mask import alibi, bias, causal, dense, padding, prefix, relative, segments, window

if TYPE_CHECKING:
    from tfgraph.fuzz.draft import Draft
    from tfgraph.ir import DimLike, Mask

_KINDS = 4  # of a family


def random_mask(
    f: Draft, heads: int, queries: DimLike, keys: DimLike, offset: DimLike | None
) -> Mask | None:
    """Up to three masks and biases of any kinds, joined."""
    masks = (_causal, _window, _padding, _lengths, _prefix, _segments, _dense)
    kinds = (*masks, _bias, _alibi, _relative)
    count = f.pick(0, 1, 1, 2, 2, 3)
    some = f.swarm.some(kinds, _KINDS)
    parts = [f.pick(*some)(f, heads, queries, keys, offset) for _ in range(count)]
    return reduce(lambda a, b: a & b, parts) if parts else None


def _causal(f: Draft, heads: int, queries: DimLike, keys: DimLike, offset: Any) -> Mask:
    return causal(offset)


def _window(f: Draft, heads: int, queries: DimLike, keys: DimLike, offset: Any) -> Mask:
    return window(f.pick(None, 0, 3, 40), f.pick(None, 0, 2), offset)


def _padding(f: Draft, heads: int, queries: DimLike, keys: DimLike, offset: Any) -> Mask:
    kind = f.pick("prefix", "bools")
    return padding(f.input(f.pick("bool", "i64", "i32"), "batch", keys, kind=kind).x)


def _lengths(f: Draft, heads: int, queries: DimLike, keys: DimLike, offset: Any) -> Mask:
    return padding(f.input(f.pick("i64", "i32"), "batch", kind="lengths", argument=keys).x)


def _prefix(f: Draft, heads: int, queries: DimLike, keys: DimLike, offset: Any) -> Mask:
    lengths = f.input(f.pick("i64", "i32"), "batch", kind="lengths", argument=keys)
    return prefix(lengths.x, offset)


def _segments(f: Draft, heads: int, queries: DimLike, keys: DimLike, offset: Any) -> Mask:
    of_queries = f.input("i64", "batch", queries, kind="segments").x
    if queries == keys and f.chance(0.5):
        return segments(of_queries)
    return segments(of_queries, f.input("i64", "batch", keys, kind="segments").x)


def _some_axes(f: Draft, heads: int, queries: DimLike, keys: DimLike) -> tuple[DimLike, ...]:
    """A shape that broadcasts to the scores."""
    whole = ("batch", heads, queries, keys)
    some = tuple(d if f.chance(0.6) else 1 for d in whole[:-1])
    return (*some[int(f.rng.integers(0, 4)) :], keys if f.chance(0.8) else 1)


def _dense(f: Draft, heads: int, queries: DimLike, keys: DimLike, offset: Any) -> Mask:
    return dense(f.input("bool", *_some_axes(f, heads, queries, keys), kind="bools").x)


def _bias(f: Draft, heads: int, queries: DimLike, keys: DimLike, offset: Any) -> Mask:
    return bias(f.floats(*_some_axes(f, heads, queries, keys), kind="normal").x)


def _alibi(f: Draft, heads: int, queries: DimLike, keys: DimLike, offset: Any) -> Mask:
    return alibi(f.floats(heads, kind=f.pick("small", "zeros")).x, offset)


def _relative(f: Draft, heads: int, queries: DimLike, keys: DimLike, offset: Any) -> Mask:
    table = f.floats(f.pick(4, 8, 32), heads, kind="small").x
    return relative(table, f.pick(20, 128), bidirectional=f.chance(0.5), offset=offset)
