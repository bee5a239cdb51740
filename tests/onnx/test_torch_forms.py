"""Forms that only some exports of PyTorch have, against ONNX's reference evaluator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from helpers.onnx_files import NDArray, node, save
from helpers.tolerance import TRANSFORMERS, assert_within
from onnx.reference import ReferenceEvaluator

import tfgraph
from tfgraph.onnx import import_onnx
from tfgraph.passes import IMPORTED_PIPELINE, parse_pipeline, run_pipeline


def both(file: Path, inputs: dict[str, NDArray]) -> tuple[NDArray, NDArray]:
    """The output y by the reference evaluator, and on NumPy after the passes."""
    with np.errstate(invalid="ignore"):  # of a row that is -inf all along
        (want,) = ReferenceEvaluator(str(file)).run(None, inputs)
    return want, tfgraph.compile(file, "numpy")(**inputs)["y"]


def test_attention_with_numbers_as_vectors(tmp_path: Path) -> None:
    """0 and -inf of the mask, and 0 instead of a NaN, are vectors of one element."""
    nodes = [
        node("Transpose", "k", "turned", perm=[0, 1, 3, 2]),
        node("MatMul", "q turned", "scores"),
        node("Where", "seen zero least", "bias"),
        node("Add", "scores bias", "masked"),
        node("Softmax", "masked", "weights", axis=-1),
        node("IsNaN", "weights", "empty"),
        node("Where", "empty zero weights", "guarded"),
        node("MatMul", "guarded v", "y"),
    ]
    numbers = {"zero": np.zeros(1, np.float32), "least": np.full(1, -np.inf, np.float32)}
    heads = ("f32", ["b", 2, "s", 8])
    given = {"q": heads, "k": heads, "v": heads, "seen": ("bool", ["b", 1, "s", "s"])}
    file = save(tmp_path / "m.onnx", nodes, given, ["y"], numbers)
    rng = np.random.default_rng(3)
    inputs: dict[str, NDArray] = {
        n: rng.normal(size=(2, 2, 5, 8)).astype(np.float32) for n in ("q", "k", "v")
    }
    inputs["seen"] = rng.random((2, 1, 5, 5)) < 0.6
    inputs["seen"][0, 0, 1] = False
    want, got = both(file, inputs)
    assert_within(got, want, TRANSFORMERS)
    after, _ = run_pipeline(import_onnx(file)[0], parse_pipeline(IMPORTED_PIPELINE))
    assert "attention" in {n.op for n in after.nodes}


def test_a_slice_without_elements_is_joined_to_others(tmp_path: Path) -> None:
    """What rotary positions leave alone, where they turn the whole head: nothing."""
    nodes = [
        node("Slice", "x eight far last", "rest"),
        node("Neg", "x", "turned"),
        node("Concat", "turned rest", "y", axis=-1),
    ]
    stored = {"eight": np.array([8]), "far": np.array([2**62]), "last": np.array([2])}
    given = {"x": ("f32", ["b", "s", 8])}
    file = save(tmp_path / "m.onnx", nodes, given, ["y"], stored)
    graph, _ = import_onnx(file)
    assert [n.op for n in graph.nodes] == ["neg"]
    want, got = both(file, {"x": np.random.default_rng(4).normal(size=(2, 3, 8)).astype("f4")})
    assert np.array_equal(want, got)
