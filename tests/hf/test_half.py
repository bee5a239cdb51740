"""Checkpoints in float16 and bfloat16: they widen to float32 when they are read, exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from helpers.checkpoints import CASES, NAMES, import_model, reference
from helpers.tolerance import TRANSFORMERS, assert_within
from safetensors.numpy import load_file, save_file

import tfgraph

HALVES: dict[str, Any] = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def saved(case: str, folder: Path, dtype: str) -> tuple[Path, Path]:
    """A case's folder re-saved in a dtype, and one in float32 of the numbers that this left."""
    tensors = load_file(CASES / case / "model.safetensors")
    narrow = {name: tensor.astype(HALVES[dtype]) for name, tensor in tensors.items()}
    wide = {name: tensor.astype(np.float32) for name, tensor in narrow.items()}
    made = folder / "narrow" / case, folder / "wide" / case
    for path, content in zip(made, (narrow, wide), strict=True):
        path.mkdir(parents=True)
        (path / "config.json").write_bytes((CASES / case / "config.json").read_bytes())
        save_file(content, path / "model.safetensors")
    return made


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("case", NAMES)
def test_the_model_is_that_of_the_widened_numbers(tmp_path: Path, case: str, dtype: str) -> None:
    """The same graph and, bit for bit, the same weights: then what is compiled is the same."""
    narrow, wide = (import_model(f, f / "model.yaml") for f in saved(case, tmp_path, dtype))
    graphs = [tfgraph.print_graph(model.graph) for model in (narrow, wide)]
    assert graphs[0] == graphs[1]
    found, expected = narrow.load(), wide.load()
    assert found.keys() == expected.keys()
    for name, array in found.items():
        assert array.dtype == np.float32
        assert array.tobytes() == expected[name].tobytes(), name


@pytest.mark.parametrize("dtype", HALVES)
def test_they_run_on_the_cpu(tmp_path: Path, dtype: str) -> None:
    narrow, wide = saved("qwen2", tmp_path, dtype)
    model = tfgraph.load_source(str(narrow))
    got = tfgraph.compile(model, "cpu")(**reference("qwen2", "in"))["logits"]
    want = tfgraph.compile(str(wide), "numpy")(**reference("qwen2", "in"))["logits"]
    assert_within(got, want, TRANSFORMERS)
    assert np.abs(want - reference("qwen2", "out")["logits"]).max() > 10 * TRANSFORMERS
