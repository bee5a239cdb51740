"""What decoders of images are made of, beside ONNX Runtime and ONNX's reference: transposed
convolutions, norms over batches, and sizes that change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from helpers.onnx_files import node, save
from helpers.tolerance import assert_close
from onnx.reference import ReferenceEvaluator

import tfgraph
from tfgraph.errors import TfgraphError
from tfgraph.onnx import import_onnx

RNG = np.random.default_rng(0)
INPUTS = {"x": ("f32", [2, 4, 6, 5]), "ids": ("u8", [2, 1, 3])}
NODES = [
    node("ConvTranspose", "x w bias", "up", strides=[2, 3], pads=[1, 1, 1, 1], group=2),
    node("BatchNormalization", "up s b m v", "normed", epsilon=1e-3),
    node("Relu", "normed", "positive"),
    node("Resize", "positive _ _ larger", "wide", mode="linear"),
    node("Resize", "wide _ smaller _", "y", mode="cubic", cubic_coeff_a=-0.5),
    node("Resize", "ids _ times _", "repeated", mode="nearest"),
]
STORED = {
    "w": RNG.standard_normal((4, 3, 4, 2)).astype(np.float32),
    "bias": RNG.standard_normal(6).astype(np.float32),
    **{n: RNG.standard_normal(6).astype(np.float32) for n in "sbm"},
    "v": (RNG.random(6) + 0.5).astype(np.float32),
    "larger": np.array([2, 6, 17, 29]),
    "smaller": np.array([1, 1, 0.7, 0.5], np.float32),
    "times": np.array([1, 1, 2.5], np.float32),
}


def test_beside_two_oracles(tmp_path: Path) -> None:
    """Up to the Relu ONNX Runtime, whose sizes change in float32; from there on ONNX's reference,
    which has no groups of several channels."""
    given: dict[str, Any] = {
        "x": RNG.standard_normal((2, 4, 6, 5)).astype(np.float32),
        "ids": RNG.integers(0, 256, (2, 1, 3)).astype(np.uint8),
    }
    head = save(tmp_path / "head.onnx", NODES[:3], {"x": INPUTS["x"]}, ["positive"], STORED)
    (positive,) = onnxruntime.InferenceSession(str(head)).run(None, {"x": given["x"]})
    between = {"positive": ("f32", list(positive.shape)), "ids": INPUTS["ids"]}
    tail = save(tmp_path / "tail.onnx", NODES[3:], between, ["y", "repeated"], STORED)
    resized = {"positive": positive, "ids": given["ids"]}
    want, repeated = ReferenceEvaluator(str(tail)).run(None, resized)
    file = save(tmp_path / "m.onnx", NODES, INPUTS, ["positive", "y", "repeated"], STORED)
    for target in ("numpy", "cpu"):
        got = tfgraph.compile(file, target=target)(**given)
        assert_close(got["positive"], positive, length=32)
        assert_close(got["y"], want, length=16, scale=float(np.abs(positive).max()))
        np.testing.assert_array_equal(got["repeated"], repeated)


def test_the_matrices_are_weights(tmp_path: Path) -> None:
    """A table that is resized depends on weights alone; nothing of it is left for a run."""
    nodes = [
        node("Resize", "table _ _ sizes", "positions", mode="cubic"),
        node("Add", "x positions", "y"),
    ]
    stored = {
        "table": RNG.standard_normal((1, 8, 5, 5)).astype(np.float32),
        "sizes": np.array([1, 8, 3, 4]),
    }
    file = save(tmp_path / "m.onnx", nodes, {"x": ("f32", ["b", 8, 3, 4])}, ["y"], stored)
    graph, _ = import_onnx(file)
    left = [n.op for n in graph.nodes if not graph.weight_values.issuperset(n.outputs)]
    assert left == ["add"]


@pytest.mark.parametrize(
    ("sizes", "attributes", "message"),
    [
        ([1, 4, 6, 9], {"mode": "bicubic"}, "the mode is 'bicubic'"),
        ([1, 4, 6, 9], {"nearest_mode": "up"}, "the nearest_mode is 'up'"),
        ([1, 4, 6], {}, "3 scales or sizes for 4 axes"),
        ([3, 4, 6, 9], {}, "axis 0 of b elements changes, and is of no fixed size"),
    ],
)
def test_what_is_not_there(
    tmp_path: Path, sizes: list[int], attributes: dict[str, Any], message: str
) -> None:
    nodes = [node("Resize", "x _ _ sizes", "y", **attributes)]
    first = 1 if sizes[0] == 1 else "b"
    inputs = {"x": ("f32", [first, 4, 6, 5])}
    file = save(tmp_path / "m.onnx", nodes, inputs, ["y"], {"sizes": np.array(sizes)})
    with pytest.raises(TfgraphError) as caught:
        import_onnx(file)
    assert message in str(caught.value)
