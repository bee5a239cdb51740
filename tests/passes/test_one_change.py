"""Each rule on every graph that differs in one place from one it takes: what it still takes, it
replaces by what has the same values. So no condition of a rule is too wide."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.rule_graphs import Graphs, heads, tensor, weight

from tfgraph import ops
from tfgraph.ir import rsqrt
from tfgraph.ir.mask import causal
from tfgraph.ops import Builder

GRAPHS = Graphs()
takes = GRAPHS.takes


@takes("simplify", merge_transposes=1)
def transposes(g: Builder) -> Any:
    return ops.transpose(ops.transpose(tensor("x", 2, 3, 4), perm=(1, 2, 0)), perm=(0, 2, 1))


@takes("simplify", merge_reshapes=1)
def reshapes(g: Builder) -> Any:
    return ops.reshape(ops.reshape(tensor("x", 2, 2), shape=(4,)), shape=(1, 4))


@takes("simplify", drop_concat=1)
def concat_of_one(g: Builder) -> Any:
    return ops.concat(tensor("x", 2), axis=0)


@takes("simplify", drop_zero=1, drop_one=2)
def units(g: Builder) -> Any:
    return ((tensor("x", 2) - 0) * 1) / 1


@takes("simplify", merge_factors=1)
def factors(g: Builder) -> Any:
    return (tensor("x", 2) * 0.7) * 3


@takes("simplify", merge_divisor=1)
def divisor(g: Builder) -> Any:
    return (tensor("x", 2) / 7) * 3


def number(value: Any, *shape: int) -> Any:
    return ops.full(shape=shape or (2, 3), value=value, dtype="f32")


@takes("fold-constants", move_full=4)
def moved(g: Builder) -> Any:
    x = ops.reshape(ops.transpose(number(3), perm=(1, 0)), shape=(6,))
    return ops.slice_(ops.broadcast_to(x, shape=(2, 6)), axis=1, start=0, stop=2)


@takes("fold-constants", combine_full=4, negate_full=1)
def combined(g: Builder) -> Any:
    return -((number(3) * 2 + number(5)) / 4 - number(1, 3))


@takes("fuse-add-norm", fuse_add_layer_norm=1)
def add_layer_norm(g: Builder) -> Any:
    total = (tensor("a") + weight("shift", 4)) + tensor("b")
    return ops.layer_norm(total, weight("s", 4), weight("t", 4), eps=1e-2)


@takes("fuse-add-norm", fuse_add_rms_norm=1)
def add_rms_norm(g: Builder) -> Any:
    return ops.rms_norm(tensor("a") + tensor("b"), weight("s", 4), eps=1e-2)


@takes("fuse-add-norm", fuse_add_layer_norm=1)
def add_layer_norm_square(g: Builder) -> Any:
    return ops.layer_norm(tensor("a", 4, 4) + tensor("b", 4, 4), eps=1e-2)


@takes("fuse-linear-activation", fuse_linear_activation=1)
def activation(g: Builder) -> Any:
    return ops.gelu(ops.linear(tensor("x", 4, 4), weight("w", 4, 4), weight("b", 4)))


@takes("fuse-gated-linear", fuse_gated_linear=1)
def gate(g: Builder) -> Any:
    x = tensor("x", 4, 4)
    up = ops.linear(x, weight("w", 4, 4), weight("b", 4))
    return up * ops.silu(ops.linear(x, weight("v", 4, 4)))


@takes("fuse-attention", fuse_attention=1)
def attention(g: Builder) -> Any:
    """All sizes are 2, so that no wrong axis changes a shape."""
    scores = heads("q") @ ops.transpose(heads("k"), perm=(0, 1, 3, 2))
    scores = ops.tanh((scores * rsqrt(2)) * 0.3) * 3
    return ops.weighted_sum(ops.softmax(ops.mask(scores, causal())), heads("v"))


@takes("fuse-attention", fuse_attention=1)
def attention_divided(g: Builder) -> Any:
    scores = heads("q") @ ops.transpose(heads("k"), perm=(0, 2, 3, 1))
    return ops.softmax(ops.tanh((scores / 3) / 2) * 2) @ heads("v")


@takes("fuse-attention", fuse_attention=1)
def attention_capped(g: Builder) -> Any:
    scores = heads("q") @ ops.transpose(heads("k"), perm=(0, 1, 3, 2))
    return ops.softmax(ops.tanh(scores) * 2) @ heads("v")


@takes("fuse-attention", fuse_attention=1)
def attention_groups(g: Builder) -> Any:
    def repeated(name: str) -> Any:
        x = ops.reshape(tensor(name, 2, 2, 2, 2), shape=(2, 2, 1, 2, 2))
        return ops.reshape(ops.broadcast_to(x, shape=(2, 2, 2, 2, 2)), shape=(2, 4, 2, 2))

    scores = tensor("q", 2, 4, 2, 2) @ ops.transpose(repeated("k"), perm=(0, 1, 3, 2))
    return ops.weighted_sum(ops.softmax(scores), repeated("v"))


def projected(x: Any, *names: str, biases: str = "qv") -> list[Any]:
    return [
        ops.linear(x, weight(f"w{n}", 4, 4), weight(f"b{n}", 4) if n in biases else None)
        for n in names
    ]


@takes("merge-projections", merge_qkv=1)
def projections(g: Builder) -> Any:
    return ops.attention(*projected(tensor("x"), *"qkv"), causal(), heads=2, kv_heads=2, scale=1)


@takes("merge-projections", merge_qkv=1)
def turned_projections(g: Builder) -> Any:
    q, k, v = projected(tensor("x"), *"qkv", biases="")
    cos, sin = weight("cos", 2, 1), weight("sin", 2, 1)
    q, k = (ops.rotary(y, cos, sin, heads=2) for y in (q, k))
    return ops.attention(q, k, v, heads=2, kv_heads=2, scale=1)


@takes("merge-projections", merge_qkv_cached=1)
def cached_projections(g: Builder) -> Any:
    q, k, v = projected(tensor("x"), *"qkv", biases="k")
    cos, sin = weight("cos", 2, 1), weight("sin", 2, 1)
    q, k = (ops.rotary(y, cos, sin, heads=2) for y in (q, k))
    k, v = (
        ops.cache_append(tensor(f"cache_{n}", 2, 3, 4), y, at=1) for n, y in (("k", k), ("v", v))
    )
    g.output("k", k)
    g.output("v", v)
    return ops.attention(q, k, v, heads=2, kv_heads=2, scale=1)


@takes("merge-projections", merge_kv=1)
def memory_projections(g: Builder) -> Any:
    return ops.attention(tensor("q"), *projected(tensor("x"), *"kv"), heads=2, kv_heads=2, scale=1)


@takes("merge-projections")
def products(g: Builder) -> Any:
    """Which are declined, with a reason."""
    x = tensor("x")
    k, v = (x @ weight(name, 4, 4) for name in ("wk", "wv"))
    return ops.attention(tensor("q"), k, v, heads=2, kv_heads=2, scale=1)


@takes("merge-projections", merge_joined=1)
def joined_projections(g: Builder) -> Any:
    """In another type than a bias of zeros would have by itself."""
    x, bias = g.input("x", "f16", 4, 4), g.param("b", "f16", 4)
    k, v = (g.param(n, "f16", 4, 4) for n in ("wk", "wv"))
    return ops.concat(ops.linear(x, k), ops.linear(x, v, bias), axis=-1)


@pytest.mark.parametrize("name", GRAPHS)
def test_every_neighbour_keeps_its_values(name: str) -> None:
    GRAPHS.check(name)


def turned(q: Any, k: Any, interleaved: bool = False, kv_heads: int = 2) -> list[Any]:
    """By the angles of their positions, each row by its own."""
    cos, sin = weight("cos", 2, 1), weight("sin", 2, 1)
    return [
        ops.rotary(y, cos, sin, heads=heads, interleaved=interleaved)
        for y, heads in ((q, 2), (k, kv_heads))
    ]


def cached(g: Builder, k: Any, v: Any) -> list[Any]:
    """In caches of three rows, of which they are the last two."""
    made: list[Any] = []
    for name, rows in (("k", k), ("v", v)):
        made.append(ops.cache_append(tensor(f"cache_{name}", 2, 3, 4), rows, at=1))
        g.output(name, made[-1])
    return made


@takes("fuse-rotary", fuse_rotary_append=1)
def turned_into_caches(g: Builder) -> Any:
    q, k = turned(tensor("q"), tensor("k"))
    return ops.attention(q, *cached(g, k, tensor("v")), heads=2, kv_heads=2, scale=1)


@takes("fuse-rotary", fuse_rotary_append=1)
def turned_by_neighbours(g: Builder) -> Any:
    q, k = turned(tensor("q"), tensor("k"), interleaved=True)
    return ops.attention(q, *cached(g, k, tensor("v")), causal(1), heads=2, kv_heads=2, scale=1)


@takes("fuse-rotary", fuse_append=1)
def into_caches(g: Builder) -> Any:
    kv = cached(g, tensor("k"), tensor("v"))
    return ops.attention(tensor("q"), *kv, heads=2, kv_heads=2, scale=1)


@takes("fuse-rotary", merge_rotary=1)
def turned_windows(g: Builder) -> Any:
    """Three windows of which each two are side by side, along two axes of one size."""
    x = tensor("x", 2, 2, 12)
    q, k, v = (ops.slice_(x, axis=2, start=n, stop=n + 4) for n in (0, 4, 8))
    return ops.attention(*turned(q, k), v, heads=2, kv_heads=2, scale=1)


def ids(name: str, *shape: int) -> Any:
    return ops.current().input(name, "i64", *shape)


@takes("fuse-embedding", scale_embedding=1, add_to_embedding=2)
def embeddings(g: Builder) -> Any:
    """Two tables of one size, and positions."""
    tokens, types, positions = weight("tokens", 3, 4), weight("types", 3, 4), weight("p", 2, 4)
    x = ops.embedding(ids("ids", 2, 2), tokens) * 0.7
    return (x + ops.embedding(ids("kinds", 2, 2), types)) + ops.slice_(positions, axis=0, stop=2)
