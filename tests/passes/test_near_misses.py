"""Graphs that a rule must not fuse: each breaks one condition of one rule, and nothing else.

Every case has a twin that fuses, so that no case declines for another reason than it says.
"""

from __future__ import annotations

from typing import Any

import pytest

import tfgraph.ops as ops
from tfgraph.ir import Graph, exact
from tfgraph.passes import PASSES, run_pipeline


def fuse(graph: Graph, name: str) -> tuple[dict[str, int], list[str]]:
    """What a pass applied, and the reasons for what it declined."""
    _, (report,) = run_pipeline(graph, [PASSES[name]()])
    return report.applied, [d.reason for d in report.declined]


NORMS = ("layer_norm", "rms_norm")


def norm_graph(
    op: str,
    *,
    b: tuple[int, ...] = (2, 8),
    order: bool = False,
    moved: bool = False,
    shift: tuple[int, ...] | None = None,
    read: bool = False,
    plus: bool = True,
    constant: bool = False,
) -> Graph:
    """norm(a + b) with one thing changed."""
    with ops.graph("norm") as g:
        x, y = g.input("a", "f32", 2, 8), g.input("b", "f32", *b)
        if shift is not None:
            x = x + g.input("shift", "f32", *shift)
        total = (y + x if order else x + y) if plus else x * y
        if constant:
            total = x + 2
        summed = ops.transpose(total, perm=(1, 0)) if moved else total
        scale = g.param("scale", "f32", 2 if moved else 8)
        g.output("out", getattr(ops, op)(summed, scale))
        if read:
            g.output("sum", total)
    return g.build()


@pytest.mark.parametrize("op", NORMS)
@pytest.mark.parametrize("order", [False, True])
def test_add_norm_fuses_in_either_order(op: str, order: bool) -> None:
    applied, declined = fuse(norm_graph(op, order=order), "fuse-add-norm")
    assert sum(applied.values()) == 1
    assert not declined


@pytest.mark.parametrize("op", NORMS)
def test_add_norm_returns_a_sum_that_is_read(op: str) -> None:
    graph, (report,) = run_pipeline(norm_graph(op, read=True), [PASSES["fuse-add-norm"]()])
    assert sum(report.applied.values()) == 1
    (node,) = graph.nodes
    assert node.attrs["keep_sum"] is True
    assert len(node.outputs) == 2


@pytest.mark.parametrize("op", NORMS)
def test_add_norm_folds_a_row_in(op: str) -> None:
    graph, _ = run_pipeline(norm_graph(op, shift=(8,)), [PASSES["fuse-add-norm"]()])
    (node,) = graph.nodes
    assert [v.name for v in node.inputs] == ["a", "b", "scale", "shift"]


@pytest.mark.parametrize("op", NORMS)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"b": (8,)}, "the add broadcasts f32[2,8] with f32[8]"),
        ({"b": (1, 8)}, "the add broadcasts f32[2,8] with f32[1,8]"),
        ({"moved": True}, "the norm is over another axis: %1 moves the axes of the sum"),
        ({"plus": False}, "expected add, found %0 = mul"),
        ({"plus": False, "moved": True}, "expected add, found %0 = mul"),
        ({"constant": True}, "the add is with the constant 2"),
    ],
    ids=["row", "broadcast", "another axis", "no add", "no add, moved", "constant"],
)
def test_add_norm_declines(op: str, change: dict[str, object], reason: str) -> None:
    applied, declined = fuse(norm_graph(op, **change), "fuse-add-norm")  # type: ignore[arg-type]
    assert not applied
    assert declined == [reason]


@pytest.mark.parametrize("op", NORMS)
def test_add_norm_does_not_take_a_constant_for_a_row(op: str) -> None:
    with ops.graph("norm") as g:
        x, y = g.input("x", "f32", 2, 8), g.input("y", "f32", 2, 8)
        g.output("out", getattr(ops, op)((x + 2) + y))
    graph, (report,) = run_pipeline(g.build(), [PASSES["fuse-add-norm"]()])
    assert not report.declined
    assert [n.op for n in graph.nodes] == ["add", f"add_{op}"]


@pytest.mark.parametrize("op", NORMS)
def test_add_norm_does_not_swallow_a_shifted_sum_that_is_read(op: str) -> None:
    with ops.graph("norm") as g:
        x, y = g.input("x", "f32", 2, 8), g.input("y", "f32", 2, 8)
        shifted = x + g.param("shift", "f32", 8)
        g.output("shifted", shifted)
        g.output("out", getattr(ops, op)(shifted + y))
    graph, (report,) = run_pipeline(g.build(), [PASSES["fuse-add-norm"]()])
    assert not report.declined
    assert [n.op for n in graph.nodes] == ["add", f"add_{op}"]


def test_add_norm_does_not_take_a_matrix_for_a_row() -> None:
    graph, (report,) = run_pipeline(
        norm_graph("layer_norm", shift=(2, 8)), [PASSES["fuse-add-norm"]()]
    )
    assert sum(report.applied.values()) == 1
    assert [n.op for n in graph.nodes] == ["add", "add_layer_norm"]


def linear_graph(*, read: bool = False, between: bool = False, act: str = "gelu") -> Graph:
    """gelu(linear(x))."""
    with ops.graph("linear") as g:
        x = g.input("x", "f32", 2, 8)
        h = ops.linear(x, g.param("w", "f32", 8, 8))
        y = h * exact(2) if between else h
        g.output("y", getattr(ops, act)(y))
        if read:
            g.output("h", h)
    return g.build()


@pytest.mark.parametrize("act", ops.ACTIVATIONS)
def test_activation_fuses(act: str) -> None:
    applied, declined = fuse(linear_graph(act=act), "fuse-linear-activation")
    assert applied == {"fuse-linear-activation": 1}
    assert not declined


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"read": True}, "%0 = linear is also read by the graph's outputs"),
        ({"between": True}, "expected linear, found %1 = mul"),
        ({"act": "exp"}, ""),
    ],
)
def test_activation_declines(change: dict[str, object], reason: str) -> None:
    applied, declined = fuse(linear_graph(**change), "fuse-linear-activation")  # type: ignore[arg-type]
    assert not applied
    assert [reason] == declined if reason else not declined


def gate_graph(
    *,
    read: bool = False,
    between: bool = False,
    order: bool = False,
    bias: bool = False,
    act: str = "silu",
    gate: str = "linear",
) -> Graph:
    """linear(x) * act(linear(x)), with one thing changed."""
    with ops.graph("gate") as g:
        x = g.input("x", "f32", 2, 8)
        up = ops.linear(x, g.param("w", "f32", 8, 6), *([g.param("b", "f32", 6)] if bias else []))
        h = ops.neg(up) if between else up
        gates = {
            "linear": lambda: getattr(ops, act)(ops.linear(x, g.param("v", "f32", 8, 6))),
            "input": lambda: g.input("gate", "f32", 2, 6),
            "row": lambda: g.param("row", "f32", 6),
            "wider": lambda: g.input("wider", "f32", 3, 2, 6),
            "itself": lambda: h,
            "of itself": lambda: ops.sigmoid(h),
        }
        if gate == "constant":
            g.output("y", h * exact(2))
        else:
            other = gates[gate]()
            g.output("y", other * h if order else h * other)
        if read:
            g.output("h", up)
    return g.build()


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize(
    "change", [*({"act": act} for act in ops.ACTIVATIONS), {"bias": True}, {"gate": "input"}]
)
def test_a_gate_fuses(change: dict[str, Any], order: bool) -> None:
    graph, (report,) = run_pipeline(
        gate_graph(order=order, **change), [PASSES["fuse-gated-linear"]()]
    )
    assert report.applied == {"fuse-gated-linear": 1}
    assert not report.declined
    assert graph.nodes[-1].op == "gated_linear"
    names = ["w", "gate" if change.get("gate") else graph.nodes[-2].output.name]
    assert [v.name for v in graph.nodes[-1].inputs] == [
        "x",
        *names,
        *["b"] * bool(change.get("bias")),
    ]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"read": True}, "%0 = linear is also read by the graph's outputs"),
        ({"between": True, "gate": "input"}, ""),
        ({"gate": "constant"}, "gated_linear: 'gate' must be a tensor, not a number"),
        ({"gate": "row"}, "gated_linear: the gate is f32[6], expected f32[2,6]"),
        ({"gate": "wider"}, "gated_linear: the gate is f32[3,2,6], expected f32[2,6]"),
        ({"gate": "itself"}, "the linear is its own gate: it would be computed twice"),
        ({"gate": "of itself"}, "%0 = linear is also read by %1 = sigmoid"),
    ],
)
def test_a_gate_declines(change: dict[str, Any], reason: str) -> None:
    applied, declined = fuse(gate_graph(**change), "fuse-gated-linear")
    assert not applied
    assert [reason] == declined if reason else not declined
