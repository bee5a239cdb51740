"""Weights that a model file names and that do not fit, with line and column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from helpers.mistakes import SMALL, errors_of
from safetensors.numpy import save_file

from tfgraph.errors import TfgraphError
from tfgraph.model import read_model

if TYPE_CHECKING:
    from pathlib import Path

ONE = (
    "layers: 1\nwidth: 4\nheads: 1\nffn: 4\nnorm: rms_norm\nbias: false\n"
    "weights:\n  file: w.safetensors\n  names:\n"
)


def write_weights(path: Path, **changes: np.ndarray | None) -> None:
    names = ["attention.q", "attention.k", "attention.v", "attention.out", "ffn.up", "ffn.down"]
    arrays = {f"layers.0.{n}.weight": np.ones((4, 4), np.float32) for n in names}
    arrays |= {f"layers.0.{n}_norm.scale": np.ones(4, np.float32) for n in ("attention", "ffn")}
    arrays |= {k: v for k, v in changes.items() if v is not None}
    for name in [k for k, v in changes.items() if v is None]:
        del arrays[name]
    save_file(arrays, path)


Q = "layers.0.attention.q.weight"


@pytest.mark.parametrize(
    ("changes", "names", "expected"),
    [
        ({}, "", None),
        ({Q: None}, "", f"8:9: w.safetensors has no tensor '{Q}'"),
        ({Q: np.ones((4, 5), np.float32)}, "", f"8:9: w.safetensors: '{Q}' is [4, 5], expected"),
        ({Q: np.ones((4, 4), np.int64)}, "", f"8:9: w.safetensors: '{Q}' is i64, expected f32"),
        ({"extra": np.ones(1, np.float32)}, "",
         "8:9: w.safetensors: 'extra' is a tensor that no parameter uses"),
        ({Q: None, "q": np.ones((4, 4), np.float32)}, f'    "{Q}": transpose(q)\n', None),
        ({Q: None, "q": np.ones((4, 5), np.float32)}, f'    "{Q}": transpose(q)\n',
         f"10:{len(Q) + 9}: w.safetensors: 'q' is [5, 4] after its rule, expected [4, 4], which "),
        ({}, '    "layers.{i}.attention.z": a\n',
         "10:31: the rule 'layers.{i}.attention.z' fits no parameter"),
    ],
)  # fmt: skip
def test_weights(
    tmp_path: Path, changes: dict[str, np.ndarray | None], names: str, expected: str | None
) -> None:
    write_weights(tmp_path / "w.safetensors", **changes)
    content = ONE + names if names else ONE.replace("  names:\n", "")
    if expected is None:
        (tmp_path / "model.yaml").write_text(content)
        made = read_model(tmp_path / "model.yaml")
        assert not made.seeded
        assert made.load()[Q].shape == (4, 4)
        return
    found = errors_of(tmp_path, content)
    assert found[0].startswith(expected)


def test_truncated_weights(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    write_weights(path)
    path.write_bytes(path.read_bytes()[:-10])
    (found,) = errors_of(tmp_path, ONE.replace("  names:\n", ""))
    assert found.startswith("8:9: weights: w.safetensors is truncated: 'layers.0.")


def test_a_path_to_weights_starts_from_the_model_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "moved"
    folder.mkdir()
    (folder / "model.yaml").write_text(SMALL + "weights: bert/w.safetensors\n")
    with pytest.raises(TfgraphError) as caught:
        read_model("moved/model.yaml")
    assert caught.value.hint == (
        "the path starts from the folder of moved/model.yaml: it is looked for at "
        f"{folder / 'bert' / 'w.safetensors'}"
    )
