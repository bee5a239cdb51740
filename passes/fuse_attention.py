"""fuse-attention: softmax(scale Q K^T under the mask) V becomes one op; merge-projections: the
linears that make Q, K and V of one tensor become one, be Q and K turned by their positions or not.

`attention` takes Q, K and V with their heads side by side, so it is put between head merges and
splits that cancel against those of the graph (the rules of `simplify` that run in the same pass).

Legal when: K is a transposed tensor [batch, heads, key, d]; the scale is one constant for all
scores; a softcap comes before the mask; the softmax is over the keys; Q, K and V agree in heads, of
which each is repeated in place for a group of query heads; and nothing else reads the scores or the
weights. Any c tanh(f s) is the softcap c tanh(s' / c) of scores s' = c f s, so the constant f
inside goes into the scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tfgraph.ir import Exact, as_dim, exact
from tfgraph.ops import attention, concat, full, linear, merge_heads, slice_, split_heads, transpose
from tfgraph.passes.pattern import NoMatch, Pattern, call, const, either, masked, opt, var
from tfgraph.passes.pipeline import RulePass, register_pass
from tfgraph.passes.rule import SILENT, Match, Rule, rule
from tfgraph.passes.simplify import merge_reshapes, merge_transposes, reciprocal

if TYPE_CHECKING:
    from tfgraph.ir import Dim, Mask, Node


def _repeated(name: str, how: str) -> Pattern:
    """Heads as they are, or each repeated for a group of query heads."""
    once = call("reshape", var(name), shared=True, name=f"{how}_one")
    wide = call("broadcast_to", once, shared=True, name=f"{how}_wide")
    return either(call("reshape", wide, shared=True, name=f"{how}_all"), var(name))


_KEYS = call("transpose", _repeated("k", "k"), shared=True, name="k_t", why="K is not transposed")
_PRODUCT = call("matmul", var("q"), _KEYS, why="expected the product of Q and K")
# What else is done to scores by hand.
_ADVICE = {
    "add": "tfgraph.ops.mask(scores, tfgraph.bias(t)) fuses",
    "where": "tfgraph.ops.mask(scores, tfgraph.dense(t)) fuses",
}
_SCALED = either(
    call("mul", _PRODUCT, const("scale"), why="expected the scaled scores", advice=_ADVICE),
    call("div", _PRODUCT, const("divisor")),
    _PRODUCT,
)
_INSIDE = either(
    call("mul", _SCALED, const("inside")), call("div", _SCALED, const("inside_divisor")), _SCALED
)
_CAPPED = either(_SCALED, call("mul", call("tanh", _INSIDE), const("cap")))
_MASKED = either(
    call(
        "mask",
        _CAPPED,
        masked("m"),
        why="unknown mask: expected mask or the scaled scores",
        advice=_ADVICE,
    ),
    _CAPPED,
)
_WEIGHTS = call("softmax", _MASKED, name="softmax")


# A matmul forms 0 * NaN where a masked value is NaN; fused, what the mask hides stays hidden.
@rule(call(("weighted_sum", "matmul"), _WEIGHTS, _repeated("v", "v"), name="out"), near=2)
def fuse_attention(
    q: Any,
    k: Any,
    v: Any,
    m: Mask | None,
    cap: Exact | None,
    k_t: Node,
    softmax: Node,
    out: Node,
    match: Match,
) -> Any:
    """weighted_sum(softmax(mask(scale Q K^T)), V) -> attention(Q, K, V)."""
    if len(q.shape) != 4 or len(k.shape) != 4 or len(v.shape) != 4:
        raise NoMatch(f"Q, K and V are {q.type}, {k.type}, {v.type}, not [batch, heads, length, d]")
    _check_repeated("k", k, match)
    _check_repeated("v", v, match)
    if softmax.attrs["axis"] not in (-1, 3):
        raise NoMatch(f"the softmax is over axis {softmax.attrs['axis']}, not over the keys")
    if k_t.attrs["perm"] == (0, 2, 3, 1):  # heads split and keys transposed in one
        k = transpose(k, perm=(0, 2, 1, 3))
    elif k_t.attrs["perm"] != (0, 1, 3, 2):
        raise NoMatch(f"K is not transposed: perm is {k_t.attrs['perm']}, expected (0, 1, 3, 2)")
    heads, kv_heads = _heads(q), _heads(k)
    if kv_heads != _heads(v):
        raise NoMatch(f"K has {kv_heads} heads and V {_heads(v)}")
    fused = attention(
        merge_heads(q),
        merge_heads(k),
        merge_heads(v),
        m,
        heads=heads,
        kv_heads=kv_heads,
        scale=_scale(match),
        softcap=cap,
    )
    result = split_heads(fused, heads)
    if result.type != out.output.type:
        raise NoMatch(f"the heads of Q broadcast: {q.type} to {out.output.type}")
    return result


def _check_repeated(how: str, x: Any, match: Match) -> None:
    """Decline unless head h of the repeated heads is head h // r of x [batch, g, length, d]."""
    nodes = match.state.bindings
    if f"{how}_all" not in nodes:
        return
    batch, groups, length, size = x.shape
    wide = nodes[f"{how}_wide"].output.type.shape
    each = wide[2]
    shapes = [
        (f"{how}_one", (batch, groups, as_dim(1), length, size)),
        (f"{how}_wide", (batch, groups, each, length, size)),
        (f"{how}_all", (batch, groups * each, length, size)),
    ]
    if any(nodes[name].output.type.shape != shape for name, shape in shapes):
        raise NoMatch  # repeated otherwise; they may still be the heads themselves


def _scale(match: Match) -> Exact:
    """The product of the constants around the scores, those of the softcap included."""
    constants = match.state.bindings
    scale = exact(1)
    for factor in ("scale", "inside", "cap"):
        scale *= constants.get(factor, exact(1))
    for divisor in ("divisor", "inside_divisor"):
        scale *= reciprocal(constants.get(divisor, exact(1)))
    return scale


def _heads(x: Any) -> int:
    heads: Dim = x.shape[1]
    if not heads.is_const:
        raise NoMatch(f"the number of heads is symbolic: {heads}")
    return int(heads)


_LINEAR = "linear(x, w) for x @ w merges"
_Q, _K, _V = (
    call(
        "linear",
        var("x"),
        var(f"w{n}"),
        opt(f"b{n}"),
        name=n,
        why=f"{n.upper()} is not a linear",
        advice={"matmul": _LINEAR},
    )
    for n in ("q", "k", "v")
)
# As they are, or turned by their positions, which reads them where they are.
_TURNED_Q, _TURNED_K = (
    either(call("rotary", y, var(f"cos_{n}"), var(f"sin_{n}")), y)
    for y, n in ((_Q, "q"), (_K, "k"))
)


@rule(
    call("attention", _TURNED_Q, _TURNED_K, _V, opt_mask := either(masked("m"), opt("none"))),
    near=3,
)
def merge_qkv(
    x: Any, wq: Any, wk: Any, wv: Any, bq: Any, bk: Any, bv: Any, q: Node, k: Node, v: Node
) -> Any:
    """Three linears of one tensor -> one linear, and three windows of its result."""
    return _merge(x, [(q, wq, bq), (k, wk, bk), (v, wv, bv)])


_CACHED_K, _CACHED_V = (
    call("cache_append", var(f"cache_{name}"), new, shared=True, name=f"append_{name}")
    for name, new in (("k", _TURNED_K), ("v", _V))
)


@rule(call("attention", _TURNED_Q, _CACHED_K, _CACHED_V, opt_mask), near=SILENT)
def merge_qkv_cached(
    x: Any, wq: Any, wk: Any, wv: Any, bq: Any, bk: Any, bv: Any, q: Node, k: Node, v: Node
) -> Any:
    """The same where K and V go through caches, so that a step of generation has the weights of
    the whole."""
    return _merge(x, [(q, wq, bq), (k, wk, bk), (v, wv, bv)])


_ANY_Q = var("query")
_MEMORY_K, _MEMORY_V = (
    call("linear", var("x"), var(f"w{n}"), opt(f"b{n}"), name=n) for n in ("k", "v")
)


@rule(call("attention", _ANY_Q, _MEMORY_K, _MEMORY_V, opt_mask), near=SILENT)
def merge_kv(x: Any, wk: Any, wv: Any, bk: Any, bv: Any, k: Node, v: Node) -> Any:
    """The linears of K and V of one memory -> one linear, and two windows of its result."""
    return _merge(x, [(k, wk, bk), (v, wv, bv)])


def _merge(x: Any, parts: list[tuple[Node, Any, Any]]) -> Any:
    if len({node.outputs for node, _, _ in parts}) < len(parts):
        raise NoMatch("two of Q, K and V are the same linear")
    merged = _joined(x, parts)
    start = as_dim(0)
    windows: dict[Node, Any] = {}
    for node, w, _ in parts:
        windows[node] = slice_(merged, axis=-1, start=start, stop=start + w.shape[1])
        start = start + w.shape[1]
    return windows


def _joined(x: Any, parts: list[tuple[Node, Any, Any]]) -> Any:
    """The results of linears of x side by side, as one linear."""
    weight = concat(*(w for _, w, _ in parts), axis=1)
    bias = None
    if any(b is not None for _, _, b in parts):
        rows = [
            full(shape=(w.shape[1],), value=0, dtype=w.dtype) if b is None else b
            for _, w, b in parts
        ]
        bias = concat(*rows, axis=0)
    return linear(x, weight, bias)


@rule(call("concat", _MEMORY_K, _MEMORY_V, name="joined"), near=SILENT)
def merge_joined(x: Any, wk: Any, wv: Any, bk: Any, bv: Any, k: Node, v: Node, joined: Node) -> Any:
    """Two linears of one tensor, side by side -> one linear: the K and V that steps of generation
    are given, with the weights that `merge_kv` makes."""
    if joined.attrs["axis"] not in (-1, joined.output.type.rank - 1):
        raise NoMatch("they are not joined along the last axis")
    return _joined(x, [(k, wk, bk), (v, wv, bv)])


_PRODUCT_K, _PRODUCT_V = (
    call(("linear", "matmul"), var("x"), var(f"w{n}"), opt(f"b{n}"), name=n) for n in ("k", "v")
)


@rule(call("attention", _ANY_Q, _PRODUCT_K, _PRODUCT_V, opt_mask), near=SILENT)
def merge_products(query: Any, wk: Any, wv: Any, k: Node, v: Node, match: Match) -> Any:
    """Declines, and says why: K or V is x @ w, which is a linear by another name."""
    products = [
        name
        for name, node, w in (("K", k, wk), ("V", v, wv))
        if node.op == "matmul" and w.value in match.graph.param_values
    ]
    q = match.graph.producer.get(query.value)
    told = q is not None and (q.op, q.inputs[0]) == (k.op, k.inputs[0]) == ("linear", v.inputs[0])
    if not products or told:  # by merge-qkv, which found two linears
        raise NoMatch
    what = "are products" if products[1:] else "is the product"
    raise NoMatch(f"{' and '.join(products)} {what} of a tensor and a weight; {_LINEAR}")


@register_pass
class FuseAttention(RulePass):
    """Scaled dot-product attention, with masks and grouped heads, becomes one op."""

    name = "fuse-attention"
    rules: ClassVar[list[Rule]] = [fuse_attention]
    cleanups: ClassVar[list[Rule]] = [merge_transposes, merge_reshapes]


@register_pass
class MergeProjections(RulePass):
    """The projections that feed one attention from one tensor become one linear."""

    name = "merge-projections"
    rules: ClassVar[list[Rule]] = [
        merge_qkv,
        merge_qkv_cached,
        merge_kv,
        merge_joined,
        merge_products,
    ]
