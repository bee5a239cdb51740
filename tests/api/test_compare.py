"""`compare` as a function: sizes follow the inputs; the first divergence is told apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tfgraph.api import compare
from tfgraph.model import load_source

ROOT = Path(__file__).parents[2]


def test_inputs_left_out_follow_those_given() -> None:
    graph = load_source(str(ROOT / "examples/encoder.yaml")).graph
    report = compare(graph, ("numpy", "numpy"), {"input_ids": np.ones((3, 5), np.int64)})
    assert report.dims == {"batch": 3, "seq": 5}
    assert report.ok
    assert all(d.max_abs == 0 for d in report.outputs)
