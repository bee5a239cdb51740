"""The command line in this process, and a small model to give it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tfgraph.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TINY = """\
graph tiny(%x: f32[n,8] = normal(1)) {
  symbol n: 1..300, example 3
  %y = linear(%x, %w) : f32[n,4]
  %z = softmax(%y) : f32[n,4]
  return z=%z
}
weights {
  %w : f32[8,4] = normal(1)
}
"""


@dataclass
class Result:
    """What a run of the command line gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def tfgraph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Result]:
    """Runs the command line in a folder of its own, which holds `tiny.tfg`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.tfg").write_text(TINY)

    def call(*arguments: object) -> Result:
        capsys.readouterr()
        code = main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call
