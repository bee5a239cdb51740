"""Isolated bounds at BERT-base size: the right kernels stay within, planted faults do not."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from tfgraph import ops
from tfgraph.backends.base import Target, find_backend
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.backends.rounding import Accuracy, Rounding
from tfgraph.backends.tvm.cpu.backend import CpuBackend
from tfgraph.ir import DType, rsqrt
from tfgraph.ir.mask import causal
from tfgraph.rounding import isolated_bounds
from tfgraph.rounding.bounded import Bounded
from tfgraph.rounding.carried import SLOPES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgraph.ir import ExactLike, Graph
    from tfgraph.ops import Traced

NDArray = np.ndarray[Any, Any]
WIDTH, FFN, HEADS, ROWS = 768, 3072, 12, 4


def layer(
    eps: float = 1e-12,
    activation: str = "gelu",
    scale: ExactLike | None = None,
    bias: bool = True,
    masked: bool = True,
) -> Graph:
    """The kernels of one layer of BERT-base, each on inputs of its own; under a mask, which hides
    keys from all queries but one."""
    with ops.graph("layer") as g:
        x, a, b = (g.input(name, "f32", "rows", WIDTH) for name in ("x", "a", "b"))
        q, k, v = (g.input(name, "f32", 1, "rows", WIDTH) for name in "qkv")
        w, row = g.param("w", "f32", WIDTH, FFN), g.param("row", "f32", FFN)
        s, t = g.param("s", "f32", WIDTH), g.param("t", "f32", WIDTH)
        given = (row,) if bias else ()
        given_mask = (causal(),) if masked else ()
        scale = scale or rsqrt(64)
        attended = ops.attention(q, k, v, *given_mask, heads=HEADS, kv_heads=HEADS, scale=scale)
        g.output("ffn", cast("Traced", ops.linear_activation(x, w, *given, activation=activation)))
        gated = ops.gated_linear(x, g.param("up", "f32", WIDTH, WIDTH), a, s)
        g.output("gated", cast("Traced", gated))
        g.output("norm", cast("Traced", ops.add_layer_norm(a, b, s, t, eps=eps)))
        g.output("attention", cast("Traced", attended))
    return g.build()


@cache
def weights() -> dict[str, NDArray]:
    rng = np.random.default_rng(0)
    sizes = {"w": 0.02, "up": 0.02, "row": 0.02, "s": 0.1, "t": 0.1}
    made = {
        p.value.name: sizes[p.value.name]
        * rng.standard_normal([int(d) for d in p.value.type.shape])
        for p in layer().params
    }
    made["s"] += 1
    return {name: array.astype(np.float32) for name, array in made.items()}


def feeds(variance: float) -> dict[str, NDArray]:
    """Rows whose sum has that variance."""
    rng = np.random.default_rng(1)
    made = {name: rng.standard_normal((ROWS, WIDTH)) for name in ("x", "a", "b")}
    made |= {name: rng.standard_normal((1, ROWS, WIDTH)) for name in "qkv"}
    for name in "ab":
        made[name] *= np.sqrt(variance / 2)
    return {name: array.astype(np.float32) for name, array in made.items()}


def reference(graph: Graph, variance: float) -> dict[str, NDArray]:
    """What float64 gives, rounded once an op; of a wrong graph: a fault without rounding errors."""
    given = {p.value.name: weights()[p.value.name] for p in graph.params}
    return NumpyExecutable(graph, given)(**feeds(variance))


@cache
def right(variance: float) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
    """The reference of the layer, and its bounds."""
    graph = layer()
    bounds = isolated_bounds(graph, weights(), feeds(variance), {"rows": ROWS}, "cpu")
    return reference(graph, variance), bounds


def of_bound(got: Mapping[str, NDArray], variance: float = 1.0) -> dict[str, float]:
    """The largest share of its bound that each output differs from the reference by."""
    expected, bounds = right(variance)
    return {
        name: float(np.max(np.abs(got[name].astype(np.float64) - expected[name]) / bound))
        for name, bound in bounds.items()
    }


def test_the_kernels_are_within_their_bounds() -> None:
    graph = layer()
    run = find_backend("cpu").compile(graph, weights(), Target("cpu"))
    with run:
        shares = of_bound(run(**feeds(1.0)))
    assert all(0 < share < 1 for share in shares.values()), shares


@pytest.mark.parametrize("variance", [1.0, 0.1])
def test_another_eps_is_seen(variance: float) -> None:
    shares = of_bound(reference(layer(eps=1e-5), variance), variance)
    assert shares["norm"] > 2
    assert shares["ffn"] == shares["attention"] == 0


def test_another_form_of_gelu_is_seen() -> None:
    assert of_bound(reference(layer(activation="gelu_tanh"), 1.0))["ffn"] > 10


@pytest.mark.parametrize("scale", [1, rsqrt(63)])
def test_another_scale_is_seen(scale: ExactLike) -> None:
    assert of_bound(reference(layer(scale=scale), 1.0))["attention"] > 10


def test_a_dropped_bias_is_seen() -> None:
    assert of_bound(reference(layer(bias=False), 1.0))["ffn"] > 10


def test_a_dropped_mask_is_seen_in_each_row() -> None:
    """Found by hand: a hidden score made the bound of its whole row infinite."""
    expected, bounds = right(1.0)
    assert all(np.isfinite(bound).all() for bound in bounds.values())
    apart = np.abs(reference(layer(masked=False), 1.0)["attention"] - expected["attention"])
    assert ((apart / bounds["attention"]).max(axis=(0, 2))[:-1] > 10).all()


@pytest.mark.parametrize("f", list(SLOPES))
def test_a_function_at_its_ends_has_a_bound(f: str) -> None:
    """Where an argument is rounded too: infinity times a slope of 0 is no error."""
    ends = np.array([-np.inf, np.inf, 0.0, 1.0])
    rounding = Rounding(functions={f: Accuracy(1, argument=2)})
    y = Bounded(ends, DType.float32, rounding=rounding).unary(f)
    assert np.isfinite(y.errors).all()
    assert y.errors[3] > 0


def test_a_longer_tree_would_hide_the_eps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the declared depth is good for: one product after another bounds too loosely."""
    monkeypatch.setattr(CpuBackend, "rounding", lambda *_: Rounding())
    graph = layer()
    loose = isolated_bounds(graph, weights(), feeds(1.0), {"rows": ROWS}, "cpu")
    apart_by = np.abs(reference(layer(eps=1e-5), 1.0)["norm"] - right(1.0)[0]["norm"])
    assert float(np.max(apart_by / loose["norm"])) < 1


def test_what_may_come_out_either_way_has_no_bound() -> None:
    """Comparisons of what was rounded: unsure where it is as near as that."""
    with ops.graph("ties") as g:
        x = g.input("x", "f32", 3)
        y = ops.mul(x, 3)
        g.output("sure", ops.where(ops.less(x, 1), x, ops.neg(x)))
        g.output("unsure", ops.where(ops.less(y, 3), x, ops.neg(x)))
        g.output("near", ops.where(ops.less(y, 3), x, x))
        g.output("quotient", ops.div(x, ops.sub(y, 3)))
    bounds = isolated_bounds(g.build(), {}, {"x": np.array([0.5, 1, 2], np.float32)}, {}, "cpu")
    assert bounds["sure"].tolist() == [0, 0, 0]
    assert bounds["unsure"].tolist() == [0, 2, 0]  # x or -x
    assert bounds["near"].tolist() == [0, 0, 0]
    assert np.isinf(bounds["quotient"]).tolist() == [False, True, False]


def test_a_divisor_that_overflows_makes_nothing_of_a_tiny_quotient() -> None:
    """silu(-90) is -90 / (1 + e^90), and e^90 is beyond float32: a kernel may say 0."""
    with ops.graph("silu") as g:
        g.output("y", cast("Traced", ops.silu(g.input("x", "f32", 3))))
    x = np.array([-90, -80, 1], np.float32)
    y = NumpyExecutable(g.build(), {})(x=x)["y"].astype(np.float64)
    bounds = isolated_bounds(g.build(), {}, {"x": x}, {}, "cpu")["y"]
    assert bounds[0] >= -y[0] > 0
    assert (bounds[1:] < 1e-5 * np.abs(y[1:])).all()
