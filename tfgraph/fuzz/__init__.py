"""The fuzzer: random graphs, run on the reference and on backends, until one of these is wrong.

`random_case` makes a graph and its inputs from a seed, `Judge` compares one backend with the
reference, `shrink` makes a failure small, `save` writes it as files that replay it, and `run`
spends a budget of seconds on all of that. May import: api, backends, passes, model, blocks,
weights, ops, ir, errors.
"""

from tfgraph.fuzz.graphs import random_case
from tfgraph.fuzz.inputs import Case
from tfgraph.fuzz.judge import Judge, Wrong
from tfgraph.fuzz.run import Progress, Report, run
from tfgraph.fuzz.save import Replayed, Saved, replay, save
from tfgraph.fuzz.shrink import Failure, failures, shrink

__all__ = [
    "Case",
    "Failure",
    "Judge",
    "Progress",
    "Replayed",
    "Report",
    "Saved",
    "Wrong",
    "failures",
    "random_case",
    "replay",
    "run",
    "save",
    "shrink",
]
