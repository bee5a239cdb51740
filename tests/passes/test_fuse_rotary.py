"""fuse-rotary: what is turned, and goes into caches, together, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from tfgraph import ops
from tfgraph.ir import Fill, Graph
from tfgraph.passes import PASSES, run_pipeline


def step(change: str = "") -> Graph:
    """Attention of one head over two states, keys turned by their positions."""
    with ops.graph("step") as g:
        q, k = (g.input(name, "f32", 1, 3, 4) for name in "qk")
        v = g.input("v", "f32", 1, 2 if change == "fewer rows" else 3, 4)
        tables = [g.param(name, "f32", 3, 2) for name in ("cos", "sin")]
        neighbours = change in ("neighbours", "k's neighbours")
        turned: Any = ops.rotary(q, *tables, heads=1, interleaved=change == "neighbours")
        k = ops.rotary(k, *tables, heads=1, interleaved=neighbours)
        k = turned if change == "k is q" else k
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
        if change == "caches are read":
            g.output("sum", ops.add(*kept))
    return g.build()


@pytest.mark.parametrize(
    ("change", "applied", "left"),
    [
        ("", "fuse-rotary-append", ["rotary_append_kv", "attention"]),
        ("k is q", "fuse-rotary-append", ["rotary_append_kv", "attention"]),
        ("k is read", "fuse-append", ["rotary", "rotary", "append_kv", "attention"]),
        ("v of q", "fuse-append", ["rotary", "rotary", "tanh", "append_kv", "attention"]),
        ("neighbours", "fuse-rotary-append", ["rotary_append_kv", "attention"]),
        ("k's neighbours", "fuse-append", ["rotary", "rotary", "append_kv", "attention"]),
        ("caches are read", "fuse-rotary-append", ["rotary_append_kv", "attention", "add"]),
        ("fewer rows", "", ["rotary", "rotary", "cache_append", "cache_append", "attention"]),
        ("one cache", "", ["rotary", "rotary", "cache_append", "attention"]),
    ],
)
def test_rows_go_into_states_together(change: str, applied: str, left: list[str]) -> None:
    """A state may not be put into twice, and no op reads its own result."""
    result, (report,) = run_pipeline(step(change), [PASSES["fuse-rotary"]()], prove=True)
    assert report.applied == ({applied: 1} if applied else {})
    assert [node.op for node in result.nodes] == left
    for node in result.nodes:
        if node.op in ("append_kv", "rotary_append_kv"):  # keys before values
            assert [value.name for value in node.inputs[:2]] == ["keys", "values"]


Window = tuple[int, int, int]
"""Axis, start and stop."""


@pytest.mark.parametrize(
    ("q", "k", "heads", "interleaved", "merged"),
    [
        ((2, 0, 8), (2, 8, 12), (2, 1), (False, False), True),
        ((-1, 0, 8), (-1, 8, 12), (2, 1), (True, True), True),
        ((2, 4, 8), (-1, 8, 12), (1, 1), (False, False), True),
        ((2, 0, 4), (2, 4, 8), (1, 1), (True, False), False),
        ((2, 0, 4), (2, 8, 12), (1, 1), (False, False), False),  # apart
        ((2, 0, 6), (2, 6, 12), (3, 1), (False, False), False),  # heads of two sizes
        ((1, 0, 12), (2, 12, 16), (4, 1), (False, False), False),  # all rows
        ((1, 0, 6), (1, 6, 12), (4, 4), (False, False), False),  # rows
    ],
)
def test_windows_side_by_side_are_turned_together(
    q: Window, k: Window, heads: tuple[int, int], interleaved: tuple[bool, bool], merged: bool
) -> None:
    rows = 6 if q[0] == k[0] == 1 else 12
    turned = 1 if heads == (3, 1) else 2  # pairs of a head, whose other numbers stay
    with ops.graph("windows") as g:
        x = g.input("x", "f32", 1, 12, 16)
        tables = [g.param(name, "f32", rows, turned) for name in ("cos", "sin")]
        both: list[Any] = []
        for (axis, start, stop), n, pairs in zip((q, k), heads, interleaved, strict=True):
            window = ops.slice_(x, axis=axis, start=start, stop=stop)
            both.append(ops.rotary(window, *tables, heads=n, interleaved=pairs))
            g.output(f"window{start}", window)
        v = ops.slice_(x, axis=1, stop=6) if rows == 6 else ops.slice_(x, axis=2, stop=4)
        q_heads, kv_heads = (int(y.type.shape[-1]) // 4 for y in both)
        attended = ops.attention(*both, v, heads=q_heads, kv_heads=kv_heads, scale=1)
        g.output("y", attended)
    result, (report,) = run_pipeline(g.build(), [PASSES["fuse-rotary"]()], prove=True)
    assert report.applied == ({"merge-rotary": 1} if merged else {})
    assert len([node for node in result.nodes if node.op == "rotary"]) == (1 if merged else 2)
