"""What `make real` does with the files that it fetches, on a small one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.test_numpy_bert import load
from helpers.onnx_files import node, save

pytest.importorskip("onnxruntime")


def test_against_onnx_runtime(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    save(path, [node("Softmax", "x", "y")], {"x": ("f32", ["n", 4])}, ["y"])
    given = {"x": np.arange(8, dtype=np.float32).reshape(2, 4)}
    found = load("real_files").against_runtime(path, given, "numpy")
    assert found.ok
    assert found.text.startswith("difference to ONNX Runtime ")
