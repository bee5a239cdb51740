"""Keys that a structured mask hides from all queries of a tile are not even read.

The keys and values lie in a sparse file, of which the system maps the pages that are touched: how
much of it is resident after a call says how much of it the kernel has read.
"""

from __future__ import annotations

import mmap
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tfgraph
from tfgraph import ops
from tfgraph.ir import as_dim, rsqrt
from tfgraph.ir.mask import causal, padding, prefix, relative, segments, window

if TYPE_CHECKING:
    from tfgraph.backends.base import Executable

WIDTH, QUERIES, KEYS = 64, 70, 1 << 16
HIDING = ("causal", "window", "both", "prefix", "lengths", "keep", "segments", "biased")
NDArray = np.ndarray[Any, Any]


def attention_under(name: str) -> Executable:
    """Attention of the first or last queries to many keys, under one mask."""
    with ops.graph("g") as g:
        q = g.input("q", "f32", 1, "s", WIDTH)
        k, v = (g.input(n, "f32", 1, "t", WIDTH) for n in "kv")
        last = as_dim("t") - "s"
        m = {
            "causal": lambda: causal(0),
            "window": lambda: window(99, 0, last),
            "both": lambda: causal(last) & window(99, offset=last),
            "prefix": lambda: prefix(g.input("lengths", "i64", 1), 0),
            "lengths": lambda: padding(g.input("lengths", "i64", 1)),
            "keep": lambda: padding(g.input("keep", "bool", 1, "t")),
            "segments": lambda: segments(
                g.input("query_ids", "i64", 1, "s"), g.input("key_ids", "i64", 1, "t")
            ),
            "biased": lambda: causal(0) & relative(g.input("table", "f32", 8, 1), 20, offset=0),
            "none": lambda: None,
        }[name]()
        g.output("y", ops.attention(q, k, v, m, heads=1, kv_heads=1, scale=rsqrt(WIDTH)))
    return tfgraph.compile(g.build(), "cpu")


def sparse(path: Path) -> tuple[NDArray, int]:
    """[1, KEYS, WIDTH] of zeros in a file of holes, and where it is mapped."""
    size = 4 * KEYS * WIDTH
    with path.open("w+b") as file:
        file.truncate(size)
        array = np.frombuffer(mmap.mmap(file.fileno(), size), np.float32)
    return array.reshape(1, KEYS, WIDTH), array.ctypes.data


def resident(address: int) -> int:
    """Bytes of the mapping at `address` that are in memory."""
    text = Path("/proc/self/smaps").read_text()
    found = re.search(rf"^{address:x}-.*?^Rss: +(\d+) kB", text, re.M | re.S)
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.parametrize("name", [*HIDING, "none"])
def test_what_is_hidden_is_not_read(name: str, tmp_path: Path) -> None:
    arrays: dict[str, NDArray] = {
        "q": np.ones((1, QUERIES, WIDTH), np.float32),
        "lengths": np.array([90]),
        "keep": np.arange(KEYS)[None] < 90,
        "query_ids": np.full((1, QUERIES), 5),
        "key_ids": np.where(np.arange(KEYS) < 90, 5, 6)[None],
        "table": np.zeros((8, 1), np.float32),
    }
    (arrays["k"], at_k), (arrays["v"], at_v) = sparse(tmp_path / "k"), sparse(tmp_path / "v")
    with attention_under(name) as model:
        y = model(**{port.name: arrays[port.name] for port in model.inputs})["y"]
    assert not y.any()
    for at in (at_k, at_v):
        share = resident(at) / (4 * KEYS * WIDTH)
        assert share == 1 if name == "none" else 0 < share < 0.03, share
