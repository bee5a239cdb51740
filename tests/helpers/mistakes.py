"""What a mistaken model file is told, for tests of its errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tfgraph.errors import TfgraphError
from tfgraph.model import read_model

if TYPE_CHECKING:
    from pathlib import Path

SMALL = "layers: 1\nwidth: 8\n"
FREE = "inputs:\n  x: f32[batch,seq,8]\n"


def errors_of(tmp_path: Path, content: str | bytes) -> list[str]:
    """Each error as `line:column: message`."""
    path = tmp_path / "model.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(TfgraphError) as caught:
        read_model(path)
    found: list[str] = []
    for error in (caught.value, *caught.value.related):
        assert error.location is not None
        assert error.location.file == str(path)
        found.append(f"{error.location.line}:{error.location.column}: {error.message}")
    return found
