"""Checkpoint folders of Hugging Face as model files: `import_checkpoint` writes YAML text.

Each architecture is one entry of a table, in `architectures/`; `register_architecture` adds one
from outside. Imports weights, ir and errors, not `model`: what it writes is read like any file.
"""

from tfgraph.hf import architectures
from tfgraph.hf.architecture import (
    Architecture,
    Layout,
    Part,
    Top,
    grouped,
    linear,
    norm,
    register_architecture,
    stacked,
    table,
    vector,
)
from tfgraph.hf.config import Config, Key
from tfgraph.hf.derive import local_layers, rotary, window
from tfgraph.hf.importer import import_checkpoint
from tfgraph.hf.tops import decoder_tops, encoder_tops

__all__ = [
    "Architecture",
    "Config",
    "Key",
    "Layout",
    "Part",
    "Top",
    "architectures",
    "decoder_tops",
    "encoder_tops",
    "grouped",
    "import_checkpoint",
    "linear",
    "local_layers",
    "norm",
    "register_architecture",
    "rotary",
    "stacked",
    "table",
    "vector",
    "window",
]
