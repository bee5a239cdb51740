"""What the comments of `tfgraph init`'s template offer can be chosen as they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tfgraph.model import TEMPLATE_PATH, read_model

TEMPLATE = TEMPLATE_PATH.read_text("utf-8")


def changed(text: str, key: str, line: str) -> str:
    """The text with the only line of that key replaced (of `kind`, the one of the positions)."""
    before = r"(?<=positions:\n)" if key == "  kind" else "^"
    text, count = re.subn(rf"(?m){before}{key}:.*\n", line, text)
    assert count == 1, key
    return text


@pytest.mark.parametrize(
    "line", [line for line in TEMPLATE.splitlines() if re.match(" *# [a-z_]+: [^#\n]*", line)]
)
def test_what_is_commented_out(tmp_path: Path, line: str) -> None:
    """Put in; what its comment says after "with" is put in too."""
    if line.startswith("#  "):
        return  # a part of `weights`, which needs a file
    text = TEMPLATE.replace(line, line.replace("# ", "", 1))
    for key, value in re.findall(r"(\w+): (\w+)", line.partition(" with ")[2]):
        indent = line[: len(line) - len(line.lstrip())]
        text = changed(text, indent + key, f"{indent}{key}: {value}\n")
    path = tmp_path / "model.yaml"
    path.write_text(text)
    read_model(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "kind: decoder\n", "mask": "mask: causal\n"},
        {"kind": "kind: encoder-decoder\n"},
        {"  kind": "  kind: learned\n"},
        {"  kind": "  kind: none\n", "  max": ""},
        {"  placement": "  placement: pre\n"},
        {"mask": "mask: none\n"},
        {"mask": "mask: causal\n"},
        {"mask": "mask: [causal, padding]\n"},
        {"mask": "mask: {kind: window, left: 128, right: 0}\n"},
        {"vocabulary": "", "embedding": "", "  scale": ""},
        {"  scale": "  scale: 16\n"},
        {"dtype": "dtype: float16\n", "target": "target: numpy\n"},
        {"target": "target: cuda\n"},
        *({"activation": f"activation: {name}\n"} for name in
          ("relu", "relu2", "silu", "gelu_tanh", "quick_gelu", "sigmoid", "tanh")),
    ],
)  # fmt: skip
def test_other_choices(tmp_path: Path, changes: dict[str, str]) -> None:
    text = TEMPLATE.replace("kind: layer_norm", "kind: rms_norm")
    for key, line in changes.items():
        text = changed(text, key, line)
    path = tmp_path / "model.yaml"
    path.write_text(text)
    read_model(path)
