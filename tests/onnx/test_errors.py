"""What is wrong with an ONNX file is said in an error that names the node or tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from helpers.onnx_files import export_path, node, save
from onnx import TensorProto, numpy_helper

from tfgraph.errors import TfgraphError
from tfgraph.onnx import import_onnx

X = {"x": ("f32", ["n", 4])}


def error(path: Path) -> str:
    with pytest.raises(TfgraphError) as caught:
        import_onnx(path)
    assert caught.value.exit_code == 2
    assert str(path) in str(caught.value)
    return str(caught.value)


def changed(tmp_path: Path, change: Any) -> Path:
    """A model of one Relu that something is done to."""
    model = onnx.load(str(save(tmp_path / "m.onnx", [node("Relu", "x", "y")], X, ["y"])))
    change(model)
    onnx.save(model, str(tmp_path / "m.onnx"))
    return tmp_path / "m.onnx"


def test_truncated(tmp_path: Path) -> None:
    data = export_path("bert.legacy_static").read_bytes()
    path = tmp_path / "m.onnx"
    for length in (1, 100, 5000, len(data) - 1):
        path.write_bytes(data[:length])
        assert "truncated or damaged" in error(path)
    path.write_bytes(b"")
    assert "empty" in error(path)
    path.write_text("graph g() {}")
    assert "no ONNX model" in error(path)


@pytest.mark.parametrize("name", ["x", "n_y", "Relu", "sizes", "note", "w"])
def test_a_name_that_is_no_text(tmp_path: Path, name: str) -> None:
    """Of a value, a node, an operator, a size, a key of external data, an attribute's tensor."""
    nodes = [node("Relu", "x", "y"), node("Constant", "", "c", value=numpy_helper.from_array(
        np.zeros(3, np.float32), "w"))]  # fmt: skip
    path = save(tmp_path / "m.onnx", nodes, {"x": ("f32", ["sizes"])}, ["y", "c"])
    model = onnx.load(str(path))
    model.graph.initializer.add(name="e").external_data.add(key="note", value="")
    data = model.SerializeToString()
    assert name.encode() in data
    path.write_bytes(data.replace(name.encode(), b"\xff" * len(name)))
    assert "is not text in UTF-8: b'\\xff" in error(path)


def test_every_unsupported_operator(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "a"), node("NonZero", "a", "b"), node("Mystery", "b", "y")]
    nodes[2].domain = "my.domain"
    said = error(save(tmp_path / "m.onnx", nodes, X, ["y"]))
    assert "node 'n_b': the operator NonZero is not supported" in said
    assert "node 'n_y': the operator my.domain.Mystery is not supported" in said
    assert "Relu" not in said
    many = [node("NonZero", f"v{i}", f"v{i + 1}") for i in range(100)]
    said = error(save(tmp_path / "m.onnx", many, {"v0": ("f32", ["n"])}, ["v100"]))
    assert said.count("NonZero is not supported") == 100


def test_cycle(tmp_path: Path) -> None:
    nodes = [node("Add", "x b", "a"), node("Neg", "a", "b")]
    said = error(save(tmp_path / "m.onnx", nodes, X, ["b"]))
    assert "nodes form a cycle, or wait for one: Add 'n_a', Neg 'n_b'" in said


def test_missing_value(tmp_path: Path) -> None:
    said = error(save(tmp_path / "m.onnx", [node("Add", "x w", "y")], X, ["y"]))
    assert "Add 'n_y' reads 'w', which nothing makes" in said


def test_wrong_types(tmp_path: Path) -> None:
    stored = {"w": np.ones((4, 4), np.int64)}
    said = error(save(tmp_path / "m.onnx", [node("MatMul", "x w", "y")], X, ["y"], stored))
    assert "MatMul 'n_y'" in said
    assert "f32" in said


def test_types_the_ir_does_not_have(tmp_path: Path) -> None:
    def strings(model: onnx.ModelProto) -> None:
        model.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING

    assert "the input 'x' is of type string" in error(changed(tmp_path, strings))


def test_absurd_sizes(tmp_path: Path) -> None:
    def input_size(model: onnx.ModelProto) -> None:
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2**62

    assert "a size above" in error(changed(tmp_path, input_size))

    def initializer(model: onnx.ModelProto) -> None:
        tensor = numpy_helper.from_array(np.zeros(4, np.float32), "w")
        tensor.dims[0] = 2**40
        model.graph.initializer.append(tensor)

    said = error(changed(tmp_path, initializer))
    assert "the initialiser 'w' has 16 bytes, expected 4398046511104" in said


def test_more_elements_than_kernels_count(tmp_path: Path) -> None:
    repeats = {"r": np.array([2**30, 2**30])}
    path = save(
        tmp_path / "m.onnx", [node("Tile", "x r", "y")], {"x": ("f32", [1, 1])}, ["y"], repeats
    )
    assert "Tile 'n_y': broadcast_to: the result has more than" in error(path)


def test_sizes_that_nodes_would_be_made_for(tmp_path: Path) -> None:
    """A kernel, a number of results, a depth: none is counted up to."""
    path, x = tmp_path / "m.onnx", {"x": ("f32", [1, 1, 3])}
    wide = {**x, "w": ("f32", [1, 1, 2**31])}
    said = error(save(path, [node("ConvTranspose", "x w", "y")], wide, ["y"]))
    assert "ConvTranspose 'n_y'" in said
    assert "it would take too many nodes" in said
    said = error(save(path, [node("Split", "x", "y z", num_outputs=2**40)], x, ["y"]))
    assert "num_outputs is 1099511627776, and it has 2 results" in said
    inputs = {"i": np.array(1), "d": np.array(2**40), "v": np.array([0.0, 1.0], np.float32)}
    path = save(path, [node("OneHot", "i d v", "y")], x, ["y"], inputs)
    (output,) = import_onnx(path)[0].outputs
    assert str(output.value.type) == "f32[1099511627776]"


def test_attributes(tmp_path: Path) -> None:
    def wrong(model: onnx.ModelProto) -> None:
        model.graph.node[0].op_type = "Softmax"
        model.graph.node[0].attribute.append(onnx.helper.make_attribute("axis", "last"))

    assert "the attribute 'axis' is of another type" in error(changed(tmp_path, wrong))


@pytest.mark.parametrize(
    ("location", "says"),
    [
        ("../secret.bin", "outside of the model's folder"),
        ("/etc/passwd", "outside of the model's folder"),
        ("a/../../b", "outside of the model's folder"),
        ("", "outside of the model's folder"),
        ("absent.bin", "there is no such file"),
        ("link.bin", "a link out of the model's folder"),
        ("short.bin", "which has 3"),
    ],
)
def test_external_data(tmp_path: Path, location: str, says: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "short.bin").write_bytes(b"abc")

    def external(model: onnx.ModelProto) -> None:
        tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4])
        tensor.data_location = TensorProto.EXTERNAL
        entry = tensor.external_data.add()
        entry.key, entry.value = "location", location
        model.graph.initializer.append(tensor)

    said = error(changed(folder, external))
    assert "the initialiser 'w' is" in said
    assert says in said


def test_not_a_tensor(tmp_path: Path) -> None:
    def sequence(model: onnx.ModelProto) -> None:
        kind = onnx.helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [2])
        model.graph.input[0].CopyFrom(kind)

    assert "the input 'x' is no tensor" in error(changed(tmp_path, sequence))


def test_operator_set(tmp_path: Path) -> None:
    def newer(model: onnx.ModelProto) -> None:
        model.opset_import[0].version = 999

    assert "version 999 of ONNX's operators" in error(changed(tmp_path, newer))
