"""End-to-end bounds: above what is observed, and not far above."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

import tfgraph
from tfgraph import ops
from tfgraph.api.source import open_source
from tfgraph.backends.base import Target, input_ports
from tfgraph.backends.numpy import NumpyExecutable
from tfgraph.backends.rounding import UNITS, Rounding
from tfgraph.backends.tvm.cpu.backend import CpuBackend
from tfgraph.rounding import end_to_end, spreads
from tfgraph.rounding.draws import DRAWS, MISSES, Noise, factor
from tfgraph.runtime.examples import example
from tfgraph.weights import Seeded

if TYPE_CHECKING:
    from tfgraph.ir import Graph
    from tfgraph.ops import Traced

NDArray = np.ndarray[Any, Any]
ROOT = Path(__file__).parents[2]
U = UNITS["float32"]


def test_the_factor_is_missed_as_rarely_as_it_says() -> None:
    """Against simulated normal numbers, where misses are common enough to be counted."""
    rng = np.random.default_rng(0)
    for draws, misses in ((4, 1e-2), (16, 1e-3)):
        others = np.abs(rng.standard_normal((400_000, draws))).max(axis=1)
        seen = np.mean(np.abs(rng.standard_normal(400_000)) > factor(draws, misses) * others)
        assert 0.02 * misses < seen <= misses
    assert factor(DRAWS, MISSES) == pytest.approx(5.42, abs=0.01)


def test_equal_numbers_round_alike_and_others_at_random() -> None:
    noise, few = Noise(0), 5 / math.sqrt(1000)
    x = np.repeat(np.linspace(1, 2, 1000), 3).reshape(1000, 3)
    drawn = noise.of(x)
    assert drawn.shape == (DRAWS, 1000, 3)
    assert (drawn == drawn[..., :1]).all()
    assert np.abs(drawn[..., 0].mean(axis=1)).max() < few
    assert np.abs(drawn[..., 0].std(axis=1) - 1).max() < few
    assert np.abs(np.corrcoef(drawn[..., 0]) - np.eye(DRAWS)).max() < few
    assert (noise.of(x) != drawn).any()  # another step


def float32_chain(x: NDArray, w: NDArray) -> NDArray:
    """x w, one product after another, each addition rounded to float32."""
    total = np.zeros((len(x), w.shape[1]), np.float32)
    for k in range(x.shape[1]):
        total += x[:, k : k + 1] * w[k]
    return total


@pytest.mark.parametrize("distinct", [256, 16, 3, 1])
@pytest.mark.parametrize("mean", [0, 1])
def test_the_size_of_a_sum_s_roundings(mean: float, distinct: int) -> None:
    """Against a sum in float32, of terms of any sign and of one sign, all different or alike."""
    rng = np.random.default_rng(0)
    n, rows = 256, 64
    x = np.tile(rng.standard_normal((rows, distinct)) + 3 * mean, -(-n // distinct))[:, :n]
    w = np.tile(rng.standard_normal((32, distinct)) + 3 * mean, -(-n // distinct))[:, :n].T
    x, w = x.astype(np.float32), w.astype(np.float32)
    with ops.graph("sums") as g:
        given = g.input("x", "f32", rows, n)
        product = ops.matmul(given, g.input("w", "f32", n, 32))
        g.output("product", cast("Traced", product))
        g.output("running", cast("Traced", ops.cumsum(given, axis=1)))
    bounds = end_to_end(g.build(), {}, {"x": x, "w": w}, {}, None)
    running = np.zeros_like(x)
    for k in range(n):
        running[:, k] = running[:, k - 1] + x[:, k]
    wide = x.astype(np.float64)
    observed = {
        "product": np.abs(float32_chain(x, w) - wide @ w.astype(np.float64)).max(),
        "running": np.abs(running - wide.cumsum(axis=1)).max(),
    }
    for name, bound in zip(observed, bounds.values(), strict=True):
        # A few errors that all terms share are bounded and not normal: they stay further below.
        far = 20 if distinct == n else 40
        assert 2 * observed[name] < bound < far * observed[name]


def model(name: str) -> tuple[Graph, dict[str, NDArray]]:
    opened = open_source(ROOT / name)
    seeded = Seeded(opened.graph.params)
    names = [p.value.name for p in opened.graph.params]
    return opened.graph, {name: np.asarray(seeded[name]) for name in names}


def test_a_model_is_within_a_bound_that_is_not_far() -> None:
    """The reference, which rounds once an op, against float64."""
    graph, weights = model("examples/encoder.yaml")
    sizes = {"batch": 1, "seq": 5}
    feeds = {port.name: example(port, sizes, 0) for port in input_ports(graph)}
    (output,) = graph.outputs
    bounds = [
        spreads(graph, weights, feeds, sizes, Target(name), dtype=dtype)[output.value.name].bound
        for name, dtype in (("numpy", "float64"), ("cpu", "float32"))
    ]
    rounded = NumpyExecutable(graph, weights)(**feeds)[output.name]
    exact = NumpyExecutable(graph, weights, exact=True)(**feeds)[output.name]
    observed = float(np.abs(rounded - exact).max())
    assert 2 * observed < bounds[0] < 30 * observed
    assert bounds[0] < bounds[1]  # the CPU rounds within its ops too


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1])
def test_bert_base_is_within_a_bound_that_is_not_far(
    seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The CPU's kernels, at the size that people run: 12 layers of width 768."""
    graph, weights = model("examples/bert-base.yaml")
    sizes = {"batch": 1, "seq": 16}
    feeds = {port.name: example(port, sizes, seed) for port in input_ports(graph)}
    bounds = end_to_end(graph, weights, feeds, sizes, "cpu")
    exact = NumpyExecutable(graph, weights, exact=True)(**feeds)
    with tfgraph.compile(graph, "cpu", weights=weights) as run:
        rounded = run(**feeds)
    for output in graph.outputs:
        observed = float(np.abs(rounded[output.name] - exact[output.name]).max())
        ratio = bounds[output.value.name] / observed
        with capsys.disabled():
            print(f"\n{output.name}: error {observed:.2e}, its bound is {ratio:.1f} times that")
        assert 2 < ratio < 30


def test_the_bound_grows_with_the_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 1024)).astype(np.float32)
    with ops.graph("sum") as g:
        g.output("y", cast("Traced", ops.sum_(g.input("x", "f32", 8, 1024), axis=-1)))
    graph = g.build()
    (short,) = end_to_end(graph, {}, {"x": x}, {}, "cpu").values()
    monkeypatch.setattr(CpuBackend, "rounding", lambda *_: Rounding())
    (long,) = end_to_end(graph, {}, {"x": x}, {}, "cpu").values()
    assert list(end_to_end(graph, {}, {"x": x}, {}, "cpu").values()) == [long]  # a fixed seed
    assert 2 < long / short < 6  # the root of 1024 / 67, about


def test_what_roundings_may_turn_has_no_bound() -> None:
    with ops.graph("ties") as g:
        x = g.input("x", "f32", 4)
        y = ops.mul(x, 3)
        results = {
            "sure": ops.where(ops.less(x, 1), x, ops.neg(x)),
            "near": ops.where(ops.less(y, 3), x, ops.neg(x)),
            "far": ops.where(ops.less(y, 3.5), x, ops.neg(x)),
            "floor": ops.floor(y),
            "order": ops.topk(y, k=2)[1],
            "quotient": ops.div(x, ops.sub(y, 3)),
        }
        for name, result in results.items():
            g.output(name, cast("Traced", result))
    graph = g.build()
    found = end_to_end(graph, {}, {"x": np.array([0.5, 1, 2, 2], np.float32)}, {}, "cpu")
    unsure = {o.name: math.isinf(found[o.value.name]) for o in graph.outputs}
    assert unsure == {
        "sure": False, "near": True, "far": False, "floor": True, "order": False, "quotient": True
    }  # fmt: skip
