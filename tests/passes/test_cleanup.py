"""cse and dce: what is one value, what is not, and what nobody reads."""

from __future__ import annotations

from typing import Any

import pytest

from tfgraph import ops
from tfgraph.ir import Graph
from tfgraph.ir.mask import causal, padding
from tfgraph.ops import verify
from tfgraph.passes import PASSES


def run(name: str, graph: Graph) -> tuple[Graph, dict[str, int]]:
    result = PASSES[name]().run(graph)
    verify(result.graph)
    return result.graph, result.applied


def pair(make: Any) -> Graph:
    """A graph whose outputs a and b are the two results of `make(g, x, y)`."""
    with ops.graph("g") as g:
        a, b = make(g, g.input("x", "f32", 2, 4, 4), g.input("y", "f32", 2, 4, 4))
        g.output("a", a)
        g.output("b", b)
    return g.build()


SAME: dict[str, Any] = {
    "one operand": lambda g, x, y: (ops.exp(x), ops.exp(x)),
    "a constant": lambda g, x, y: (x * 2, x * 2),
    "operands of a commutative op in either order": lambda g, x, y: (x + y, y + x),
    "a constant on either side": lambda g, x, y: (x * 2, 2 * x),
    "attributes": lambda g, x, y: (ops.softmax(x, axis=1), ops.softmax(x, axis=1)),
    "masks": lambda g, x, y: (ops.mask(x, causal()), ops.mask(x, causal())),
    "no operands": lambda g, x, y: (ops.iota(length=3), ops.iota(length=3)),
    "several results": lambda g, x, y: tuple(ops.topk(x, k=2)[1] for _ in range(2)),
    "equal operands": lambda g, x, y: (ops.exp(ops.tanh(x)), ops.exp(ops.tanh(x))),
}

DIFFERENT: dict[str, Any] = {
    "other operands": lambda g, x, y: (ops.exp(x), ops.exp(y)),
    "another op": lambda g, x, y: (ops.exp(x), ops.tanh(x)),
    "another constant": lambda g, x, y: (x * 2, x * 3),
    "the order of operands": lambda g, x, y: (x - y, y - x),
    "another attribute": lambda g, x, y: (ops.softmax(x, axis=1), ops.softmax(x, axis=2)),
    "another mask": lambda g, x, y: (ops.mask(x, causal()), ops.mask(x, causal(1))),
    "another tensor in the mask": lambda g, x, y: tuple(
        ops.mask(x, padding(g.input(name, "i64", 2))) for name in ("m", "n")
    ),
    "no operands, another length": lambda g, x, y: (ops.iota(length=3), ops.iota(length=4)),
}


@pytest.mark.parametrize("make", SAME.values(), ids=SAME)
def test_equal_nodes_become_one(make: Any) -> None:
    graph = pair(make)
    merged, applied = run("cse", graph)
    assert applied == {"merged": len(graph.nodes) // 2}
    assert len(merged.nodes) == len(graph.nodes) // 2
    a, b = merged.outputs
    assert (a.name, b.name) == ("a", "b")
    assert a.value == b.value == graph.outputs[0].value


@pytest.mark.parametrize("make", DIFFERENT.values(), ids=DIFFERENT)
def test_different_nodes_stay(make: Any) -> None:
    graph = pair(make)
    result = PASSES["cse"]().run(graph)
    assert result.graph is graph
    assert result.applied == {}


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [(None, None, "0"), ("a", None, "a"), (None, "b", "b"), ("a", "b", "a")],
)
def test_the_name_that_says_more_stays(first: str | None, second: str | None, kept: str) -> None:
    """The label, rather than a number; of two, the first."""
    with ops.graph("g") as g:
        x = g.input("x", "f32", 2, 4)
        made = [ops.topk(x, k=2) for _ in range(2)]
        for (values, _), label in zip(made, (first, second), strict=True):
            if label is not None:
                g.label(values, label)
        g.output("y", ops.exp(made[0][0]) + made[1][0])
        g.output("i", made[1][1])
    merged, applied = run("cse", g.build())
    assert applied == {"merged": 1}
    assert [v.name for v in merged.nodes[0].outputs] == [kept, "1"]
    assert [i.name for i in merged.nodes[1].inputs] == [kept]
    assert merged.outputs[1].value.name == "1"


def test_readers_of_the_later_node_read_the_first() -> None:
    with ops.graph("g") as g:
        x, keep = g.input("x", "f32", 2, 4, 4), g.input("keep", "i64", 2)
        lengths = [ops.add(keep, 1) for _ in range(2)]
        g.output("a", ops.mask(x, padding(lengths[0])))
        g.output("b", ops.mask(x, padding(lengths[1])))
    merged, applied = run("cse", g.build())
    assert applied == {"merged": 2}
    assert [n.op for n in merged.nodes] == ["add", "mask"]


def test_dead_nodes_and_parameters_go() -> None:
    with ops.graph("g") as g:
        x = g.input("x", "f32", 2, 4)
        g.input("unread", "f32", 2)
        ops.exp(ops.add(x, g.param("dead", "f32", 4)))
        g.output("y", ops.add(x, g.param("live", "f32", 4)))
        ops.tanh(x)
    graph, applied = run("dce", g.build())
    assert applied == {"removed": 3}
    assert [n.op for n in graph.nodes] == ["add"]
    assert [p.value.name for p in graph.params] == ["live"]
    assert [i.value.name for i in graph.inputs] == ["x", "unread"]  # inputs are the caller's


def test_a_node_of_which_one_result_is_read_stays() -> None:
    with ops.graph("g") as g:
        values, _ = ops.topk(g.input("x", "f32", 2, 4), k=1)  # type: ignore[arg-type]
        g.output("y", values)
    graph = g.build()
    result = PASSES["dce"]().run(graph)
    assert result.graph is graph
    assert result.applied == {}


def test_unread_parameters_alone_go_too() -> None:
    with ops.graph("g") as g:
        g.param("dead", "f32", 4)
        g.output("y", g.input("x", "f32", 4))
    graph, applied = run("dce", g.build())
    assert graph.params == ()
    assert applied == {}
