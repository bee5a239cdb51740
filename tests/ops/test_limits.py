"""What ops ask of symbolic sizes, and when the ranges of the symbols answer it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tfgraph import ops
from tfgraph.ir import as_dim
from tfgraph.ops import graph
from tfgraph.ops.limits import implied_constraints

if TYPE_CHECKING:
    from tfgraph.ir import DimLike


def implied(start: DimLike, stop: DimLike, rows: DimLike, high: int = 65536) -> list[str]:
    """The constraints of a window of an axis of `rows`, in a graph that knows n and m."""
    with graph("window") as g:
        g.symbol("n", 1, high)
        g.input("knows", "f32", "n", "m")
        g.output("y", ops.slice_(g.input("x", "f32", rows), axis=0, start=start, stop=stop))
    return [str(c) for c in implied_constraints(g.build())]


@pytest.mark.parametrize(
    ("start", "stop", "rows", "want"),
    [
        (0, "n", "n", []),
        (0, "n", as_dim("n") + "m", []),
        ("m", as_dim("n") + "m", as_dim("n") + "m", []),
        (0, "n", 16, ["n <= 16"]),
        (0, as_dim("n") * 2 + 1, 16, ["2*n <= 15"]),
        (0, "m", "n", ["m <= n"]),
        (1, "n", "n", ["2 <= n"]),
        ("m", "n", "n", ["m + 1 <= n"]),
        (0, as_dim("n") // 2, "n", ["n//2 <= n", "1 <= n//2"]),
    ],
)
def test_a_window_lies_within_its_axis_and_is_not_empty(
    start: DimLike, stop: DimLike, rows: DimLike, want: list[str]
) -> None:
    assert implied(start, stop, rows) == want


def test_what_a_range_proves_is_not_asked() -> None:
    assert implied(0, "n", 16, high=17) == ["n <= 16"]
    assert implied(0, "n", 16, high=16) == []


def test_what_the_graph_states_is_not_repeated() -> None:
    with graph("stated") as g:
        g.constrain("k", "<=", 8)
        x = g.input("x", "f32", 8)
        g.output("y", ops.add(ops.slice_(x, axis=0, stop="k"), g.input("z", "f32", "k")))
    assert implied_constraints(g.build()) == ()


def test_topk_needs_k_elements() -> None:
    with graph("topk") as g:
        g.output("y", ops.topk(g.input("x", "f32", "n"), k=3)[0])
    assert [str(c) for c in implied_constraints(g.build())] == ["3 <= n"]
