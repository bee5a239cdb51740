"""fuse-rotary: what goes into caches together, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from tfgraph import ops
from tfgraph.ir import Fill, Graph
from tfgraph.passes import PASSES, run_pipeline


def step(change: str = "") -> Graph:
    """Attention of one head over two states, keys turned by their positions."""
    with ops.graph("step") as g:
        q, k, v = (g.input(name, "f32", 1, "seq", 4) for name in "qkv")
        tables = [g.param(name, "f32", "seq", 2) for name in ("cos", "sin")]
        turned: Any = ops.rotary(q, *tables, heads=1)
        k = turned if change == "k is q" else ops.rotary(k, *tables, heads=1)
        rows = {"keys": k, "values": ops.tanh(turned) if change == "v of q" else v}
        if change == "one cache":
            del rows["values"]
        kept: list[Any] = []
        for name, new in rows.items():
            state = g.input(name, "f32", 1, 9, 4, fill=Fill("state"))
            kept.append(ops.cache_append(state, new, at=1))
            g.output(name, kept[-1])
        g.output("y", ops.attention(turned, kept[0], kept[-1], heads=1, kv_heads=1, scale=1))
        if change == "k is read":
            g.output("k_turned", k)
    return g.build()


@pytest.mark.parametrize(
    ("change", "applied", "left"),
    [
        ("", "fuse-rotary-append", ["rotary_append_kv", "attention"]),
        ("k is q", "fuse-rotary-append", ["rotary_append_kv", "attention"]),
        ("k is read", "fuse-append", ["rotary", "rotary", "append_kv", "attention"]),
        ("v of q", "fuse-append", ["rotary", "rotary", "tanh", "append_kv", "attention"]),
        ("one cache", "", ["rotary", "rotary", "cache_append", "attention"]),
    ],
)
def test_rows_go_into_states_together(change: str, applied: str, left: list[str]) -> None:
    """A state may not be put into twice, and no op reads its own result."""
    result, (report,) = run_pipeline(step(change), [PASSES["fuse-rotary"]()], prove=True)
    assert report.applied == ({applied: 1} if applied else {})
    assert [node.op for node in result.nodes] == left
