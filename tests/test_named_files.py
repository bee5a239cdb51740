"""Files that a user's file names: one that would not end, that would keep who reads it waiting, or
that is too large, is refused at once, in every reader."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from helpers.checkpoints import CASES
from helpers.mistakes import SMALL, errors_of
from helpers.onnx_files import node, save
from onnx import TensorProto

from tfgraph.api.source import load_source
from tfgraph.errors import TfgraphError
from tfgraph.hf import import_checkpoint
from tfgraph.model.source import MAX_TEXT
from tfgraph.onnx import import_onnx
from tfgraph.runtime.text import MAX_TOKENIZER
from tfgraph.weights import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ODD: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
}
odd = pytest.mark.parametrize("make", ODD.values(), ids=list(ODD))


@odd
def test_in_a_model_file(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "t.json")
    make(tmp_path / "w.safetensors")
    assert errors_of(tmp_path, SMALL + "tokenizer: t.json\n") == [
        "3:12: tokenizer: t.json: not a file"
    ]
    assert errors_of(tmp_path, SMALL + "weights: w.safetensors\n") == [
        "3:10: weights: w.safetensors: cannot read weights: not a file"
    ]


@odd
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("config.json", r"cannot read config\.json: not a file"),
        ("model.safetensors", r"has no model\.safetensors"),
    ],
)
def test_in_a_checkpoint(
    tmp_path: Path, make: Callable[[Path], None], name: str, says: str
) -> None:
    folder = tmp_path / "gpt2"
    shutil.copytree(CASES / "gpt2", folder)
    (folder / name).unlink()
    make(folder / name)
    with pytest.raises(TfgraphError, match=says):
        import_checkpoint(folder)


@odd
def test_a_shard(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "s.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "s.safetensors"}}')
    with pytest.raises(TfgraphError, match="cannot read weights: not a file"):
        Checkpoint(index)
    index.unlink()
    make(index)
    with pytest.raises(TfgraphError, match="cannot read weights: not a file"):
        Checkpoint(index)


@odd
def test_around_onnx(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "m.onnx"
    model = onnx.load(str(save(path, [node("Relu", "x", "y")], {"x": ("f32", [4])}, ["y"])))
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="m.data")
    model.graph.initializer.append(tensor)
    onnx.save(model, str(path))
    make(tmp_path / "m.data")
    with pytest.raises(TfgraphError, match=r"there is no such file|out of the model's folder"):
        import_onnx(path)
    path.unlink()
    make(path)
    with pytest.raises(TfgraphError, match=r"cannot read m\.onnx: not a file"):
        import_onnx(path)


def test_too_large(tmp_path: Path) -> None:
    """Files of holes, which take no room."""
    with (tmp_path / "t.json").open("wb") as file:
        file.truncate(MAX_TOKENIZER + 1)
    assert errors_of(tmp_path, SMALL + "tokenizer: t.json\n") == [
        f"3:12: tokenizer: t.json: it has {MAX_TOKENIZER + 1} bytes; at most {MAX_TOKENIZER} are "
        "read"
    ]
    with (tmp_path / "g.tfg").open("wb") as file:
        file.truncate(MAX_TEXT + 1)
    with pytest.raises(TfgraphError, match=f"cannot read the graph: .* at most {MAX_TEXT} are"):
        load_source(tmp_path / "g.tfg")
    shutil.copytree(CASES / "gpt2", tmp_path / "gpt2")
    with (tmp_path / "gpt2" / "config.json").open("ab") as file:
        file.truncate(1 << 40)
    with pytest.raises(TfgraphError, match=r"cannot read config\.json: .* at most 4000000 are"):
        load_source(tmp_path / "gpt2")


def test_links_stand_for_files(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).symlink_to(CASES / "gpt2" / name)
    model = load_source(tmp_path)
    assert all(np.isfinite(array).all() for array in model.load().values())
