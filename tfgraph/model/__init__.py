"""Model files in YAML, and all other sources of a graph: what a user's FILE argument may be.

`read_model` reads a YAML file, `load_source` any source by its kind (that of `tfgraph` checkpoints
too); `dump_yaml` writes a graph as YAML. `SCHEMA_PATH` is the JSON Schema for editors,
`TEMPLATE_PATH` a commented example. Imports blocks, text, weights, ops, ir and errors; pydantic and
ruamel.yaml, which are imported nowhere else.
"""

from pathlib import Path

from tfgraph.model.dump import dump_yaml
from tfgraph.model.model import Model, read_model
from tfgraph.model.source import load_source

SCHEMA_PATH = Path(__file__).with_name("model.schema.json")
TEMPLATE_PATH = Path(__file__).with_name("template.yaml")

__all__ = ["SCHEMA_PATH", "TEMPLATE_PATH", "Model", "dump_yaml", "load_source", "read_model"]
