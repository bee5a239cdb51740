"""fuse-rotary: queries and keys are turned by one op, and where there is a cache, it puts keys and
values there too. What does not match runs as well in parts, and is not reported.

Legal where both are turned by the same tables in the same way, and heads are of one size; where
both caches get as many rows at the same place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tfgraph.ops import append_kv, rotary, rotary_append_kv, slice_
from tfgraph.passes.pattern import NoMatch, call, either, masked, opt, var
from tfgraph.passes.pipeline import RulePass, register_pass
from tfgraph.passes.rule import SILENT, Rule, rule

if TYPE_CHECKING:
    from tfgraph.ir import Node

_MASK = either(masked("m"), opt("none"))


def _turned(name: str, x: Any) -> Any:
    return call("rotary", x, var("cos"), var("sin"), name=f"turned_{name}")


def _appended(name: str, rows: Any) -> Any:
    return call("cache_append", var(f"cache_{name}"), rows, name=f"append_{name}")


_TURNED_Q, _TURNED_K = (_turned(name, var(name)) for name in "qk")


@rule(
    call("attention", _TURNED_Q, _appended("k", _TURNED_K), _appended("v", var("v")), _MASK),
    near=SILENT,
)
def fuse_rotary_append(
    cache_k: Any,
    cache_v: Any,
    q: Any,
    k: Any,
    v: Any,
    cos: Any,
    sin: Any,
    turned_q: Node,
    turned_k: Node,
    append_k: Node,
    append_v: Node,
) -> Any:
    """rotary(q), cache_append(rotary(k)) and cache_append(v) -> rotary_append_kv."""
    at = _place(append_k, append_v)
    interleaved = _turns(turned_q, turned_k)
    results = rotary_append_kv(
        cache_k,
        cache_v,
        q,
        k,
        v,
        cos,
        sin,
        at=at,
        heads=_heads(turned_q),
        kv_heads=_heads(turned_k),
        interleaved=interleaved,
    )
    return dict(zip((turned_q, append_k, append_v), results, strict=True))


@rule(
    call("attention", var("q"), _appended("k", var("k")), _appended("v", var("v")), _MASK),
    near=SILENT,
)
def fuse_append(cache_k: Any, cache_v: Any, k: Any, v: Any, append_k: Node, append_v: Node) -> Any:
    """cache_append(k) and cache_append(v) -> append_kv."""
    at = _place(append_k, append_v)
    results = append_kv(cache_k, cache_v, k, v, at=at)
    return dict(zip((append_k, append_v), results, strict=True))


_Q, _K = (call("slice", var("x"), name=name, shared=True) for name in "qk")


@rule(call("attention", _turned("q", _Q), _turned("k", _K), var("v"), _MASK), near=SILENT)
def merge_rotary(
    x: Any, cos: Any, sin: Any, q: Node, k: Node, turned_q: Node, turned_k: Node
) -> Any:
    """The rotary of two windows side by side -> two windows of the rotary of both."""
    interleaved = _turns(turned_q, turned_k)
    if not {q.attrs["axis"], k.attrs["axis"]} <= {-1, 2}:
        raise NoMatch
    attrs: list[Any] = [q.attrs["start"], q.attrs["stop"], k.attrs["start"], k.attrs["stop"]]
    start, middle, also, stop = attrs
    if middle != also:
        raise NoMatch
    width, other = (w.output.type.shape[-1] for w in (q, k))
    heads, others = _heads(turned_q), _heads(turned_k)
    if width * others != other * heads:
        raise NoMatch
    windows = slice_(x, axis=-1, start=start, stop=stop)
    both = rotary(windows, cos, sin, heads=heads + others, interleaved=interleaved)
    return {
        turned_q: slice_(both, axis=-1, stop=width),
        turned_k: slice_(both, axis=-1, start=width, stop=width + other),
    }


def _heads(turned: Node) -> int:
    return int(turned.attrs["heads"])  # type: ignore[arg-type]


def _turns(turned_q: Node, turned_k: Node) -> bool:
    """Whether pairs are neighbours, for both."""
    if turned_q.attrs["interleaved"] != turned_k.attrs["interleaved"]:
        raise NoMatch
    return bool(turned_q.attrs["interleaved"])


def _place(append_k: Node, append_v: Node) -> Any:
    """Where both caches get rows."""
    if append_k == append_v:  # a state is put into once
        raise NoMatch
    if append_k.attrs["at"] != append_v.attrs["at"]:
        raise NoMatch
    return append_k.attrs["at"]


@register_pass
class FuseRotary(RulePass):
    """Queries and keys are turned, and keys and values put into caches, by one op."""

    name = "fuse-rotary"
    rules: ClassVar[list[Rule]] = [fuse_rotary_append, fuse_append, merge_rotary]
