"""recover-rotary-parts: rotary positions by their parts, a cos - b sin and b cos + a sin of the
halves, or neighbours, a and b of each head, become one op. It is what the op means, written out.

It runs before reshapes are merged, which forgets where the heads were apart; `recover-rotary` has
the same rules for what shows only then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tfgraph.ir import as_dim
from tfgraph.ops import merge_heads, reshape, rotary, split_heads
from tfgraph.passes.pattern import NoMatch, call, var
from tfgraph.passes.pipeline import RulePass, register_pass
from tfgraph.passes.rule import Rule, rule

if TYPE_CHECKING:
    from tfgraph.ir import Dim, Node
    from tfgraph.passes.pattern import Pattern

_ONE = as_dim(1)
_LOW = call("slice", var("x"), name="low", shared=True)
_HIGH_PART = call("slice", var("x"), name="high", shared=True)


def _turned(a: Pattern, b: Pattern) -> tuple[Pattern, Pattern]:
    """(a cos - b sin, b cos + a sin)."""
    c, s = var("c"), var("s")
    real = call("sub", call("mul", a, c), call("mul", b, s))
    return real, call("add", call("mul", b, c), call("mul", a, s))


_HALF_TURNED = _turned(_LOW, _HIGH_PART)


@rule(call("concat", *_HALF_TURNED, name="out"), near=8)
def rotary_by_halves(x: Any, c: Any, s: Any, low: Node, high: Node, out: Node) -> Any:
    """(a cos - b sin, b cos + a sin) of the halves a and b of a head -> rotary(x, cos, sin)."""
    half = low.output.type.shape[-1]
    _check_halves(x, low, high, half, out)
    if 2 * half != x.shape[-1]:
        raise NoMatch("only a part of the head is turned")
    return _by_tables(x, c, s, half=half, interleaved=False)


@rule(
    call(
        "concat",
        call("concat", *_HALF_TURNED, name="out"),
        call("slice", var("x"), name="rest", shared=True),
        name="whole",
    ),
    near=9,
)
def partial_rotary_by_halves(
    x: Any,
    c: Any,
    s: Any,
    low: Node,
    high: Node,
    rest: Node,
    out: Node,
    whole: Node,
) -> Any:
    """The same of the first elements of a head, the others left as they are."""
    half = low.output.type.shape[-1]
    _check_halves(x, low, high, half, out)
    window = (rest.attrs["start"], rest.attrs["stop"])
    if window != (2 * half, x.shape[-1]) or whole.attrs["axis"] not in (-1, 3):
        raise NoMatch("the parts of a head are not the first elements and the rest")
    return _by_tables(x, c, s, half=half, interleaved=False)


def _check_halves(x: Any, low: Node, high: Node, half: Dim, out: Node) -> None:
    windows = [(n.attrs["axis"] in (-1, 3), n.attrs["start"], n.attrs["stop"]) for n in (low, high)]
    expected = [(True, as_dim(0), half), (True, half, 2 * half)]
    if len(x.shape) != 4 or windows != expected or out.attrs["axis"] not in (-1, 3):
        raise NoMatch("the parts of x are not the halves of what is turned")


def _pair_part(name: str) -> Pattern:
    return call("reshape", call("slice", var("pairs"), name=name, shared=True), shared=True)


_PAIR_TURNED = call(
    "reshape",
    call(
        "concat",
        *(call("reshape", t) for t in _turned(_pair_part("first"), _pair_part("second"))),
        name="joined",
    ),
    name="out",
)


@rule(_PAIR_TURNED, near=12)
def rotary_by_pairs(
    pairs: Any, c: Any, s: Any, first: Node, second: Node, joined: Node, out: Node
) -> Any:
    """(a cos - b sin, b cos + a sin) of neighbours a and b -> rotary(x, cos, sin), interleaved."""
    x = _check_pairs(pairs, first, second, joined, out)
    return _by_tables(x, c, s, half=pairs.shape[-2], interleaved=True)


def _check_pairs(pairs: Any, first: Node, second: Node, joined: Node, out: Node) -> Any:
    """x [.., size] of the pairs [.., size/2, 2]."""
    *outer, half, _ = pairs.shape
    windows = [
        (n.attrs["axis"] in (-1, 4), n.attrs["start"], n.attrs["stop"]) for n in (first, second)
    ]
    expected = [(True, as_dim(i), as_dim(i + 1)) for i in (0, 1)]
    whole = (*outer, 2 * half)
    if len(outer) != 3 or windows != expected:
        raise NoMatch("neighbours are not taken apart")
    same = joined.output.type.shape == pairs.shape and joined.attrs["axis"] in (-1, 4)
    if not same or out.output.type.shape != whole:
        raise NoMatch("neighbours are not put together")
    return reshape(pairs, shape=whole)


def _by_tables(x: Any, c: Any, s: Any, *, half: Dim, interleaved: bool) -> Any:
    """x [batch, length, heads, size] or [batch, heads, length, size], turned."""
    first, outer = axes_of_tables(x, c, s, last=half)
    tables = [reshape(t, shape=(*outer, half)) for t in (c, s)]
    if first:
        heads = count(x.shape[1])
        turned = rotary(merge_heads(x), *tables, heads=heads, interleaved=interleaved)
        return split_heads(turned, heads)
    heads = count(x.shape[2])
    flat = reshape(x, shape=(*x.shape[:2], x.shape[2] * x.shape[3]))
    turned = rotary(flat, *tables, heads=heads, interleaved=interleaved)
    return reshape(turned, shape=x.shape)


def axes_of_tables(x: Any, *tables: Any, last: Dim) -> tuple[bool, tuple[Dim, ...]]:
    """Whether the heads of x stand before its length, and what the axes of cosines and sines in
    front of their last one are: [length], or [batch, length]. Raises NoMatch for other tables."""
    batch, first, second, _ = x.shape
    shapes = {(*[_ONE] * (4 - len(t.shape)), *t.shape) for t in tables}
    for rows in (_ONE, batch):
        front = () if rows == _ONE else (batch,)
        if shapes == {(rows, _ONE, second, last)}:
            return True, (*front, second)
        if shapes == {(rows, first, _ONE, last)}:
            return False, (*front, first)
    raise NoMatch(f"cosines or sines are {tables[0].type} and {tables[1].type}")


def count(heads: Dim) -> int:
    """How many heads. Raises NoMatch for a symbolic number."""
    if not heads.is_const:
        raise NoMatch(f"the number of heads is symbolic: {heads}")
    return int(heads)


PARTS = [rotary_by_halves, partial_rotary_by_halves, rotary_by_pairs]


@register_pass
class RecoverRotaryParts(RulePass):
    """Rotary positions that were written out by their parts."""

    name = "recover-rotary-parts"
    rules: ClassVar[list[Rule]] = PARTS
