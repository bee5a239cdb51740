"""Small model files that differ in what depends on the float type, in any of the types."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tfgraph.model import read_model

if TYPE_CHECKING:
    from tfgraph.ir import DType, Graph

SMALL = "layers: 1\nwidth: 16\nheads: 2\nvocabulary: 30\n"
MODELS = {
    "encoder": "mask: padding\nembedding: {token_types: 2}\npositions: {kind: learned, max: 40}\n",
    "sinusoidal": "positions: {kind: sinusoidal, max: 40}\nembedding: {scale: sqrt(16)}\n",
    "rotary": "kind: decoder\npositions: {kind: rotary, max: 40}\nkv_heads: 1\nnorm: rms_norm\n",
    "alibi": "kind: decoder\npositions: alibi\n",
    "relative": "positions: {kind: relative, buckets: 8}\n",
    "experts": "kind: decoder\nexperts: {count: 4, active: 2}\n",
}


def written(name: str, dtype: DType) -> Graph:
    """The graph of the model whose file says that type."""
    return read_model(Path("m.yaml"), f"{SMALL}{MODELS[name]}dtype: {dtype.value}\n").graph
