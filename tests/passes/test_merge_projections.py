"""merge-projections: which linears become one, and what the windows of its result hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from helpers.reference import run_graph
from helpers.tolerance import assert_close

from tfgraph import ops
from tfgraph.ir import Graph
from tfgraph.ir.mask import padding
from tfgraph.passes import PASSES, run_pipeline
from tfgraph.text import print_node


@dataclass(frozen=True)
class Projections:
    """attention(linear(x), linear(y), linear(z)), two heads of 4, one key head."""

    inputs: str = "xxx"
    weights: tuple[str, ...] = ("wq", "wk", "wv")
    biases: str = "qkv"
    masked: bool = False
    read: str = ""
    linears: str = "qkv"

    def graph(self) -> Graph:
        with ops.graph("g") as g:
            sources = {n: g.input(n, "f32", 2, 3, 8) for n in dict.fromkeys(self.inputs)}
            made: dict[str, Any] = {}
            for name, source, weight in zip("qkv", self.inputs, self.weights, strict=True):
                width = 8 if weight == "wq" else 4
                w = g.param(weight, "f32", 8, width)
                b = g.param(f"b{name}", "f32", width) if name in self.biases else None
                x = sources[source]
                y = ops.linear(x, w, b) if name in self.linears else ops.matmul(x, w)
                made[name] = g.label(y, name)
            m = padding(g.input("m", "i64", 2)) if self.masked else None
            y = ops.attention(made["q"], made["k"], made["v"], m, heads=2, kv_heads=1, scale=0.5)
            g.output("y", y)
            for name in self.read:
                g.output(name, ops.tanh(made[name]))
        return g.build()


def merged(case: Projections) -> tuple[dict[str, int], list[str], Graph]:
    """What was applied and declined; the merged graph, which is checked to mean the same."""
    graph = case.graph()
    result, (report,) = run_pipeline(graph, [PASSES["merge-projections"]()])
    rng = np.random.default_rng(0)
    values = [i.value for i in graph.inputs] + [p.value for p in graph.params]
    arrays: dict[str, Any] = {
        v.name: np.array([3, 2])
        if v.name == "m"
        else rng.standard_normal(tuple(map(int, v.type.shape))).astype(np.float32)
        for v in values
    }
    want, got = run_graph(graph, arrays), run_graph(result, arrays)
    for name in [o.name for o in graph.outputs] + list("qkv"):
        if name in got:
            assert_close(got[name], want[name], length=2, name=name)
    return report.applied, [d.reason for d in report.declined], result


def ops_of(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


QKV = Projections()


def test_q_k_and_v_of_one_tensor() -> None:
    applied, declined, graph = merged(QKV)
    assert applied == {"merge-qkv": 1}
    assert declined == []
    assert [print_node(n).partition(" : ")[0] for n in graph.nodes] == [
        "%3~3 = concat(%wq, %wk, %wv) {axis=1}",
        "%3~4 = concat(%bq, %bk, %bv) {axis=0}",
        "%3~5 = linear(%x, %3~3, %3~4)",
        "%q = slice(%3~5) {axis=-1, start=0, stop=8}",
        "%k = slice(%3~5) {axis=-1, start=8, stop=12}",
        "%v = slice(%3~5) {axis=-1, start=12, stop=16}",
        "%3 = attention(%q, %k, %v) {heads=2, kv_heads=1, scale=0.5}",
    ]


def test_without_biases_none_is_made() -> None:
    applied, _, graph = merged(replace(QKV, biases=""))
    assert applied == {"merge-qkv": 1}
    assert ops_of(graph) == ["concat", "linear", "slice", "slice", "slice", "attention"]


@pytest.mark.parametrize("biases", ["q", "k", "v", "qv", "kv"])
def test_a_missing_bias_is_zero(biases: str) -> None:
    applied, _, graph = merged(replace(QKV, biases=biases))
    assert applied == {"merge-qkv": 1}
    assert ops_of(graph).count("full") == 3 - len(biases)


def test_under_a_mask() -> None:
    for case in (QKV, replace(QKV, inputs="xyy")):
        (rule,), declined, graph = merged(replace(case, masked=True))
        assert rule == ("merge-qkv" if case == QKV else "merge-kv")
        assert len(declined) == 0
        assert "padding(%m)" in print_node(graph.nodes[-1])


def test_k_and_v_of_a_memory() -> None:
    applied, declined, graph = merged(replace(QKV, inputs="xyy"))
    assert applied == {"merge-kv": 1}
    assert declined == []
    assert ops_of(graph).count("linear") == 2
    query = next(n for n in graph.nodes if n.outputs[0].name == "q")
    assert query.op == "linear"


@pytest.mark.parametrize("biases", ["", "k", "v"])
def test_k_and_v_with_other_biases(biases: str) -> None:
    applied, _, _ = merged(replace(QKV, inputs="xyy", biases=biases))
    assert applied == {"merge-kv": 1}


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ("xxy", "the input %y is not the input %x, which x is elsewhere"),
        ("xyx", "the input %y is not the input %x, which x is elsewhere"),
        ("xyz", "the input %y is not the input %x, which x is elsewhere"),
    ],
)
def test_different_inputs(inputs: str, reason: str) -> None:
    applied, declined, _ = merged(replace(QKV, inputs=inputs))
    assert applied == {}
    assert declined == [reason]


@pytest.mark.parametrize(
    ("linears", "applied", "reasons"),
    [
        ("kv", {"merge-kv": 1}, []),
        ("qk", {}, ["V is not a linear, found %v = matmul; linear(x, w) for x @ w merges"]),
        ("qv", {}, ["K is the product of a tensor and a weight; linear(x, w) for x @ w merges"]),
        ("", {}, ["K and V are products of a tensor and a weight; linear(x, w) for x @ w merges"]),
    ],
)
def test_not_linears(linears: str, applied: dict[str, int], reasons: list[str]) -> None:
    assert merged(replace(QKV, linears=linears, biases=""))[:2] == (applied, reasons)


@pytest.mark.parametrize(
    ("q", "k", "v", "rules", "declined"),
    [
        (0, 1, 1, {}, 2),
        (0, 0, 0, {}, 2),
        (0, 0, 1, {"merge-kv": 1}, 0),  # K, which is Q, and V
        (0, 1, 0, {"merge-kv": 1}, 0),
    ],
)
def test_the_same_linear_twice_is_not_computed_twice(
    q: int, k: int, v: int, rules: dict[str, int], declined: int
) -> None:
    """As cse leaves it where weights are tied."""
    with ops.graph("g") as g:
        x = g.input("x", "f32", 2, 3, 8)
        two = [ops.linear(x, g.param(f"w{i}", "f32", 8, 8)) for i in range(1 + max(q, k, v))]
        g.output("y", ops.attention(two[q], two[k], two[v], heads=2, kv_heads=2, scale=1))
    result, (report,) = run_pipeline(g.build(), [PASSES["merge-projections"]()])
    assert report.applied == rules
    assert [d.reason for d in report.declined] == (
        ["two of Q, K and V are the same linear"] * declined
    )
    assert ops_of(result).count("linear") == (2 if (q, k, v) == (0, 1, 1) else 1)


@pytest.mark.parametrize("read", ["q", "k", "v", "qkv"])
def test_other_readers_read_the_windows(read: str) -> None:
    applied, _, graph = merged(replace(QKV, read=read))
    assert applied == {"merge-qkv": 1}
    assert ops_of(graph).count("linear") == 1
    assert [n.inputs[0].name for n in graph.nodes if n.op == "tanh"] == list(read)


def test_a_projection_that_another_needs_is_a_cycle() -> None:
    """The weight of K is computed from Q: one linear would need its own result."""
    with ops.graph("g") as g:
        x = g.input("x", "f32", 1, 8, 8)
        q = g.label(ops.linear(x, g.param("wq", "f32", 8, 8)), "q")
        w = g.label(ops.reshape(q, shape=(8, 8)), "w")
        k = g.label(ops.linear(x, w), "k")
        v = ops.linear(x, g.param("wv", "f32", 8, 8))
        g.output("y", ops.attention(q, k, v, heads=2, kv_heads=2, scale=1))
    result, (report,) = run_pipeline(g.build(), [PASSES["merge-projections"]()])
    assert report.applied == {"merge-kv": 1}
    assert [n.outputs[0].name for n in result.nodes] == [
        "q",
        "w",
        "4~2",
        "4~3",
        "k",
        "3",
        "4",
    ]


def test_a_cycle_is_refused_with_its_path() -> None:
    """The weight of V is computed from K, so that not even these two can be merged."""
    with ops.graph("g") as g:
        x = g.input("x", "f32", 1, 8, 8)
        q = ops.linear(x, g.param("wq", "f32", 8, 8))
        k = g.label(ops.linear(x, g.param("wk", "f32", 8, 8)), "k")
        w = g.label(ops.reshape(k, shape=(8, 8)), "w")
        v = g.label(ops.linear(x, w), "v")
        g.output("y", g.label(ops.attention(q, k, v, heads=2, kv_heads=2, scale=1), "y"))
    graph = g.build()
    result, (report,) = run_pipeline(graph, [PASSES["merge-projections"]()])
    assert result is graph
    assert [d.reason for d in report.declined] == [
        "the fused op would need its own result: %w -> %y~3 -> %y~4 -> %k -> %w",
        "the fused op would need its own result: %w -> %y~2 -> %y~3 -> %k -> %w",
    ]


def test_a_product_of_two_inputs_is_no_near_miss() -> None:
    with ops.graph("g") as g:
        x, w = g.input("x", "f32", 2, 3, 8), g.input("w", "f32", 8, 8)
        g.output("y", ops.attention(x @ w, x @ w, x @ w, heads=2, kv_heads=2, scale=1))
    _, (report,) = run_pipeline(g.build(), [PASSES["merge-projections"]()])
    assert report.declined == ()


@pytest.mark.parametrize(("axis", "applied"), [(-1, 1), (2, 1), (1, 0), (0, 0)])
@pytest.mark.parametrize("biases", ["", "k", "kv"])
def test_linears_side_by_side_are_one(axis: int, applied: int, biases: str) -> None:
    rng = np.random.default_rng(0)
    with ops.graph("g") as g:
        x = g.input("x", "f32", 2, 3, 8)
        made = [
            ops.linear(
                x,
                g.param(f"w{n}", "f32", 8, 4),
                g.param(f"b{n}", "f32", 4) if n in biases else None,
            )
            for n in "kv"
        ]
        g.output("y", ops.concat(*made, axis=axis))
    graph = g.build()
    result, (report,) = run_pipeline(graph, [PASSES["merge-projections"]()])
    assert report.applied.get("merge-joined", 0) == applied
    assert ops_of(result).count("linear") == 2 - applied
    values = [i.value for i in graph.inputs] + [p.value for p in graph.params]
    arrays = {
        v.name: rng.standard_normal(tuple(map(int, v.type.shape))).astype(np.float32)
        for v in values
    }
    want, got = run_graph(graph, arrays), run_graph(result, arrays)
    assert_close(got["y"], want["y"], length=8, name="y")
