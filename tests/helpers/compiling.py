"""`tfgraph compile` in a process of its own, of a model with a megabyte of weights."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from helpers.artifacts import environment

import tfgraph

if TYPE_CHECKING:
    from pathlib import Path

MODEL = """\
graph {name}(%x: f32[n,64]) {{
  symbol n: 1..300, example 3
  %y = linear(%x, %w)
  %z = softmax(%y)
  return z=%z
}}
weights {{
  %w : f32[64,4000] = normal(1/8)
}}
"""
CLI = "import sys; from tfgraph.cli import main; sys.exit(main())"
BIG = 64 * 4000 * 4  # bytes of its weights


def graph(name: str = "g") -> tfgraph.Graph:
    return tfgraph.parse_graph(MODEL.format(name=name))


def compiler(folder: Path, name: str = "g", *more: str) -> subprocess.Popen[str]:
    """`tfgraph compile` of a model of that name to `out.tfgraph` in `folder`."""
    (folder / f"{name}.tfg").write_text(MODEL.format(name=name))
    return subprocess.Popen(
        [sys.executable, "-c", CLI, "compile", f"{name}.tfg", "-o", "out.tfgraph", *more],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def others(folder: Path) -> list[str]:
    """What is there besides the models and the artifact."""
    return [p.name for p in folder.iterdir() if p.suffix != ".tfg" and p.name != "out.tfgraph"]
