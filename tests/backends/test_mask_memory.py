"""Structured masks and biases take no memory of queries x keys."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from helpers.processes import python

import tfgraph
from tfgraph import ops
from tfgraph.ir import rsqrt
from tfgraph.ir.mask import alibi, causal, padding, prefix, relative, segments, window

LENGTH = 4096
SQUARE = 4 * LENGTH**2  # bytes of scores of one head, 64 MiB

SCRIPT = """
import sys
import numpy as np
import tfgraph

def most():
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(status["VmHWM"].split()[0]) * 1024

model = tfgraph.load(sys.argv[1], threads=1)
model(**model.example({"batch": 1, "seq": 64}))
inputs = model.example({"batch": 1, "seq": int(sys.argv[2])})
before = most()
model(**inputs)
print(most() - before)
"""


def test_a_long_sequence_takes_no_square(tmp_path: Path) -> None:
    with ops.graph("g") as g:
        batch, seq = g.symbol("batch", 1, 2), g.symbol("seq", 1, LENGTH)
        x = g.input("x", "f32", batch, seq, 16)
        keep, ids = g.input("keep", "i64", batch, seq), g.input("ids", "i64", batch, seq)
        lengths, slopes = g.input("lengths", "i64", batch), g.param("slopes", "f32", 2)
        table = g.param("table", "f32", 8, 2)
        masks = {
            "none": None,
            "causal": causal(),
            "window": window(100, 100),
            "padding": padding(keep),
            "lengths": padding(lengths),
            "prefix": prefix(lengths),
            "segments": segments(ids, ids),
            "alibi": causal() & alibi(slopes),
            "relative": causal() & relative(table, 128),
        }
        for name, mask in masks.items():
            y = ops.attention(x, x, x, mask, heads=2, kv_heads=2, scale=rsqrt(8))
            g.output(name, y)
    weights = {"slopes": np.ones(2, np.float32), "table": np.ones((8, 2), np.float32)}
    folder = tmp_path / "g.cpu.tfgraph"
    tfgraph.build(g.build(), "cpu", folder, weights=weights, check=False, prove=False)
    grown = int(python(SCRIPT, str(folder), str(LENGTH)))
    outputs = len(masks) * LENGTH * 16 * 4
    assert grown < SQUARE // 4 + outputs
