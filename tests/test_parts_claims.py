"""What is said of the parts in examples/parts, at other sizes and of random inputs, on NumPy and
the CPU. What the scripts show beyond that, tests/test_parts.py holds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import blocks, ops
from tfgraph.blocks import Layer, attention, feed_forward, layer_norm, linear
from tfgraph.errors import TfgraphError
from tfgraph.ir import Output
from tfgraph.weights import Seeded

if TYPE_CHECKING:
    from tfgraph.ir import Graph

NDArray = np.ndarray[Any, Any]
WIDTH, HEADS, VOCABULARY = 24, 3, 11
RNG = np.random.default_rng(11)
X = RNG.standard_normal((2, 7, WIDTH)).astype(np.float32)
IDS = RNG.integers(2, VOCABULARY, (2, 7))


def parts() -> Graph:
    """Each part once, on the same input."""
    with tfgraph.graph("parts") as g:
        x = g.input("x", "f32", "batch", "seq", WIDTH)
        ids = g.input("ids", "i64", "batch", "seq")
        g.output("shifted", blocks.shift_right(ids, 1))
        words = blocks.token_table(VOCABULARY, WIDTH, name="words")
        y = blocks.embedding(blocks.shift_right(ids, 1), VOCABULARY, WIDTH, scale=5, table=words)
        y = blocks.decoder(y, 1, Layer(heads=HEADS, ffn=32))
        g.output("logits", blocks.lm_head(y, VOCABULARY, table=words))

        placed = x + blocks.sinusoidal("seq", WIDTH, positions=9)
        for name, y, mask in (
            ("bare", x, None), ("edited", x, None), ("placed", placed, None),
            ("causal", placed, tfgraph.causal()),
        ):  # fmt: skip
            g.output(
                name, attention(y, y, y, heads=HEADS, mask=mask, bias=False, name=f"of_{name}")
            )
        for placement in ("pre", "post"):
            layer = Layer(heads=HEADS, ffn=32, placement=placement)
            g.output(placement, blocks.encoder_layer(x, layer, name=placement))
        g.output("twice", layer_norm(layer_norm(x, name="n"), name="n"))
        g.output("no activation", feed_forward(x, 40, activation="none", bias=False, name="none"))
        y = x
        for _ in range(3):
            y = layer_norm(y + feed_forward(y, 32))
        g.output("apart", y)
        g.output("linear", linear(x, 10, name="linear"))
        g.output("surgery", linear(x, 10, name="surgery"))
        g.output("softmax", ops.softmax(x))
    graph = g.build()
    maps = [
        v for v in graph.values() if v.name in ("of_bare.probabilities", "of_edited.probabilities")
    ]
    return replace(graph, outputs=(*graph.outputs, *(Output(v.name, v) for v in maps)))


def edited(graph: Graph) -> dict[str, NDArray]:
    """Seeded weights; head 1 of `edited` is another, sublayers are zero, row 4 of `surgery` too."""
    made = {name: w.copy() for name, w in Seeded(graph.params).items()}
    for part in ("q", "k", "v", "out"):
        made[f"of_edited.{part}.weight"] = made[f"of_bare.{part}.weight"].copy()
    made["of_edited.k.weight"][:, 8:16] += 1
    for name, w in made.items():
        if name.startswith(("pre.", "post.")) and "norm" not in name:
            w[...] = 0
        if "_norm." in name or name.startswith(("n.", "n_1.")):
            w[...] = name.endswith("scale")
    made["surgery.weight"], made["surgery.bias"] = made["linear.weight"].copy(), made["linear.bias"]
    made["surgery.weight"][4] = 0
    return made


GRAPH = parts()
WEIGHTS = edited(GRAPH)


@pytest.fixture(scope="module", params=["numpy", "cpu"])
def run(request: pytest.FixtureRequest) -> Any:
    model = tfgraph.compile(GRAPH, request.param, weights=WEIGHTS)
    return lambda x=X, ids=IDS: model(x=x, ids=ids)


def changed(a: NDArray, b: NDArray) -> NDArray:
    """Which rows [batch, seq] differ in a bit."""
    found: NDArray = (a.view(np.uint32) != b.view(np.uint32)).any(-1)
    return found


def test_a_target_is_shifted_right(run: Any) -> None:
    got = run()["shifted"]
    np.testing.assert_array_equal(got[:, 0], 1)
    np.testing.assert_array_equal(got[:, 1:], IDS[:, :-1])
    np.testing.assert_array_equal(run(X[:, :1], IDS[:, :1])["shifted"], [[1], [1]])


def test_logits_depend_on_the_targets_before_alone(run: Any) -> None:
    want = run()["logits"]
    for n in range(7):
        other = IDS.copy()
        other[:, n] = 0
        found = changed(run(ids=other)["logits"], want)
        assert not found[:, : n + 1].any(), n
        assert found[:, n + 1 :].all(), n


def test_positions_are_what_tells_the_order(run: Any) -> None:
    order = RNG.permutation(7)
    want, got = run(), run(X[:, order])
    assert_close(got["bare"], want["bare"][:, order], length=200)
    assert np.abs(got["placed"] - want["placed"][:, order]).max() > 0.1
    twice = X.copy()
    twice[:, 5] = twice[:, 2]
    maps = run(twice)["of_bare.probabilities"]
    assert_close(maps[..., 5], maps[..., 2], length=100)


def test_heads_are_separate_attentions(run: Any) -> None:
    q, k, v, out = (
        WEIGHTS[f"of_bare.{p}.weight"].astype(np.float64) for p in ("q", "k", "v", "out")
    )
    found, size = [], WIDTH // HEADS
    for h in range(HEADS):
        own = slice(h * size, (h + 1) * size)
        scores = (X @ q[:, own]) @ (X @ k[:, own]).transpose(0, 2, 1) / np.sqrt(size)
        weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        found.append(weights @ (X @ v[:, own]))
        assert_close(run()["of_bare.probabilities"][:, h], weights, length=100)
    assert_close(run()["bare"], np.concatenate(found, -1) @ out, length=200)


def test_a_head_of_other_weights_changes_no_other_map(run: Any) -> None:
    found = run()
    before, after = found["of_bare.probabilities"], found["of_edited.probabilities"]
    assert changed(before, after)[:, 1].all()
    assert not changed(before, after)[:, [0, 2]].any()


@pytest.mark.parametrize("strange", [7.0, np.inf, np.nan])
def test_the_future_reaches_nothing_earlier(run: Any, strange: float) -> None:
    other = X.copy()
    other[:, 4:] = strange
    got, want = run(other)["causal"], run()["causal"]
    assert not changed(got, want)[:, :4].any()
    assert changed(got, want)[:, 4:].all()


def test_a_sublayer_of_zeros(run: Any) -> None:
    found = run()
    np.testing.assert_array_equal(found["pre"], X)
    assert_close(found["post"], found["twice"], length=100)
    x = X.astype(np.float64)
    for _ in range(2):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    assert_close(found["twice"], x, length=100)


def test_no_activation_is_one_linear_layer(run: Any) -> None:
    up, down = (WEIGHTS[f"none.{part}.weight"].astype(np.float64) for part in ("up", "down"))
    assert_close(run()["no activation"], X @ (up @ down), length=64)


def test_without_attention_each_position_stands_alone(run: Any) -> None:
    other = X.copy()
    other[1, 3] = np.nan
    found = changed(run(other)["apart"], run()["apart"])
    assert found[1, 3]
    assert found.sum() == 1


def test_surgery_on_a_row_of_weights(run: Any) -> None:
    x = X.copy()
    x[:, ::2, 4] = 0  # where this feature is 0, its row of W does not matter
    found = run(x)
    difference = x[..., 4:5] * WEIGHTS["linear.weight"][4].astype(np.float64)
    assert_close(found["linear"] - found["surgery"], difference, length=24, scale=2.0)
    np.testing.assert_array_equal(found["linear"][:, ::2], found["surgery"][:, ::2])
    assert changed(found["linear"], found["surgery"])[:, 1::2].all()


def test_softmax_of_any_row(run: Any) -> None:
    x = X.copy()
    x[0, 0], x[0, 1, 0], x[0, 2, :5] = 1e4, -1e4, -np.inf
    x[0, 3, 1], x[0, 4, 2], x[0, 5, :] = np.inf, np.nan, -np.inf
    got = run(x)["softmax"]
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        e = np.exp(wide - wide.max(-1, keepdims=True))
        want = e / e.sum(-1, keepdims=True)
    want[0, 5] = 0  # nothing is allowed: ONNX has NaN
    assert_close(got, want, length=32)
    assert (got[0, 2, :5] == 0).all()
    assert np.isnan(got[0, 3:5]).all()
    sums = np.delete(got.reshape(-1, WIDTH), [3, 4, 5], 0).sum(-1)
    assert_close(sums, np.ones(11), length=24)


def test_mistakes() -> None:
    with tfgraph.graph("g") as g, pytest.raises(TfgraphError) as caught:
        blocks.shift_right(g.input("ids", "i64", "n"), 1)
    assert caught.value.message == "shift_right: expected ids [batch, seq], got i64[n]"
