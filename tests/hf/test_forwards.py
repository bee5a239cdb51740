"""Checkpoints of architectures without a recorded case, against forward passes of their own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from helpers.checkpoints import NDArray, import_model
from helpers.tolerance import TRANSFORMERS, assert_within
from hf.forwards import (
    bart,
    clip,
    cohere,
    deberta,
    electra,
    falcon,
    gemma,
    llama,
    olmo2,
    opt,
    stablelm,
)
from safetensors.numpy import save_file

import tfgraph

MODULES = (bart, clip, cohere, deberta, electra, falcon, gemma, llama, olmo2, opt)
CASES = {name: module for module in MODULES for name in module.CASES}
# Whose parts other cases have on the CPU too.
ON_NUMPY_ALONE = (
    "clip_text", "cohere", "deberta_c2p", "deberta_conv", "deberta_own", "electra",
    "electra_generator",
    "falcon_7b", "falcon_11b", "falcon_rw", "gemma3_new_keys", "llama3", "llama_yarn", "opt_350m",
    "phi4",
)  # fmt: skip
IDS = np.array([[5, 11, 48, 3, 29, 7, 2, 40, 7], [9, 7, 30, 31, 6, 12, 44, 1, 8]])
MASK = np.array([[1] * 9, [1] * 6 + [0] * 3])


def tensors_of(module: ModuleType, config: dict[str, Any]) -> dict[str, NDArray]:
    """Seeded weights, of a size that makes every term count; scales of norms near 1, or near 0."""
    rng = np.random.default_rng(7)
    found: dict[str, NDArray] = {}
    for name, shape in module.shapes(config).items():
        x = rng.normal(size=shape)
        if len(shape) > 1 and "norm" not in name:
            x /= 1 if "embed" in name or "shared" in name else np.sqrt(shape[-1])
        elif name.endswith(".weight"):
            x = 0.3 * x + ("gemma" not in config["model_type"])
        else:
            x *= 0.3
        found[name] = np.ascontiguousarray(x.astype(np.float32))
    return found


def save(folder: Path, config: dict[str, Any], tensors: dict[str, NDArray]) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    save_file(tensors, folder / "model.safetensors")


def check(module: ModuleType, case: str, folder: Path, backends: tuple[str, ...]) -> None:
    """All outputs and hidden states, with padding on the right, without any, and on the left."""
    config = module.CASES[case]
    tensors = tensors_of(module, config)
    save(folder / case, config, tensors)
    model = import_model(folder / case, folder / "model.yaml", hidden_states=True)
    wide = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    runs = {b: tfgraph.compile(model.graph, b, weights=model.weights) for b in backends}
    masks = {"right": MASK, "no": np.ones_like(MASK)}
    if "step" in model.functions and module is not bart:
        masks["left"] = np.ascontiguousarray(MASK[:, ::-1])
    for how, mask in masks.items():
        given = {"input_ids": IDS, "attention_mask": mask}
        more = {"decoder_input_ids": IDS[::-1, :5].copy()} if module is bart else {}
        want = module.forward(config, wide, IDS, mask, *more.values())
        for backend, run in runs.items():
            given |= more
            if any(port.name == "token_type_ids" for port in run.inputs):
                given["token_type_ids"] = np.zeros_like(IDS)
            got = run(**given)
            assert got.keys() == want.keys()
            for name, expected in want.items():
                real: Any = slice(None)
                if expected.shape[:2] == mask.shape:
                    real = mask == 1
                assert got[name].shape == expected.shape, name
                at = f"{backend}, {how} padding, {name}"
                assert_within(got[name][real], expected[real], TRANSFORMERS, at)


@pytest.mark.parametrize("case", CASES)
def test_forward(tmp_path: Path, case: str) -> None:
    backends = ("numpy",) if case in ON_NUMPY_ALONE else ("numpy", "cpu")
    check(CASES[case], case, tmp_path, backends)


def test_the_architecture_of_the_page_on_extending(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "extending.md").read_text("utf-8")
    (code,) = re.findall(r"(?s)```python\n(from tfgraph\.hf import .*?)```", page)
    plugin = tmp_path / "plugin.py"
    plugin.write_text(code)
    tfgraph.load_plugins([plugin])
    check(stablelm, "stablelm", tmp_path, ("numpy",))
