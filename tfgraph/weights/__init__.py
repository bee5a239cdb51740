"""The arrays behind a graph's parameters: read from safetensors, or made from a seed.

`Checkpoint` maps the tensors of a file (or of shards with an index) by the file's own names,
`Weights` those of a graph by its parameters' names, after rules; `Seeded` makes them. All are lazy:
a tensor is read, or made, when it is asked for. Imports ops, ir and errors.
"""

from tfgraph.weights.checkpoint import Checkpoint, Stored
from tfgraph.weights.load import Weights
from tfgraph.weights.rounded import Rounded
from tfgraph.weights.rules import Rule, Rules, parse_rule
from tfgraph.weights.seeded import Seeded, seeded, sinusoidal_table

__all__ = [
    "Checkpoint",
    "Rounded",
    "Rule",
    "Rules",
    "Seeded",
    "Stored",
    "Weights",
    "parse_rule",
    "seeded",
    "sinusoidal_table",
]
