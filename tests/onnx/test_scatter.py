"""Writing by index: a slice that is written whole is what is written; else few places are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.onnx_files import node, save
from onnx.reference import ReferenceEvaluator

import tfgraph
from tfgraph.errors import TfgraphError
from tfgraph.onnx import import_onnx

RNG = np.random.default_rng(0)


def whole(tmp_path: Path, reduction: str, first: str = "zero") -> Path:
    """data[:, :] = updates, as exporters write it: indices of all places, side by side."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "rows"),
        node("Gather", "shape one", "columns"),
        node("Range", f"{first} rows one", "i"),
        node("Range", "zero columns one", "j"),
        node("Unsqueeze", "i ones", "i_column"),
        node("Expand", "i_column shape", "i_wide"),
        node("Expand", "j shape", "j_wide"),
        node("Unsqueeze", "i_wide last", "i_last"),
        node("Unsqueeze", "j_wide last", "j_last"),
        node("Concat", "i_last j_last", "places", axis=-1),
        node("ScatterND", "data places x", "y", reduction=reduction),
    ]
    stored = {
        "zero": np.array(0),
        "one": np.array(1),
        "ones": np.array([1]),
        "last": np.array([-1]),
    }
    inputs = {"x": ("f32", ["n", "m"]), "data": ("f32", ["n", "m"])}
    return save(tmp_path / "m.onnx", nodes, inputs, ["y"], stored)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_a_whole_slice(tmp_path: Path, reduction: str) -> None:
    file = whole(tmp_path, reduction)
    graph, _ = import_onnx(file)
    assert "equal" not in {n.op for n in graph.nodes}
    x, data = RNG.standard_normal((2, 5, 3)).astype(np.float32)
    (want,) = ReferenceEvaluator(str(file)).run(None, {"x": x, "data": data})
    got = tfgraph.compile(file, target="numpy")(x=x, data=data)["y"]
    np.testing.assert_array_equal(got, want)


def test_too_many_places(tmp_path: Path) -> None:
    nodes = [node("ScatterND", "data places x", "y")]
    inputs = {"x": ("f32", ["k"]), "data": ("f32", ["n"]), "places": ("i64", ["k", 1])}
    file = save(tmp_path / "m.onnx", nodes, inputs, ["y"])
    with pytest.raises(TfgraphError, match="it writes k places, and 64 are the most"):
        import_onnx(file)


def test_few_places(tmp_path: Path) -> None:
    """Positions count from either end, and a later update wins."""
    nodes = [node("ScatterND", "data places x", "y")]
    inputs = {"x": ("f32", [3, 2]), "data": ("f32", ["n", 4, 2]), "places": ("i64", [3, 2])}
    file = save(tmp_path / "m.onnx", nodes, inputs, ["y"])
    given: dict[str, Any] = {
        "x": RNG.standard_normal((3, 2)).astype(np.float32),
        "data": RNG.standard_normal((5, 4, 2)).astype(np.float32),
        "places": np.array([[1, -1], [-1, 0], [1, 3]]),
    }
    want = given["data"].copy()
    for (i, j), row in zip(given["places"], given["x"], strict=True):
        want[i, j] = row
    got = tfgraph.compile(file, target="numpy")(**given)["y"]
    np.testing.assert_array_equal(got, want)
