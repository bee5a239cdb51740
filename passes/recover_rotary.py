"""recover-rotary: rotary positions, written out as x cos + rotate_half(x) sin, become one op.

Exporters keep cosines and sines twice, once for each half of a head; the op takes them once. Legal
where both halves are the same for certain: made by one concatenation of a tensor with itself. A
head whose first elements alone are turned is recovered whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tfgraph.ir import Value, as_dim
from tfgraph.ops import Traced, merge_heads, reshape, rotary, slice_, split_heads
from tfgraph.ops.positions import Affine, affine
from tfgraph.passes.pattern import NoMatch, call, var
from tfgraph.passes.pipeline import RulePass, register_pass
from tfgraph.passes.recover_rotary_parts import PARTS, axes_of_tables, count
from tfgraph.passes.rule import Match, Rule, rule
from tfgraph.passes.simplify import drop_no_op, merge_reshapes, merge_transposes

if TYPE_CHECKING:
    from tfgraph.ir import Dim, Node

_ONE = as_dim(1)
_HEADS_FIRST = (0, 2, 1, 3)

_HIGH = call("neg", call("slice", var("x"), name="high", shared=True), shared=True)
_LOW = call("slice", var("x"), name="low", shared=True)
_HALVES = call("concat", _HIGH, _LOW, name="halves", why="expected the halves of x swapped")


@rule(
    call("add", call("mul", var("x"), var("c")), call("mul", _HALVES, var("s"))),
    near=4,
    name="rotary",
)
def _rotary(x: Any, c: Any, s: Any, high: Node, low: Node, halves: Node, match: Match) -> Any:
    """x cos + concat(-x2, x1) sin -> rotary(x, cos, sin)."""
    if len(x.shape) != 4 or not x.shape[-1].is_const:
        raise NoMatch(f"x is {x.type}, not heads of vectors")
    _check_tables(c, s)
    size = int(x.shape[-1])
    windows = [(n.attrs["start"], n.attrs["stop"]) for n in (low, high)]
    half = as_dim(size // 2)
    expected = [(as_dim(0), half), (half, as_dim(size))]
    if size % 2 or windows != expected or halves.attrs["axis"] not in (-1, 3):
        raise NoMatch("the halves of x are not swapped")
    first, outer = axes_of_tables(x, c, s, last=as_dim(size))
    cos, sin = (_table(t, (*outer, half), match) for t in (c, s))
    if first:
        heads = count(x.shape[1])
        return split_heads(rotary(merge_heads(x), cos, sin, heads=heads), heads)
    heads = count(x.shape[2])
    flat = reshape(x, shape=(*x.shape[:2], x.shape[2] * x.shape[3]))
    return reshape(rotary(flat, cos, sin, heads=heads), shape=x.shape)


def _check_tables(*tables: Any) -> None:
    for t in tables:
        if not isinstance(t, Traced):
            raise NoMatch(f"cosines or sines are the constant {t}")


def _table(t: Any, shape: tuple[Dim, ...], match: Match) -> Any:
    """One half of cosines or sines, as rotary takes them."""
    if not _is_doubled(t.value, match):
        raise NoMatch(f"{t.value} has two halves that may differ")
    return reshape(slice_(t, axis=-1, stop=shape[-1]), shape=shape)


def _is_doubled(value: Value, match: Match) -> bool:
    """Whether both halves of the last axis are the same for certain."""
    node = match.makers.get(value)
    while node is not None:
        if node.op == "concat":
            last = node.attrs["axis"] in (-1, node.output.type.rank - 1)
            return last and len(node.operands) == 2 and node.operands[0] == node.operands[1]
        if node.op not in ("reshape", "broadcast_to", "cos", "sin", "mul", "cast"):
            return False
        if len(node.inputs) != 1 or node.inputs[0].type.shape[-1:] != node.output.type.shape[-1:]:
            return False
        node = match.makers.get(node.inputs[0])
    return False


_ODD = call("neg", call("take", var("x"), var("odd"), name="odd_ones", shared=True), shared=True)
_EVEN = call("take", var("x"), var("even"), name="even_ones", shared=True)
_PAIRS = call(
    "reshape",
    call(
        "concat",
        call("reshape", _ODD, shared=True),
        call("reshape", _EVEN, shared=True),
        name="pairs",
    ),
    name="paired",
    shared=True,
)


@rule(
    call("add", call("mul", var("x"), var("c")), call("mul", _PAIRS, var("s"))),
    near=6,
    name="interleaved-rotary",
)
def _interleaved(
    x: Any,
    c: Any,
    s: Any,
    odd: Any,
    even: Any,
    odd_ones: Node,
    even_ones: Node,
    pairs: Node,
    match: Match,
) -> Any:
    """x cos + (-x1, x0, -x3, x2, ...) sin -> rotary(x, cos, sin), interleaved."""
    if len(x.shape) != 4:
        raise NoMatch(f"x is {x.type}, not [batch, length, heads, size]")
    _check_tables(c, s)
    last = all(n.attrs["axis"] in (-1, 3) for n in (odd_ones, even_ones))
    lines = [affine(i.value, match.makers) for i in (even, odd)]
    steps = [Affine(as_dim(n), (as_dim(2),)) for n in (0, 1)]
    two = pairs.output.type.shape[-1] == as_dim(2) and pairs.attrs["axis"] in (-1, 4)
    if not last or lines != steps or not two:
        raise NoMatch("neighbours are not swapped")
    cos, sin = (_paired(t, x, match) for t in (c, s))
    flat = reshape(x, shape=(*x.shape[:2], x.shape[2] * x.shape[3]))
    heads = count(x.shape[2])
    return reshape(rotary(flat, cos, sin, heads=heads, interleaved=True), shape=x.shape)


def _paired(t: Any, x: Any, match: Match) -> Any:
    """Each second one of cosines or sines [1, length, 1, size] whose pairs are the same."""
    length, size = x.shape[1], x.shape[-1]
    half = size // 2
    if t.shape not in ((_ONE, length, _ONE, size), (length, _ONE, size)):
        raise NoMatch(f"cosines or sines are {t.type}")
    node = match.makers.get(t.value)
    while node is not None and node.op == "reshape":
        inner = match.makers.get(node.inputs[0])
        if inner is not None and inner.op == "broadcast_to":
            source = inner.inputs[0]
            wide, inside = ([d for d in v.type.shape if d != _ONE] for v in (inner.output, source))
            if source.type.shape[-1] == _ONE and wide == [*inside, as_dim(2)]:
                return reshape(Traced(t.builder, source), shape=(length, half))
        node = inner
    raise NoMatch(f"{t.value} has pairs that may differ")


_PART = call("slice", var("x"), name="turned_part", shared=True)
_MERGED = call("reshape", call("transpose", _PART, attrs={"perm": _HEADS_FIRST}), name="merged")
_SPLIT = call(
    "transpose",
    call("reshape", call("rotary", _MERGED, var("cos"), var("sin"), name="turn")),
    attrs={"perm": _HEADS_FIRST},
)
_FLAT = call("reshape", call("rotary", call("reshape", _PART), var("cos"), var("sin"), name="turn"))
_REST = call("slice", var("x"), name="rest", shared=True)


def _check_parts(x: Any, turned_part: Node, rest: Node, whole: Node) -> None:
    stop = turned_part.attrs["stop"]
    last = all(n.attrs["axis"] in (-1, 3) for n in (turned_part, rest, whole))
    windows = (turned_part.attrs["start"], rest.attrs["start"], rest.attrs["stop"])
    if not last or windows != (as_dim(0), stop, x.shape[-1]):
        raise NoMatch("the parts of a head are not the first elements and the rest")


@rule(call("concat", _SPLIT, _REST, name="whole"), near=5, name="partial-rotary")
def _partial(
    x: Any, cos: Any, sin: Any, turned_part: Node, turn: Node, rest: Node, whole: Node
) -> Any:
    """concat(rotary(first elements), the rest) -> rotary(x), which turns the first elements."""
    _check_parts(x, turned_part, rest, whole)
    heads, pairs = count(x.shape[1]), bool(turn.attrs["interleaved"])
    if turn.attrs["heads"] != heads:
        raise NoMatch
    turned = rotary(merge_heads(x), cos, sin, heads=heads, interleaved=pairs)
    return split_heads(turned, heads)


@rule(call("concat", _FLAT, _REST, name="whole"), near=5, name="partial-rotary-by-length")
def _partial_by_length(
    x: Any, cos: Any, sin: Any, turned_part: Node, turn: Node, rest: Node, whole: Node
) -> Any:
    """The same of x [batch, length, heads, size]."""
    _check_parts(x, turned_part, rest, whole)
    if turn.attrs["heads"] != count(x.shape[2]):
        raise NoMatch
    flat = reshape(x, shape=(*x.shape[:2], x.shape[2] * x.shape[3]))
    pairs = bool(turn.attrs["interleaved"])
    turned = rotary(flat, cos, sin, heads=count(x.shape[2]), interleaved=pairs)
    return reshape(turned, shape=x.shape)


_WIDE_COS, _WIDE_SIN = (
    call("broadcast_to", var(name), shared=True, name=f"{name}_wide") for name in ("cos", "sin")
)


@rule(call("rotary", var("x"), _WIDE_COS, _WIDE_SIN, name="turn"), near=10**6)
def shared_tables(x: Any, cos: Any, sin: Any, cos_wide: Node, turn: Node) -> Any:
    """rotary by tables that are repeated for a batch -> by the tables themselves."""
    *_, length, half = cos_wide.output.type.shape
    if any(t.shape not in ((length, half), (_ONE, length, half)) for t in (cos, sin)):
        raise NoMatch
    cos, sin = (reshape(t, shape=(length, half)) for t in (cos, sin))
    attrs: Any = turn.attrs
    return rotary(x, cos, sin, **attrs)


@register_pass
class RecoverRotary(RulePass):
    """Rotary positions that were written out."""

    name = "recover-rotary"
    rules: ClassVar[list[Rule]] = [
        _rotary,
        _interleaved,
        _partial,
        _partial_by_length,
        shared_tables,
        *PARTS,
    ]
    cleanups: ClassVar[list[Rule]] = [merge_transposes, merge_reshapes, drop_no_op]
