"""fuse-attention: softmax(scale Q K^T under the mask) V becomes one op; merge-projections: the
linears that make Q, K and V of one tensor become one.

`attention` takes Q, K and V with their heads side by side, so it is put between head merges and
splits that cancel against those of the graph (the rules of `simplify` that run in the same pass).

Legal when: K is a transposed tensor [batch, heads, key, d]; the scale is one constant for all
scores; a softcap c tanh(s / c) comes before the mask; the softmax is over the keys; Q, K and V
agree in heads; and nothing else reads the scores or the weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tfgraph.ir import Exact, as_dim, exact
from tfgraph.ops import attention, concat, full, linear, merge_heads, slice_, split_heads, transpose
from tfgraph.passes.pattern import NoMatch, Pattern, call, const, either, masked, opt, var
from tfgraph.passes.pipeline import RulePass, register_pass
from tfgraph.passes.rule import Rule, rule
from tfgraph.passes.simplify import drop_no_op, drop_transpose, merge_reshapes, merge_transposes

if TYPE_CHECKING:
    from tfgraph.ir import Dim, Mask, Node


def _repeated(name: str, how: str) -> Pattern:
    """Heads as they are, or each repeated for a group of query heads."""
    once = call("reshape", var(name), shared=True, name=f"{how}_one")
    wide = call("broadcast_to", once, shared=True, name=f"{how}_wide")
    return either(call("reshape", wide, shared=True, name=f"{how}_all"), var(name))


_KEYS = call(
    "transpose", _repeated("k", "k"), shared=True, name="k_t", why="K is not transposed"
)
_PRODUCT = call("matmul", var("q"), _KEYS)
_SCALED = either(
    call("mul", _PRODUCT, const("scale")), call("div", _PRODUCT, const("divisor")), _PRODUCT
)
_CAPPED = either(
    call(
        "mul",
        call("tanh", either(call("mul", _SCALED, const("inverse")), call("div", _SCALED, const("cap")))),
        const("cap"),
    ),
    _SCALED,
)
_MASKED = either(
    call("mask", _CAPPED, masked("m"), why="unknown mask: expected mask or the scaled scores"),
    _CAPPED,
)
_WEIGHTS = call("softmax", _MASKED, name="softmax")


@rule(call("matmul", _WEIGHTS, _repeated("v", "v"), name="out"), near=2)
def fuse_attention(
    q: Any,
    k: Any,
    v: Any,
    m: Mask | None,
    scale: Exact | None,
    divisor: Exact | None,
    cap: Exact | None,
    inverse: Exact | None,
    k_t: Node,
    softmax: Node,
    out: Node,
) -> Any:
    """matmul(softmax(mask(scale Q K^T)), V) -> attention(Q, K, V)."""
    if len(q.shape) != 4 or len(k.shape) != 4 or len(v.shape) != 4:
        raise NoMatch(f"Q, K and V are {q.type}, {k.type}, {v.type}, not [batch, heads, length, d]")
    if softmax.attrs["axis"] not in (-1, 3):
        raise NoMatch(f"the softmax is over axis {softmax.attrs['axis']}, not over the keys")
    if k_t.attrs["perm"] == (0, 2, 3, 1):  # heads split and keys transposed in one
        k = transpose(k, perm=(0, 2, 1, 3))
    elif k_t.attrs["perm"] != (0, 1, 3, 2):
        raise NoMatch(f"K is not transposed: perm is {k_t.attrs['perm']}, expected (0, 1, 3, 2)")
    heads, kv_heads = _heads(q), _heads(k)
    if kv_heads != _heads(v):
        raise NoMatch(f"K has {kv_heads} heads and V {_heads(v)}")
    if kv_heads == 0 or heads % kv_heads:
        raise NoMatch(f"{heads} query heads are not a multiple of {kv_heads} key/value heads")
    if cap is not None and inverse is not None and cap * inverse != exact(1):
        raise NoMatch(f"the softcap is not c tanh(s / c): {inverse} is not 1/{cap}")
    fused = attention(
        merge_heads(q),
        merge_heads(k),
        merge_heads(v),
        m,
        heads=heads,
        kv_heads=kv_heads,
        scale=_scale(scale, divisor),
        softcap=cap,
    )
    result = split_heads(fused, heads)
    if result.type != out.output.type:
        raise NoMatch(f"the batch broadcasts: {q.type} with {k.type}")
    return result


def _scale(factor: Exact | None, divisor: Exact | None) -> Exact:
    if divisor is None:
        return factor or exact(1)
    if divisor.calls or not divisor.factor:
        raise NoMatch(f"the scores are divided by {divisor}")
    return Exact(1 / divisor.factor)


def _heads(x: Any) -> int:
    heads: Dim = x.shape[1]
    if not heads.is_const:
        raise NoMatch(f"the number of heads is symbolic: {heads}")
    return int(heads)


_Q, _K, _V = (
    call("linear", var(x), var(f"w{n}"), opt(f"b{n}"), name=n, why=f"{n.upper()} is not a linear")
    for x, n in (("x", "q"), ("x", "k"), ("x", "v"))
)


@rule(call("attention", _Q, _K, _V, opt_mask := either(masked("m"), opt("none"))), near=3)
def merge_qkv(
    x: Any, wq: Any, wk: Any, wv: Any, bq: Any, bk: Any, bv: Any, q: Node, k: Node, v: Node
) -> Any:
    """Three linears of one tensor -> one linear, and three windows of its result."""
    return _merge(x, [(q, wq, bq), (k, wk, bk), (v, wv, bv)])


_ANY_Q = var("query")
_MEMORY_K, _MEMORY_V = (
    call("linear", var("x"), var(f"w{n}"), opt(f"b{n}"), name=n) for n in ("k", "v")
)


@rule(call("attention", _ANY_Q, _MEMORY_K, _MEMORY_V, opt_mask), near=10**6)
def merge_kv(x: Any, wk: Any, wv: Any, bk: Any, bv: Any, k: Node, v: Node) -> Any:
    """The linears of K and V of one memory -> one linear, and two windows of its result."""
    return _merge(x, [(k, wk, bk), (v, wv, bv)])


def _merge(x: Any, parts: list[tuple[Node, Any, Any]]) -> Any:
    if len({node.outputs for node, _, _ in parts}) < len(parts):
        raise NoMatch("two of Q, K and V are the same linear")
    weight = concat(*(w for _, w, _ in parts), axis=1)
    bias = None
    if any(b is not None for _, _, b in parts):
        rows = [
            full(shape=(w.shape[1],), value=0, dtype=w.dtype) if b is None else b
            for _, w, b in parts
        ]
        bias = concat(*rows, axis=0)
    merged = linear(x, weight, bias)
    start = as_dim(0)
    windows: dict[Node, Any] = {}
    for node, w, _ in parts:
        windows[node] = slice_(merged, axis=-1, start=start, stop=start + w.shape[1])
        start = start + w.shape[1]
    return windows


@register_pass
class FuseAttention(RulePass):
    """Scaled dot-product attention, with masks and grouped heads, becomes one op."""

    name = "fuse-attention"
    rules: ClassVar[list[Rule]] = [
        fuse_attention,
        merge_transposes,
        drop_transpose,
        merge_reshapes,
        drop_no_op,
    ]


@register_pass
class MergeProjections(RulePass):
    """The projections that feed one attention from one tensor become one linear."""

    name = "merge-projections"
    rules: ClassVar[list[Rule]] = [merge_qkv, merge_kv]
