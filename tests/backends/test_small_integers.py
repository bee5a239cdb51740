"""On small integers every sum is exact in float32, whatever its order: each product that the CPU
computes has the bits of the reference, in every tile, tail and schedule. An element that is read or
written at a wrong place shows, however small it is."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from helpers.kernels import compile_kernels

import tfgraph
from tfgraph import blocks, ops
from tfgraph.backends.tvm.cpu.gemm import gemm, pack_weight
from tfgraph.backends.tvm.cpu.gemm_tile import tiles_of
from tfgraph.backends.tvm.cpu.schedule import Schedule
from tfgraph.backends.tvm.cpu.search import AHEAD, grains
from tfgraph.backends.tvm.kernels import LinearShape
from tfgraph.backends.tvm.target import cpu_machine
from tfgraph.ir import Graph
from tfgraph.ir.mask import window
from tfgraph.passes import DEFAULT_PIPELINE, parse_pipeline, run_pipeline

NDArray = np.ndarray[Any, Any]

ROWS = [1, 2, 3, 7, 8, 13, 64, 65]
WIDTHS = [(1, 1), (5, 17), (37, 50), (64, 96), (131, 131), (300, 70)]
"""Of weights: columns that are fewer than a vector, no whole panels, and whole ones."""
HEADS, SIZE = 4, 9
"""Of attention: heads that are no whole vectors."""


def integers(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray:
    """Of either sign, and none is 0, whose sign is no part of the promise."""
    drawn = rng.integers(1, 5, shape) * rng.choice([-1, 1], shape)
    return drawn.astype(np.float32)


@cache
def linears() -> Graph:
    """Every op that is a product by a weight, at each pair of widths."""
    with ops.graph("linears") as g:
        for k, n in WIDTHS:
            x = g.input(f"x{k}", "f32", "batch", "seq", k)
            gate = g.input(f"g{k}", "f32", "batch", "seq", n)
            w = g.param(f"w{k}", "f32", k, n)
            b = g.param(f"b{k}", "f32", n)
            g.output(f"linear {k}", ops.linear(x, w))
            g.output(f"bias {k}", ops.linear(x, w, b))
            g.output(f"relu {k}", ops.linear_activation(x, w, b, activation="relu"))
            g.output(f"relu2 {k}", ops.linear_activation(x, w, activation="relu2"))
            g.output(f"gated {k}", ops.gated_linear(x, w, gate))
            g.output(f"gated bias {k}", ops.gated_linear(x, w, gate, b))
            table = g.param(f"t{k}", "f32", n, k)
            g.output(f"tied {k}", ops.linear(x, ops.transpose(table, perm=(1, 0))))
    return g.build()


@cache
def products() -> Graph:
    """Products of two activations."""
    with ops.graph("products") as g:
        for k, n in WIDTHS:
            a = g.input(f"a{k}", "f32", "batch", 3, "seq", k)
            b = g.input(f"b{k}", "f32", "batch", 3, "seq", k)
            c = g.input(f"c{k}", "f32", k, n)
            turned = ops.transpose(b, perm=(0, 1, 3, 2))
            g.output(f"scores {k}", ops.matmul(a, turned))
            g.output(f"values {k}", ops.matmul(ops.matmul(a, turned), b))
            g.output(f"one right {k}", ops.matmul(a, c))
            g.output(f"weighted {k}", ops.weighted_sum(a, c))
    return g.build()


@cache
def attentions() -> Graph:
    """Attention of which each query takes one key: by its mask, or since its score is the largest
    by far. Its weight is 1 and the others 0, so that the result is a value. Q, K and V are products
    of one input, which the passes merge."""
    width = HEADS * SIZE
    with ops.graph("attentions") as g:
        x = g.input("x", "f32", "batch", "seq", 24)
        q, k, v = (blocks.linear(x, width, name=name) for name in "qkv")
        heads = {"heads": HEADS, "kv_heads": HEADS, "scale": 1}
        g.output("itself", ops.attention(q, k, v, window(0, 0), **heads))
        picks, key = (g.input(n, "f32", "batch", "seq", width) for n in ("picks", "key"))
        g.output("largest", ops.attention(picks, key, v, **heads))
        grouped = {"heads": HEADS, "kv_heads": 2, "scale": 1}
        half = (g.input(n, "f32", "batch", "seq", width // 2) for n in ("k2", "v2"))
        g.output("grouped", ops.attention(q, *half, window(0, 0), **grouped))
    return g.build()


def picked(rng: np.random.Generator, batch: int, seq: int) -> dict[str, NDArray]:
    """Keys that are corners of a cube, another one each, and queries that lie far out at one."""
    shape = (batch, seq, HEADS, SIZE)
    corner = np.stack([rng.permutation(2**SIZE)[:seq] for _ in range(batch * HEADS)])
    signs = np.where(corner[..., None] >> np.arange(SIZE) & 1, 1, -1).astype(np.float32)
    key = signs.reshape(batch, HEADS, seq, SIZE).transpose(0, 2, 1, 3)
    query = 1000 * key[:, rng.integers(0, seq, seq)]
    assert key.shape == query.shape == shape
    return {"picks": query.reshape(batch, seq, -1), "key": key.reshape(batch, seq, -1)}


def agree(graph: Graph, given: dict[str, NDArray], what: str) -> None:
    """The CPU's bits are the reference's."""
    weights = {p.value.name: _weight(p.value.name, p.value.type.shape) for p in graph.params}
    want = _compiled(graph, "numpy", weights)(**given)
    got = _compiled(graph, "cpu", weights)(**given)
    for name, array in want.items():
        assert np.abs(array).max() < 2**24, "else sums are not exact"
        assert got[name].tobytes() == array.tobytes(), f"{name}, {what}"


def _weight(name: str, shape: Any) -> NDArray:
    return integers(np.random.default_rng(sum(name.encode())), tuple(int(n) for n in shape))


_RUNS: dict[tuple[str, str], Any] = {}


def _compiled(graph: Graph, target: str, weights: dict[str, NDArray]) -> Any:
    key = graph.name, target
    if key not in _RUNS:
        _RUNS[key] = tfgraph.compile(graph, target, weights=weights)
    return _RUNS[key]


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("build", [linears, products, attentions], ids=lambda b: b.__name__)
def test_products_of_small_integers_have_the_reference_s_bits(build: Any, rows: int) -> None:
    graph, rng = build(), np.random.default_rng(rows)
    for batch in (1, 2):
        sizes = {"batch": batch, "seq": rows}
        given = {
            item.value.name: integers(rng, tuple(d.evaluate(sizes) for d in item.value.type.shape))
            for item in graph.inputs
        }
        if build is attentions:
            given |= picked(rng, batch, rows)
        agree(graph, given, f"{batch} x {rows}")


def test_each_kind_of_product_is_among_them() -> None:
    """As it is after the passes: Q, K and V are one product, the table is read as it lies."""
    ops_of = {}
    for build in (linears, products, attentions):
        graph, _ = run_pipeline(build(), parse_pipeline(DEFAULT_PIPELINE))
        ops_of[build] = [node.op for node in graph.nodes]
    assert {"linear", "linear_activation", "gated_linear"} <= set(ops_of[linears])
    assert {"matmul", "weighted_sum"} <= set(ops_of[products])
    assert ops_of[attentions].count("linear") == 1
    assert ops_of[attentions].count("attention") == 3


K, N = 131, 70
_SHAPES = {
    "linear": LinearShape(K, N),
    "relu": LinearShape(K, N, bias=True, activation="relu"),
    "gated": LinearShape(K, N, bias=True, gate=True),
}


@pytest.mark.parametrize("level", [None, pytest.param("x86-64-v3", marks=pytest.mark.long)])
def test_every_schedule_is_exact(level: str | None) -> None:
    """All that a search tries, in each of its tiles, with tails of rows, columns and fetches."""
    machine = cpu_machine(level)
    tiles = tiles_of(machine)
    more = [Schedule(tiles[0], ahead=ahead) for ahead in AHEAD]
    schedules = list(dict.fromkeys([*grains(machine), *more, Schedule(tiles[-1], 7, 3)]))
    names = {(kind, i): f"{kind}{i}" for kind in _SHAPES for i in range(len(schedules))}
    kernels = {name: gemm(_SHAPES[kind], schedules[i]) for (kind, i), name in names.items()}
    rng = np.random.default_rng(0)
    x, w, b, gate = (integers(rng, shape) for shape in ((65, K), (K, N), (N,), (65, N)))
    z = x.astype(np.int64) @ w.astype(np.int64)
    want = {"linear": z, "relu": np.maximum(z + b, 0), "gated": (z + b) * gate}
    with compile_kernels(kernels, threads=2) as program:
        for (kind, i), name in names.items():
            more = {"linear": [], "relu": [b], "gated": [b, gate]}[kind]
            packed = pack_weight(w, schedules[i].tile)
            for m in ROWS:
                given = [a[:m] if a is gate else a for a in more]
                (got,) = program.call(name, [x[:m], packed, *given])
                exact = want[kind][:m].astype(np.float32)
                assert got.tobytes() == exact.tobytes(), (kind, schedules[i], m)
