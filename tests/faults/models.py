"""The models in which faults are planted, each read once."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tfgraph.api.export import export_onnx
from tfgraph.api.fuse import fuse
from tfgraph.api.source import load_source
from tfgraph.backends.base import Target
from tfgraph.passes import DEFAULT_PIPELINE

if TYPE_CHECKING:
    from tfgraph.ir import Graph
    from tfgraph.model import Model

SIZES = {"batch": 3, "seq": 13}
LAYERS = 3

_TEXT = """\
kind: {kind}
layers: 3
width: 16
heads: 2
ffn: 24
activation: {activation}
norm: {{kind: layer_norm, placement: {placement}, eps: 1e-5}}
positions: {{kind: learned, max: 40}}
mask: {mask}
vocabulary: 50
"""
_KEYS = {
    "encoder": ("encoder", "gelu", "post", "padding"),
    "decoder": ("decoder", "silu", "pre", "causal"),
    "window": ("encoder", "tanh", "post", "[padding, {kind: window, left: 3, right: 2}]"),
}
MODELS = tuple(_KEYS)


@cache
def _folder() -> Path:
    _kept.append(tempfile.TemporaryDirectory(prefix="tfgraph-faults-"))
    return Path(_kept[0].name)


_kept: list[tempfile.TemporaryDirectory[str]] = []


@cache
def model(name: str) -> Model:
    """A model file with its places."""
    kind, activation, placement, mask = _KEYS[name]
    path = _folder() / f"{name}.yaml"
    path.write_text(_TEXT.format(kind=kind, activation=activation, placement=placement, mask=mask))
    return load_source(path)


@cache
def compiled(name: str) -> Graph:
    """The model after the passes."""
    return fuse(model(name).graph, Target("cpu"), DEFAULT_PIPELINE).compiled


@cache
def onnx_file() -> Path:
    """The encoder as an ONNX file of old operators, written out."""
    path = _folder() / "encoder.onnx"
    export_onnx(model("encoder"), path, opset=17, check=False)
    return path
