"""Checkpoint folders of Hugging Face as model files: `import_checkpoint` writes YAML text.

Each architecture is one entry of a table, in `architectures.py`; `register_architecture` adds one
from outside. Imports weights, ir and errors, not `model`: what it writes is read like any file.
"""

from tfgraph.hf.architecture import (
    Architecture,
    Key,
    Part,
    Top,
    linear,
    norm,
    register_architecture,
    table,
    vector,
)
from tfgraph.hf.architectures import ALBERT, BERT, DISTILBERT, ROBERTA
from tfgraph.hf.importer import import_checkpoint

__all__ = [
    "ALBERT",
    "BERT",
    "DISTILBERT",
    "ROBERTA",
    "Architecture",
    "Key",
    "Part",
    "Top",
    "import_checkpoint",
    "linear",
    "norm",
    "register_architecture",
    "table",
    "vector",
]
