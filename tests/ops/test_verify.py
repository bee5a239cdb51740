"""The verifier of types names the node that is wrong and its place."""

from __future__ import annotations

import pytest

from tfgraph.errors import Location, TfgraphError
from tfgraph.ir import Dim, Fill, Graph, Input, Node, Output, Value, rsqrt, tensor
from tfgraph.ir.mask import causal
from tfgraph.ops import add_layer_norm, attention, graph, verify


def _graph_of(node: Node, *inputs: Value) -> Graph:
    outputs = tuple(Output(v.name, v) for v in node.outputs)
    return Graph("g", tuple(Input(v, Fill("ones")) for v in inputs), (), (node,), outputs)


def test_verify_names_the_node_and_its_place() -> None:
    x = Value("x", tensor("f32", "n", 4))
    place = Location("model.py", 3, 5)
    wrong = Node("softmax", (x,), (Value("y", tensor("f32", "n", 5)),), {"axis": -1}, place)
    with pytest.raises(TfgraphError) as caught:
        verify(_graph_of(wrong, x))
    assert caught.value.message == "%y = softmax: the result is f32[n,4], not f32[n,5]"
    assert caught.value.location == place
    unknown = Node("sofmax", (x,), (Value("y", x.type),), {}, place)
    with pytest.raises(TfgraphError, match="unknown op 'sofmax'") as caught:
        verify(_graph_of(unknown, x))
    assert caught.value.hint == "did you mean 'softmax'?"
    refused = Node("matmul", (x, x), (Value("y", x.type),), {}, place)
    with pytest.raises(TfgraphError, match="the number of rows of") as caught:
        verify(_graph_of(refused, x))
    assert caught.value.location == place


def test_verify_takes_what_the_dsl_builds() -> None:
    with graph("g") as g:
        x = g.input("x", "f32", "b", "s", 8)
        a = attention(x, x, x, causal(), heads=2, kv_heads=2, scale=rsqrt(4))
        total, normed = add_layer_norm(a, x, keep_sum=True)
        g.output("y", total + normed)
    built = g.build()
    verify(built)
    assert all(isinstance(d, Dim) for v in built.values() for d in v.type.shape)
