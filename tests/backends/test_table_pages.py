"""A call that reads a few rows of a table holds little more of it than these."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from tfgraph.backends.artifact import write_weights
from tfgraph.backends.base import CompiledWeight
from tfgraph.runtime.tensors import map_tensors

ROWS, WIDTH = 16384, 256  # 16 MiB: eight of the largest pages


def weight(name: str, layout: str) -> CompiledWeight:
    table = np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)
    return CompiledWeight(name, "float32", table.shape, layout, (name,), lambda: table)


def resident(path: Path) -> int:
    """Bytes of the file that this process holds."""
    text = Path("/proc/self/smaps").read_text()
    found = re.findall(rf"{re.escape(str(path))}\n(?:.*\n)*?Rss: +(\d+) kB", text)
    return sum(map(int, found)) * 1024


def test_of_a_table_only_what_is_read_is_held(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    write_weights(path, [weight("matrix", "packed48"), weight("table", "plain")])
    tensors = map_tensors(path)
    before = resident(path)
    picked = tensors["table"][:: ROWS // 8, 0]  # a row in each of these pages
    np.testing.assert_array_equal(picked, np.arange(0, ROWS * WIDTH, ROWS * WIDTH // 8))
    held = resident(path) - before
    assert 0 < held <= 8 * (128 << 10), held
    assert (tensors["matrix"] == tensors["table"]).all(), "whatever is written at a time"
