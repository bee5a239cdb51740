"""Graphs: what they know about themselves, each structural rule broken once, the networkx view."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import pytest

from tfgraph.errors import Location, TfgraphError
from tfgraph.ir import (
    Constraint,
    Fill,
    Graph,
    Input,
    Node,
    Output,
    Param,
    Symbol,
    Value,
    as_dim,
    dims_of,
    exact,
    map_operand,
    tensor,
    verify_structure,
)
from tfgraph.ir.mask import causal, padding

row = tensor("f32", "batch", "seq", 8)
x, keep = Value("x", row), Value("keep", tensor("i64", "batch", "seq"))
weight = Value("w", tensor("f32", 8, 8))
a, b, top, index = (Value(n, row) for n in ("a", "b", "top", "index"))
PLACE = Location("model.py", 7, 5)

linear = Node("linear", (x, weight), (a,), location=Location("model.py", 3, 9))
pair = Node("add", (a, a), (b,), location=PLACE)
topk = Node("topk", (b,), (top, index), {"k": 8})
GRAPH = Graph(
    name="g",
    inputs=(Input(x, Fill("normal", exact(1))), Input(keep, Fill("prefix"))),
    params=(Param(weight, Fill("normal", exact(0.02))),),
    nodes=(linear, pair, topk),
    outputs=(Output("y", top), Output("again", a)),
    symbols=(Symbol("batch", 1, 64, 2), Symbol("past")),
    constraints=(Constraint(as_dim("past") + "seq", "<=", as_dim(512)),),
)


def test_the_example_is_right() -> None:
    verify_structure(GRAPH)


def test_users_and_producers() -> None:
    assert GRAPH.producer == {a: linear, b: pair, top: topk, index: topk}
    assert GRAPH.users == {x: (linear,), weight: (linear,), a: (pair,), b: (topk,)}
    assert GRAPH.output_values == {top, a}
    assert [v.name for v in GRAPH.values()] == ["x", "keep", "w", "a", "b", "top", "index"]
    assert linear.output == a
    with pytest.raises(ValueError, match="too many values"):
        _ = topk.output


def test_weight_values_are_what_is_known_without_inputs() -> None:
    packed, count = Value("packed", weight.type), Value("count", tensor("i64", 8))
    nodes = (
        Node("transpose", (weight,), (packed,), {"perm": (1, 0)}),
        Node("iota", (), (count,), {"length": as_dim(8)}),
        replace(linear, operands=(x, packed)),
    )
    graph = replace(GRAPH, nodes=nodes, outputs=(Output("y", a),))
    assert graph.weight_values == {weight, packed, count}
    assert graph.param_values == {weight}


def test_symbols_have_defaults() -> None:
    assert GRAPH.symbol("batch").default == 2
    assert GRAPH.symbol("past").default == 8
    assert GRAPH.symbol("unheard") == Symbol("unheard", 1, 65536)
    assert Symbol("s", 16, 32).default == 16
    assert Symbol("s", 1, 4).default == 4


def test_masks_hold_operands() -> None:
    masked = Node("mask", (x, padding(keep) & causal("past")), (a,))
    assert masked.inputs == (x, keep)
    other = Value("other", keep.type)
    moved = masked.map_values(lambda v: other if v == keep else v)
    assert moved.inputs == (x, other)
    assert list(dims_of(masked.operands[1])) == [as_dim("past")]
    assert list(dims_of((as_dim(1), ("seq", as_dim("seq")), 3))) == [as_dim(1), as_dim("seq")]
    assert map_operand(exact(2), lambda v: other) == exact(2)
    assert map_operand(None, lambda v: other) is None


def test_nodes_are_frozen_and_places_are_not_compared() -> None:
    assert pair == replace(pair, location=None)
    assert hash(pair) == hash(replace(pair, location=None))
    assert topk != replace(topk, attrs={"k": 7})
    with pytest.raises(TypeError):
        topk.attrs["k"] = 7  # type: ignore[index]
    assert str(Constraint(as_dim("past"), "<=", as_dim(512))) == "past <= 512"
    assert (str(Fill("ids", exact(1000))), str(Fill("prefix"))) == ("ids(1000)", "prefix()")


def test_reprs_are_short() -> None:
    assert repr(GRAPH) == "<graph g: 2 inputs, 3 nodes, 1 weight, 2 outputs>"
    assert repr(x) == "<value %x: f32[batch,seq,8]>"
    assert repr(row) == "TensorType(f32[batch,seq,8])"
    assert repr(exact(0.5)) == "Exact(0.5)"
    masked = Node("mask", (x, causal("past") & padding(keep), None, exact(2)), (a, b))
    assert repr(masked) == (
        "<node %a, %b = mask(%x, causal(offset=past) & padding(%keep), _, 2): "
        "f32[batch,seq,8], f32[batch,seq,8]>"
    )


def broken(message: str, **changes: object) -> object:
    return pytest.param(replace(GRAPH, **changes), message, id=message)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        broken("%x is defined twice", inputs=(*GRAPH.inputs, GRAPH.inputs[0])),
        broken("%x is defined twice", params=(Param(x, Fill("ones")),)),
        broken("%a is defined twice", nodes=(linear, pair, replace(pair, outputs=(a,)))),
        broken("%top is defined twice", nodes=(linear, pair, replace(topk, outputs=(top, top)))),
        broken("%w is defined twice", nodes=(replace(linear, outputs=(weight,)),)),
        broken("%a is used before it is defined", nodes=(pair, linear, topk)),
        broken("%b is used before it is defined", nodes=(linear, replace(pair, operands=(b, b)))),
        broken("%keep is used before it is defined", inputs=GRAPH.inputs[:1],
               nodes=(replace(linear, operands=(x, padding(keep))),)),
        broken("%w has another type where it is defined",
               params=(Param(Value("w", tensor("f16", 8, 8)), Fill("ones")),)),
        broken("topk: no input or declaration gives the symbol 'width'",
               nodes=(linear, pair, replace(topk, attrs={"k": as_dim("width") + "seq"}))),
        broken("add: no input or declaration gives the symbol 'before'",
               nodes=(linear, replace(pair, operands=(a, causal("before"))), topk)),
        broken("topk: no input or declaration gives the symbol 'deep'",
               nodes=(linear, pair, replace(topk, attrs={"k": (1, (as_dim("deep"),))}))),
        broken("output 'y' is %gone: not defined", outputs=(Output("y", Value("gone", row)),)),
        broken("output 'y' is %a: not defined",
               outputs=(Output("y", Value("a", tensor("f16", 1))),)),
        broken("graph g has no outputs", outputs=()),
        broken("two outputs are called 'y'", outputs=(Output("y", a), Output("y", b))),
        broken("constraint heads <= 8: no input gives the symbol 'heads'",
               constraints=(Constraint(as_dim("heads"), "<=", as_dim(8)),)),
        broken("constraint seq < 8: the relation is not == or <=",
               constraints=(Constraint(as_dim("seq"), "<", as_dim(8)),)),
        broken("symbol s: the lowest size is 0: sizes are at least 1",
               symbols=(*GRAPH.symbols, Symbol("s", 0, 9))),
        broken("symbol s: the example 9 is not from 1 to 8",
               symbols=(*GRAPH.symbols, Symbol("s", 1, 8, 9))),
        broken("symbol s: the lowest size, 5, is above the highest, 4",
               symbols=(*GRAPH.symbols, Symbol("s", 5, 4))),
        broken("symbol 'batch' is declared twice", symbols=(*GRAPH.symbols, Symbol("batch"))),
    ],
)  # fmt: skip
def test_each_rule_is_broken_once(graph: Graph, message: str) -> None:
    with pytest.raises(TfgraphError) as caught:
        verify_structure(graph)
    assert caught.value.message == message


def test_the_place_is_that_of_the_node() -> None:
    wrong = replace(pair, operands=(b, b))
    with pytest.raises(TfgraphError) as caught:
        verify_structure(replace(GRAPH, nodes=(linear, wrong, topk)))
    assert caught.value.location == PLACE


def test_networkx_view() -> None:
    view = GRAPH.to_networkx()
    assert isinstance(view, nx.MultiDiGraph)
    assert {n: d["kind"] for n, d in view.nodes(data=True)} == {
        "x": "input", "keep": "input", "w": "param", "a": "node", "b": "node", "top": "node",
        "output y": "output", "output again": "output",
    }  # fmt: skip
    assert sorted((u, v, d["value"].name) for u, v, d in view.edges(data=True)) == [
        ("a", "b", "a"),
        ("a", "b", "a"),
        ("a", "output again", "a"),
        ("b", "top", "b"),
        ("top", "output y", "top"),
        ("w", "a", "w"),
        ("x", "a", "x"),
    ]
    assert view.nodes["a"]["node"] is linear
    assert view.nodes["w"]["value"] == weight
    assert nx.is_directed_acyclic_graph(view)
    order = [n for n in nx.topological_sort(view) if view.nodes[n]["kind"] == "node"]
    assert order == ["a", "b", "top"]


def test_networkx_view_of_a_second_result_and_of_an_input_that_leaves() -> None:
    graph = replace(GRAPH, outputs=(Output("i", index), Output("x", x)))
    edges = graph.to_networkx().edges(data="value")
    assert ("top", "output i", index) in edges
    assert ("x", "output x", x) in edges
