"""The checkpoints in tests/data/cases, and changed copies of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from tfgraph.hf import import_checkpoint
from tfgraph.model import Model, read_model

NDArray = np.ndarray[Any, Any]
CASES = Path(__file__).parents[1] / "data" / "cases"
NAMES = tuple(sorted(folder.name for folder in CASES.iterdir()))


def copy_case(
    case: str,
    folder: Path,
    *,
    config: Mapping[str, Any] | None = None,
    rename: Callable[[str], str | None] = lambda name: name,
    add: Mapping[str, NDArray] | None = None,
) -> Path:
    """A copy of a checkpoint with other values in config.json (None removes a key), other names
    of tensors (None removes one), and further tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    data = json.loads((CASES / case / "config.json").read_text()) | dict(config or {})
    data = {key: value for key, value in data.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(data, indent=2))
    tensors = {rename(k): v for k, v in load_file(CASES / case / "model.safetensors").items()}
    kept = {name: tensor for name, tensor in tensors.items() if name is not None}
    save_file(kept | dict(add or {}), folder / "model.safetensors")
    return folder


def import_model(folder: Path, file: Path, *, hidden_states: bool = False) -> Model:
    """Import a checkpoint, write the model file, read it."""
    text = import_checkpoint(folder, file)
    if hidden_states:
        text = text.replace("# hidden_states: true", "hidden_states: true")
    file.write_text(text, encoding="utf-8")
    return read_model(file)


def reference(case: str, kind: str) -> dict[str, NDArray]:
    """The arrays `kind`.NAME of a case's ref.npz, by name; hidden states under the names that a
    model gives them."""
    parts = {"hidden": "hidden", "enc_hidden": "encoder.hidden", "dec_hidden": "decoder.hidden"}
    with np.load(CASES / case / "ref.npz") as stored:
        found: dict[str, NDArray] = {}
        for key in stored.files:
            group, _, name = key.partition(".")
            if kind == "hidden" and group in parts:
                found[f"{parts[group]}.{name}"] = stored[key]
            elif kind == group:
                found[name] = stored[key]
        return found
