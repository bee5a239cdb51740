"""Sizes of an ONNX file: symbols, those that must be equal, arithmetic on shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.onnx_files import node, save

import tfgraph
from tfgraph.errors import TfgraphError
from tfgraph.ir import Graph
from tfgraph.onnx import import_onnx

I64 = np.int64


def graph_of(tmp_path: Path, *args: Any, **kwargs: Any) -> Graph:
    return import_onnx(save(tmp_path / "m.onnx", *args, **kwargs))[0]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("batch", "batch"),
        ("past + seq", "past + seq"),
        ("2*seq - 1", "2*seq - 1"),
        ("floor(seq//2)", "seq//2"),
        ("min(a, 4)", "min(4, a)"),
        ("batch size", "batch_size"),
        ("3d", "n3d"),
        ("", "x_dim_1"),
        ("min", "size_1"),
        ("9**9**9", "n9_9_9"),
    ],
)
def test_names(tmp_path: Path, written: str, shown: str) -> None:
    inputs = {"x": ("f32", ["n", written])}
    graph = graph_of(tmp_path, [node("Relu", "x", "y")], inputs, ["y"])
    assert str(graph.outputs[0].value.type) == f"f32[n,{shown}]"


def test_two_names_of_one_size(tmp_path: Path) -> None:
    """What must be equal is so in the inputs' types, and so checked on every call."""
    inputs = {"x": ("f32", ["batch", "seq"]), "y": ("f32", ["batch", "keys"])}
    path = save(tmp_path / "m.onnx", [node("Add", "x y", "z")], inputs, ["z"])
    graph, weights = import_onnx(path)
    assert [str(i.value.type) for i in graph.inputs] == ["f32[batch,seq]"] * 2
    run = tfgraph.compile(graph, weights=weights, target="numpy")
    with pytest.raises(TfgraphError, match="seq"):
        run(x=np.zeros((2, 3), np.float32), y=np.zeros((2, 4), np.float32))


def test_a_size_that_is_a_sum(tmp_path: Path) -> None:
    inputs = {
        "past": ("f32", ["n", "past"]),
        "new": ("f32", ["n", "seq"]),
        "mask": ("f32", ["n", "total"]),
    }
    nodes = [node("Concat", "past new", "all", axis=1), node("Mul", "all mask", "y")]
    graph = graph_of(tmp_path, nodes, inputs, ["y"])
    assert str(graph.inputs[2].value.type) == "f32[n,past + seq]"


def test_a_number_for_a_symbol(tmp_path: Path) -> None:
    nodes = [node("Reshape", "x shape", "y")]
    shape = {"shape": np.array([2, 200, 30], I64)}
    graph = graph_of(tmp_path, nodes, {"x": ("f32", ["n", 4, 1000])}, ["y"], shape)
    assert str(graph.inputs[0].value.type) == "f32[3,4,1000]"


def test_two_names_where_the_rest_is_asked_for(tmp_path: Path) -> None:
    """A mask [rows, keys] as [batch, -1], as one exports it whose sizes have names of their own."""
    nodes = [
        node("Shape", "x", "batch", end=1), node("Concat", "batch rest", "shape", axis=0),
        node("Reshape", "mask shape", "y"), node("Add", "x y", "z"),
    ]  # fmt: skip
    inputs = {"x": ("f32", ["batch", "seq"]), "mask": ("f32", ["rows", "keys"])}
    weights = {"rest": np.array([-1], I64)}
    graph = graph_of(tmp_path, nodes, inputs, ["z"], weights)
    assert [str(i.value.type) for i in graph.inputs] == ["f32[batch,seq]"] * 2
    inputs["mask"] = ("f32", ["rows + keys", "keys"])
    with pytest.raises(TfgraphError, match=r"does not divide into \[batch\]"):
        graph_of(tmp_path, nodes, inputs, ["z"], weights)


def test_sizes_that_cannot_be_equal(tmp_path: Path) -> None:
    inputs = {"x": ("f32", [2, 3]), "y": ("f32", [2, 4])}
    with pytest.raises(TfgraphError, match=r"Add 'n_z': shapes do not broadcast: 3 against 4"):
        graph_of(tmp_path, [node("Add", "x y", "z")], inputs, ["z"])


def test_shape_arithmetic(tmp_path: Path) -> None:
    """[b, s, 12] -> [b, 3, s * 4], as exporters write it."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "b"),
        node("Gather", "shape one", "s"),
        node("Mul", "s four", "wide"),
        node("Unsqueeze", "b axis", "b1"),
        node("Unsqueeze", "wide axis", "w1"),
        node("Concat", "b1 free w1", "target", axis=0),
        node("Reshape", "x target", "y"),
    ]
    numbers = {"zero": I64(0), "one": I64(1), "four": I64(4)}
    stored = {name: np.array(value) for name, value in numbers.items()}
    stored |= {"axis": np.array([0], I64), "free": np.array([-1], I64)}
    graph = graph_of(tmp_path, nodes, {"x": ("f32", ["b", "s", 12])}, ["y"], stored)
    assert [n.op for n in graph.nodes] == ["reshape"]
    assert str(graph.outputs[0].value.type) == "f32[b,3,4*s]"


def test_a_minimum_limits_a_symbol(tmp_path: Path) -> None:
    """table[:, :min(seq, 16)] + x[n, seq] needs seq <= 16."""
    nodes = [
        node("Shape", "x", "seq", start=1, end=2),
        node("Min", "seq most", "end"),
        node("Slice", "table start end axis", "part"),
        node("Add", "x part", "y"),
    ]
    stored = {
        "most": np.array([16], I64),
        "start": np.array([0], I64),
        "axis": np.array([1], I64),
        "table": np.arange(48, dtype=np.float32).reshape(3, 16),
    }
    graph = graph_of(tmp_path, nodes, {"x": ("f32", [3, "seq"])}, ["y"], stored)
    assert (graph.symbols[0].name, graph.symbols[0].high) == ("seq", 16)


def test_sizes_as_numbers_of_the_graph(tmp_path: Path) -> None:
    """A size that meets a tensor becomes one."""
    nodes = [
        node("Shape", "x", "n", start=0, end=1),
        node("Cast", "n", "f", to=1),
        node("Div", "x f", "y"),
    ]
    path = save(tmp_path / "m.onnx", nodes, {"x": ("f32", ["n", 2])}, ["y"])
    graph, weights = import_onnx(path)
    run = tfgraph.compile(graph, weights=weights, target="numpy")
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    np.testing.assert_array_equal(run(x=x)["y"], x / 5)


def test_shapes_from_elements_are_refused(tmp_path: Path) -> None:
    inputs = {"x": ("f32", ["n", 2]), "shape": ("i64", [2])}
    path = save(tmp_path / "m.onnx", [node("Reshape", "x shape", "y")], inputs, ["y"])
    with pytest.raises(TfgraphError, match="the shape depends on the elements of tensors"):
        import_onnx(path)
    graph, _ = import_onnx(path, {"shape": np.array([2, -1], I64)})
    assert [i.value.name for i in graph.inputs] == ["x"]
    assert str(graph.outputs[0].value.type) == "f32[2,n]"
    with pytest.raises(TfgraphError, match=r"there is no input 'shap'\nhint: did you mean"):
        import_onnx(path, {"shap": np.array([2, -1], I64)})


def test_nodes_in_any_order(tmp_path: Path) -> None:
    nodes = [node("Neg", "a", "y"), node("Abs", "x", "a")]
    graph = graph_of(tmp_path, nodes, {"x": ("f32", [2])}, ["y"])
    assert [n.op for n in graph.nodes] == ["abs", "neg"]


def test_a_table_limits_what_has_positions(tmp_path: Path) -> None:
    """Rows of a table of 40, by whichever op: a length is at most 40."""
    line = [node("Shape", "x", "shape"), node("Gather", "shape one", "n"),
            node("Range", "zero n one", "at")]  # fmt: skip
    nodes = {
        "Gather": [node("Gather", "table at", "rows")],
        "GatherND": [node("Unsqueeze", "at last", "i"), node("GatherND", "table i", "rows")],
    }  # fmt: skip
    consts = {
        "table": np.zeros((40, 4), np.float32),
        **{name: np.array(i, I64) for i, name in enumerate(("zero", "one"))},
        "last": np.array([1], I64),
    }
    for op, lookup in nodes.items():
        made = [*line, *lookup, node("Add", "x rows", "y")]
        graph = graph_of(tmp_path, made, {"x": ("f32", ["batch", "seq", 4])}, ["y"], consts)
        assert graph.symbol("seq").high == 40, op
