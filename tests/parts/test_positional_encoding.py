"""Positional encoding: every kind against the formulas of the papers, written out in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from helpers.formulas import check, graph_of, params
from helpers.part_graphs import X as INPUT
from helpers.reference import run_graph
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import blocks
from tfgraph.backends.tvm.cpu.kernels import CpuKernels
from tfgraph.backends.tvm.emitters import lower
from tfgraph.backends.tvm.target import cpu_machine
from tfgraph.blocks import LinearScaling, Llama3Scaling, YarnScaling
from tfgraph.errors import TfgraphError
from tfgraph.ir import Graph
from tfgraph.ir.mask import causal
from tfgraph.ops import REGISTRY, Builder, Traced, graph, in_float64, verify
from tfgraph.passes import DEFAULT_PIPELINE, parse_pipeline, run_pipeline
from tfgraph.weights import sinusoidal_table

RNG = np.random.default_rng(4)


def turned(x: Any, positions: Any, frequencies: Any, interleaved: bool) -> Any:
    """x [batch, length, heads, d] turned as complex numbers, the first 2 * len(frequencies)
    elements of each head. Su et al. 2021, equation 13."""
    n = len(frequencies)
    out = np.array(x, np.float64)
    first = slice(0, 2 * n, 2) if interleaved else slice(0, n)
    second = slice(1, 2 * n, 2) if interleaved else slice(n, 2 * n)
    phase = np.exp(1j * np.asarray(positions)[:, None, None] * frequencies)
    z = (out[..., first] + 1j * out[..., second]) * phase
    out[..., first], out[..., second] = z.real, z.imag
    return out


def frequencies(size: int, base: float = 10000.0) -> Any:
    return np.array([base ** (-2 * i / size) for i in range(size // 2)])


def rotary_graph(dtype: str = "f64", heads: int = 2, **options: Any) -> Graph:
    with graph("g") as g:
        g.symbol("seq", 1, 9)
        x = g.input("x", dtype, "batch", "seq", heads * 8)
        tables = blocks.rotary_tables(options.pop("size", 8), positions=9, dtype=dtype, **options)
        g.output("y", tables.rows("seq").turn(x, heads))
    found = g.build()
    verify(found)
    return found


@pytest.mark.parametrize("size", [8, 4, 2])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("base", [10000, 500.0])
def test_rotary(size: int, interleaved: bool, base: float) -> None:
    x = RNG.standard_normal((2, 7, 16))
    g = rotary_graph(size=size, interleaved=interleaved, base=base)
    got = run_graph(g, {"x": x})["y"]
    want = turned(x.reshape(2, 7, 2, 8), range(7), frequencies(size, base), interleaved)
    assert_close(got, want.reshape(2, 7, 16), length=4)
    assert_close(got[..., 0, :], x[..., 0, :], length=1)  # position 0 stays


def test_rotary_depends_on_distances_alone() -> None:
    """The product of a query and a key turned is that of others as far apart."""
    q, k = RNG.standard_normal((2, 8))
    x = np.tile(np.concatenate([q, k]), (1, 7, 1))
    y = run_graph(rotary_graph(), {"x": x})["y"][0]
    products = y[:, :8] @ y[:, 8:].T
    for distance in range(-6, 7):
        same = np.diagonal(products, distance)
        assert_close(same, np.full_like(same, same[0]), length=16, scale=16.0)
    assert np.ptp(products[0]) > 0.1


def llama3(f: float, factor: float, original: int, low: float, high: float) -> float:
    """By wavelengths and their three cases, as its authors published it."""
    wavelength = 2 * math.pi / f
    if wavelength < original / high:
        return f
    if wavelength > original / low:
        return f / factor
    smooth = (original / wavelength - low) / (high - low)
    return (1 - smooth) * f / factor + smooth * f


def test_scaled_frequencies() -> None:
    x = RNG.standard_normal((1, 9, 16))
    heads = x.reshape(1, 9, 2, 8)
    linear = rotary_graph(scaling=LinearScaling(4))
    want = turned(heads, range(9), frequencies(8) / 4, False)
    assert_close(run_graph(linear, {"x": x})["y"], want.reshape(x.shape), length=4)

    own = [llama3(f, 8.0, 64, 1.0, 4.0) for f in frequencies(8, 50.0)]
    shares = [o / f for o, f in zip(own, frequencies(8, 50.0), strict=True)]
    assert shares[0] == 1 > shares[1] > shares[2] > shares[3] == 1 / 8  # each of the three cases
    graph_ = rotary_graph(scaling=Llama3Scaling(8, 64, 1, 4), base=50)
    want = turned(heads, range(9), np.array(own), False)
    assert_close(run_graph(graph_, {"x": x})["y"], want.reshape(x.shape), length=8)


def yarn(size: int, base: float, factor: float, original: int, low: float, high: float) -> Any:
    """Peng et al. 2023, equations 17 to 22, over pairs as their implementation has it: the number
    of a pair by its turns, with whole numbers at both ends."""

    def pair(turns: float) -> float:
        return size * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    first, last = max(math.floor(pair(high)), 0), min(math.ceil(pair(low)), size - 1)
    ramp = np.clip((np.arange(size // 2) - first) / (last - first), 0, 1)
    f = frequencies(size, base)
    return f / factor * ramp + f * (1 - ramp)


def test_frequencies_scaled_by_pairs() -> None:
    x = RNG.standard_normal((1, 9, 16))
    own = yarn(8, 50.0, 8.0, 256, 1.0, 10.0)
    shares = own / frequencies(8, 50.0)
    assert shares[0] == shares[1] == 1 > shares[2] > shares[3] > 1 / 8
    for magnitude, grown in ((None, 0.1 * math.log(8) + 1), (2, 2.0)):
        scaling = YarnScaling(8, 256, 1, 10, magnitude=magnitude)
        graph_ = rotary_graph(scaling=scaling, base=50)
        want = grown * turned(x.reshape(1, 9, 2, 8), range(9), own, False)
        assert_close(run_graph(graph_, {"x": x})["y"], want.reshape(x.shape), length=8)


def test_tables_are_rounded_once() -> None:
    """Angles are formed in float64: at position 100,000 float32 would be off by 0.004."""
    with graph("g") as g:
        g.output("y", blocks.rotary_tables(2, positions=100_001).cos)
    made = g.build()
    assert made.weight_values >= {made.outputs[0].value}
    got = run_graph(made, {"like": np.zeros((), np.float32)})["y"]
    want = np.cos(np.arange(100_001, dtype=np.float64)).astype(np.float32)[:, None]
    np.testing.assert_array_equal(got, want)


def test_rows_by_position() -> None:
    """`at` takes rows by number, `rows` from an offset: what a cache and left padding need."""
    with graph("g") as g:
        g.symbol("past", 1, 3)
        x = g.input("x", "f64", "batch", "seq", 8)
        ids = g.input("positions", "i64", "batch", "seq")
        tables = blocks.rotary_tables(8, positions=9, dtype="f64")
        g.output("at", tables.at(ids).turn(x, 1))
        cached = g.input("cached", "f64", "batch", "past", 8)
        g.output("after", tables.rows("past", 3).turn(cached, 1))
    x = RNG.standard_normal((2, 3, 8))
    positions = np.array([[0, 1, 2], [5, 8, 0]])
    got = run_graph(g.build(), {"x": x, "positions": positions, "cached": x})
    for b in range(2):
        want = turned(x[b : b + 1, :, None], positions[b], frequencies(8), False)
        assert_close(got["at"][b], want[0, :, 0], length=4)
    want = turned(x[:, :, None], [3, 4, 5], frequencies(8), False)
    assert_close(got["after"], want[:, :, 0], length=4)


@pytest.mark.parametrize("options", [
    {}, {"interleaved": True}, {"size": 4}, {"scaling": Llama3Scaling(8, 64)},
])  # fmt: skip
def test_attention_fuses_around_rotary(options: dict[str, Any]) -> None:
    with graph("g") as g:
        g.symbol("seq", 1, 16)
        x = g.input("x", "f32", "batch", "seq", 32)
        tables = blocks.rotary_tables(options.pop("size", 8), positions=16, **options)
        rotary = tables.rows("seq")
        y = blocks.attention(
            x, x, x, heads=4, kv_heads=2, rotary=rotary, mask=causal(), qk_norm=blocks.Norm()
        )
        g.output("y", y)
    made = g.build()
    fused, _ = run_pipeline(made, parse_pipeline(DEFAULT_PIPELINE))
    ops = [node.op for node in fused.nodes]
    assert (ops.count("attention"), ops.count("rotary"), ops.count("softmax")) == (1, 2, 0)
    assert "transpose" not in ops
    inputs = {"x": RNG.standard_normal((2, 5, 32)).astype(np.float32)}
    weights = {
        p.value.name: RNG.standard_normal(tuple(map(int, p.value.type.shape))) for p in made.params
    }
    weights = {name: w.astype(np.float32) for name, w in weights.items()}
    wide = {n: a.astype(np.float64) for n, a in (inputs | weights).items()}
    want = run_graph(in_float64(made), wide)["y"]
    got = tfgraph.compile(made, "cpu", weights=weights)(**inputs)["y"]
    assert_close(got, want, length=100)


@pytest.mark.parametrize("options", [
    {}, {"interleaved": True}, {"size": 4}, {"size": 6},
])  # fmt: skip
def test_projections_merge_under_rotary(options: dict[str, Any]) -> None:
    """The kernel turns columns of the merged result where they are, and nothing is copied."""
    with graph("g") as g:
        g.symbol("seq", 1, 16)
        x = g.input("x", "f32", "batch", "seq", 32)
        rotary = blocks.rotary_tables(options.pop("size", 8), positions=16, **options).rows("seq")
        g.output("y", blocks.attention(x, x, x, heads=4, kv_heads=2, rotary=rotary))
    made = g.build()
    fused, _ = run_pipeline(made, parse_pipeline(DEFAULT_PIPELINE))
    assert [node.op for node in fused.nodes].count("linear") == 2
    params = {p.value.name: tuple(map(int, p.value.type.shape)) for p in made.params}
    weights = {n: (RNG.standard_normal(s) / 4).astype(np.float32) for n, s in params.items()}
    inputs = {"x": RNG.standard_normal((2, 5, 32)).astype(np.float32)}
    wide = {n: a.astype(np.float64) for n, a in (inputs | weights).items()}
    want = run_graph(in_float64(made), wide)["y"]
    run = tfgraph.compile(made, "cpu", weights=weights)
    assert_close(run(**inputs)["y"], want, length=100)
    single = run(x=inputs["x"][1:])["y"]
    np.testing.assert_array_equal(single[0], run(**inputs)["y"][1])
    kernels = lower(fused, weights, CpuKernels(cpu_machine())).report.applied
    assert "slice" not in kernels, "rows of the tables, too, are read where they are"
    assert sum(n for name, n in kernels.items() if name.startswith("rotary")) == 1


def slopes_of(heads: int) -> list[float]:
    """As the authors of ALiBi publish them."""

    def power_of_two(n: int) -> list[float]:
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(heads).is_integer():
        return power_of_two(heads)
    closest = 2 ** math.floor(math.log2(heads))
    return power_of_two(closest) + power_of_two(2 * closest)[0::2][: heads - closest]


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 6, 8, 12, 16, 20])
def test_alibi_slopes(heads: int) -> None:
    with graph("g") as g:
        g.output("y", blocks.alibi_slopes(heads, dtype="f64"))
    got = run_graph(g.build(), {"like": np.zeros(())})["y"]
    assert_close(got, np.array(slopes_of(heads)), length=4)


def test_sinusoidal_layouts() -> None:
    """Both layouts hold the same numbers; their dot products depend on the distance alone."""
    angles = np.arange(9)[:, None] / 10000 ** (np.arange(0, 6, 2) / 6)
    halves = sinusoidal_table(9, 6, halves=True)
    assert_close(halves, np.concatenate([np.sin(angles), np.cos(angles)], 1))
    interleaved = sinusoidal_table(9, 6)
    np.testing.assert_array_equal(interleaved[:, [0, 2, 4, 1, 3, 5]], halves)
    products = halves @ halves.T
    for distance in range(9):
        same = np.diagonal(products, distance)
        assert_close(same, np.full_like(same, same[0]), length=12)
    odd = sinusoidal_table(3, 5, halves=True)
    np.testing.assert_array_equal(odd, sinusoidal_table(3, 5)[:, [0, 2, 4, 1, 3]])


def test_embeddings_and_positions() -> None:
    ids = np.array([[3, 1, 4, 1], [2, 0, 0, 0]])

    def make(g: Builder) -> Traced:
        t = g.input("ids", "i64", "batch", "seq")
        x = blocks.embedding(t, 5, 6, scale=3, dtype="f64")
        x = x + blocks.sinusoidal("seq", 6, positions=9, dtype="f64", name="sines")
        x = x + blocks.learned("seq", 6, positions=9, offset=2, dtype="f64", name="learned")
        at = blocks.positions_of(t, 0)
        return x + blocks.embedding(at, 9, 6, dtype="f64", name="counted")

    g = graph_of(make)
    p = params(g) | {"sines": sinusoidal_table(9, 6)}
    where = [[1, 2, 3, 4], [1, 0, 0, 0]]  # padding 0 stands at position 0, tokens count from 1
    expected = 3 * p["embeddings.tokens"][ids] + p["learned"][2:6] + p["counted"][np.array(where)]
    for position in range(4):
        for i in range(3):
            angle = position / 10000 ** (2 * i / 6)
            expected[:, position, 2 * i] += math.sin(angle)
            expected[:, position, 2 * i + 1] += math.cos(angle)
    check(g, p | {"ids": ids}, expected)


def test_positions_are_what_tells_the_order(run: Any) -> None:
    order = RNG.permutation(7)
    want, got = run(), run(INPUT[:, order])
    assert_close(got["bare"], want["bare"][:, order], length=200)
    assert np.abs(got["placed"] - want["placed"][:, order]).max() > 0.1
    twice = INPUT.copy()
    twice[:, 5] = twice[:, 2]
    maps = run(twice)["of_bare.probabilities"]
    assert_close(maps[..., 5], maps[..., 2], length=100)


def test_mistakes() -> None:
    with graph("g") as g:
        x = g.input("x", "f32", "batch", 4, 16)
        tables = blocks.rotary_tables(8, positions=3)
        for wrong, message in (
            (
                lambda: blocks.rotary_tables(7, positions=3),
                "the rotary size is 7, expected an even",
            ),
            (lambda: blocks.rotary_tables(8, positions=0), "the number of positions is 0"),
            (lambda: blocks.rotary_tables(8, positions=3, base=-1), "base is -1, expected a pos"),
            (lambda: blocks.rotary_tables(8, positions=3, base=0.5), "base is 0.5, expected at"),
            (lambda: tables.rows(4), "4 positions from 0 on, but the tables have 3"),
            (lambda: tables.rows(3).turn(x, 2), "expected cos and sin of [4,r/2]"),
            (lambda: blocks.rotary_tables(8, positions=4).turn(x, 3), "3 heads do not divide"),
            (lambda: blocks.rotary_tables(8, positions=4).turn(x, 4), "cos has 4 columns, which"),
            (lambda: YarnScaling(8, 64, 4, 1).apply(x, 9), "low is 4, expected less than high, 1"),
            (lambda: YarnScaling(8, 64).apply(tables.cos, 1), "base is 1, expected more than 1"),
            (
                lambda: Llama3Scaling(8, 64, 4, 1).apply(x, 9),
                "low is 4, expected less than high, 1",
            ),
        ):
            with pytest.raises(TfgraphError) as caught:
                wrong()
            assert message in caught.value.message
    assert REGISTRY["rotary"].kind == "composite"
