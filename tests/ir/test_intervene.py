"""`Graph.intervene`: equal to the graph whose weights were edited by hand, on every backend."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import blocks
from tfgraph.backends import Target
from tfgraph.ops import verify
from tfgraph.passes import DEFAULT_PIPELINE, parse_pipeline, run_pipeline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgraph import Graph, Model

    NDArray = np.ndarray[Any, Any]
    Weights = dict[str, NDArray]

DECODER = """\
kind: decoder
layers: 2
width: 24
heads: 4
kv_heads: 2
head_size: 8
attention: {value_size: 5}
ffn: 20
gated: true
activation: silu
vocabulary: 30
positions: rotary
head: lm
symbols: {seq: {max: 16}}
"""
TRANSLATOR = """\
kind: encoder-decoder
layers: 1
width: 16
heads: 2
ffn: 12
vocabulary: 30
positions: sinusoidal
head: lm
"""
ROW = np.random.default_rng(4).normal(size=24).astype(np.float32)
LENGTH = 424
"""Roundings in a row of two layers and the head of DECODER, the longest: 24 in each of q, v, three
norms, up and the head, 8 in a score, 8 in the softmax and its sum, 20 in each of out and down."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def model_of(text: str, folder: Path) -> Model:
    path = folder / "m.yaml"
    path.write_text(text)
    return tfgraph.load_source(str(path))


@pytest.fixture(scope="module")
def decoder(folder: Path) -> Model:
    return model_of(DECODER, folder)


@pytest.fixture(scope="module")
def translator(folder: Path) -> Model:
    return model_of(TRANSLATOR, folder)


def outputs(
    graph: Graph, weights: Mapping[str, NDArray], backend: str = "numpy", **inputs: Any
) -> list[NDArray]:
    """The results in order; inputs left out are made, of size 3."""
    own = {param.value.name: weights[param.value.name] for param in graph.params}
    with tfgraph.compile(graph, backend, weights=own) as model:
        dims = dict.fromkeys(model.symbols, 3)
        told = {size for port in model.inputs for size in port.shape}
        rest = {name: size for name, size in dims.items() if name not in told}
        return list(model(dims=rest, **{**model.example(dims), **inputs}).values())


def by_hand(model: Model) -> Weights:
    return {name: np.array(array) for name, array in model.weights.items()}


# One model, every kind of edit. The hand's edits are plain NumPy.

EDITS: dict[str, Any] = {
    "layers.0.heads.2": 0,
    "layers.1.attention.heads.3": 0.5,
    "layers.1.heads.0": 0,
    "layers.0.ffn.17": 0,
    "layers.0.ffn.3": -2,
    "layers.1.ffn.down.weight[4]": ROW,
    "layers.1.ffn.gate.weight[:,6]": ROW,
    "layers.0.attention.q.weight[5]": [i / 16 for i in range(32)],
    "layers.0.attention.q.weight[7]": 0,
    "layers.1.attention_norm.scale[2]": 1.5,
    "embeddings.tokens[9]": ROW,
}


def edit(w: Weights) -> None:
    w["layers.0.attention.out.weight"][10:15] = 0
    w["layers.1.attention.out.weight"][15:20] *= 0.5
    w["layers.1.attention.out.weight"][:5] = 0
    w["layers.0.ffn.down.weight"][17] = 0
    w["layers.0.ffn.down.weight"][3] *= -2
    w["layers.1.ffn.down.weight"][4] = ROW
    w["layers.1.ffn.gate.weight"][:, 6] = ROW
    w["layers.0.attention.q.weight"][5] = np.arange(32) / 16
    w["layers.0.attention.q.weight"][7] = 0
    w["layers.1.attention_norm.scale"][2] = 1.5
    w["embeddings.tokens"][9] = ROW


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_equals_weights_edited_by_hand(decoder: Model, backend: str) -> None:
    weights = by_hand(decoder)
    edit(weights)
    ids = np.array([[9, 1, 9, 4], [2, 9, 3, 3]])
    (got,) = outputs(decoder.graph.intervene(EDITS), decoder.weights, backend, input_ids=ids)
    (want,) = outputs(decoder.graph, weights, input_ids=ids)
    (before,) = outputs(decoder.graph, decoder.weights, input_ids=ids)
    assert_close(got, want, length=LENGTH)
    if backend == "numpy":  # powers of two scale exactly, and what is 0 adds nothing
        np.testing.assert_array_equal(got, want)
    assert np.abs(got - before).max() > 0.1


@pytest.mark.parametrize(
    ("name", "value", "weight", "rows"),
    [
        ("encoder.layers.0.heads.1", 0.3, "encoder.layers.0.attention.out.weight", np.s_[8:]),
        ("decoder.layers.0.heads.0", 0.3, "decoder.layers.0.attention.out.weight", np.s_[:8]),
        ("decoder.layers.0.cross_attention.heads.1", 1 / 3,
         "decoder.layers.0.cross_attention.out.weight", np.s_[8:]),
        ("encoder.layers.0.ffn.11", -1.7, "encoder.layers.0.ffn.down.weight", np.s_[11]),
    ],
)  # fmt: skip
def test_a_factor_scales_what_leaves(
    translator: Model, name: str, value: float, weight: str, rows: Any
) -> None:
    weights = by_hand(translator)
    weights[weight][rows] *= np.float32(value)
    (got,) = outputs(translator.graph.intervene({name: value}), translator.weights)
    (want,) = outputs(translator.graph, weights)
    (before,) = outputs(translator.graph, translator.weights)
    assert_close(got, want, length=LENGTH)
    assert np.abs(got - before).max() > 1e-3


def test_w1_and_w2_are_the_weights_of_one_hidden_unit(translator: Model) -> None:
    weights, row = by_hand(translator), ROW[:16]
    weights["decoder.layers.0.ffn.up.weight"][:, 7] = row
    weights["decoder.layers.0.ffn.down.weight"][7] = -row
    edits = {"decoder.layers.0.ffn.w1[7]": row, "decoder.layers.0.ffn.w2[7]": -row}
    got = outputs(translator.graph.intervene(edits), translator.weights)
    for a, b in zip(got, outputs(translator.graph, weights), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_generates_is_edited_too(translator: Model) -> None:
    edits = {"decoder.layers.0.cross_attention.heads.1": 0, "encoder.layers.0.ffn.2": 0}
    made = translator.intervene(edits)
    changed = {n: g != translator.functions[n] for n, g in made.functions.items()}
    assert changed == {"step": True, "encode": True}
    only_decoder = translator.intervene({"decoder.layers.0.heads.0": 0})
    assert only_decoder.functions["encode"] == translator.functions["encode"]
    weights = by_hand(translator)
    weights["decoder.layers.0.cross_attention.out.weight"][8:] = 0
    weights["encoder.layers.0.ffn.down.weight"][2] = 0
    for name, function in made.functions.items():
        got, want, before = (
            outputs(graph, w)
            for graph, w in (
                (function, translator.weights),
                (translator.functions[name], weights),
                (translator.functions[name], translator.weights),
            )
        )
        for x, y in zip(got, want, strict=True):
            np.testing.assert_array_equal(x, y)
        assert not all(map(np.array_equal, got, before))


# What the graph is.


def test_the_graph_is_one_like_any_other(decoder: Model) -> None:
    made = decoder.graph.intervene(EDITS)
    verify(made)
    assert tfgraph.parse_graph(tfgraph.print_graph(made)) == made
    assert made.params == decoder.graph.params
    assert [o.value for o in made.outputs] == [o.value for o in decoder.graph.outputs]
    assert decoder.graph.intervene({}) == decoder.graph
    assert decoder.graph.intervene({"layers.0.heads.0": 1}) == decoder.graph


def test_nothing_fuses_less(decoder: Model) -> None:
    def kernels(graph: Graph) -> Counter[str]:
        after, _ = run_pipeline(graph, parse_pipeline(DEFAULT_PIPELINE))
        left = [n for n in after.nodes if not after.weight_values.issuperset(n.outputs)]
        return Counter(node.op for node in left)

    before, after = kernels(decoder.graph), kernels(decoder.graph.intervene(EDITS))
    # A `mul` for the layer whose factor is not 0, a `where` for each with a 0.
    assert after - before == Counter({"where": 3, "mul": 2})
    assert not before - after


def test_a_fused_graph_takes_the_same_names(decoder: Model) -> None:
    edits = {name: value for name, value in EDITS.items() if "heads" in name}
    fused, _ = run_pipeline(decoder.graph, parse_pipeline(DEFAULT_PIPELINE))
    assert any(node.op == "attention" for node in fused.nodes)
    (want,) = outputs(decoder.graph.intervene(edits), decoder.weights)
    (got,) = outputs(fused.intervene(edits), decoder.weights)
    assert_close(got, want, length=LENGTH)


def test_cuda_is_emitted(translator: Model, tmp_path: Path) -> None:
    edits = {"encoder.layers.0.heads.0": 0, "encoder.layers.0.ffn.w1[3]": ROW[:16]}
    graph = translator.graph.intervene(edits)
    report = tfgraph.build(graph, Target("cuda", arch="sm_80"), tmp_path / "m.tfgraph")
    assert report.verification.ok is None
    assert "passes" in (report.verification.instead or "")


def test_the_second_is_of_the_result_of_the_first(decoder: Model) -> None:
    first = {"layers.0.heads.2": 0.5, "layers.1.ffn.down.weight[4]": 7, "layers.0.ffn.3": 3}
    second = {"layers.0.heads.2": 4, "layers.1.ffn.down.weight[4]": ROW, "layers.0.ffn.3": 0}
    weights = by_hand(decoder)
    weights["layers.0.attention.out.weight"][10:15] *= 2
    weights["layers.1.ffn.down.weight"][4] = ROW
    weights["layers.0.ffn.down.weight"][3] = 0
    twice = decoder.graph.intervene(first).intervene(second)
    verify(twice)
    (got,) = outputs(twice, decoder.weights)
    (want,) = outputs(decoder.graph, weights)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_a_factor_of_0_gives_0_whatever_the_head_holds(backend: str, tmp_path: Path) -> None:
    """Values of NaN and infinity in one head, which weights of 0 would let through; on the CPU from
    an artifact, which was verified."""
    with tfgraph.graph("block") as g:
        x = g.input("x", "f32", "batch", "seq", 8)
        g.output("y", blocks.attention(x, x, x, heads=2))
    graph = g.build()
    weights = {p.value.name: np.ones(tuple(map(int, p.value.type.shape)), np.float32)
               for p in graph.params}  # fmt: skip
    weights["attention.v.bias"][:4] = np.nan, np.inf, -np.inf, 3e38
    made = graph.intervene({"attention.heads.0": 0})
    inputs = {"x": np.random.default_rng(1).normal(size=(2, 3, 8)).astype(np.float32)}
    if backend == "numpy":
        (y,) = outputs(made, weights, **inputs)
    else:
        tfgraph.build(made, backend, tmp_path / "m.tfgraph", weights=weights)
        with tfgraph.load(tmp_path / "m.tfgraph") as model:
            y = model(**inputs)["y"]
    weights["attention.v.bias"][:4] = 0
    weights["attention.out.weight"][:4] = 0
    (want,) = outputs(graph, weights, **inputs)
    assert np.isfinite(y).all()
    assert_close(y, want, length=LENGTH)


def test_an_attention_of_the_free_form() -> None:
    text = """\
graph one(%x: f32[batch,seq,8]) {
  %a = attention(%x, %x, %x) {heads=4, kv_heads=4, scale=1}
  return y=%a
}
"""
    x = np.random.default_rng(0).normal(size=(2, 3, 8)).astype(np.float32)
    graph = tfgraph.parse_graph(text)
    (before,), (after,) = (
        outputs(graph, {}, x=x),
        outputs(graph.intervene({"a.heads.1": 0}), {}, x=x),
    )
    before[..., 2:4] = 0
    np.testing.assert_array_equal(after, before)


def test_a_matrix_of_one_row_and_a_number_alone() -> None:
    text = """\
graph one(%x: f32[n,2]) {
  %y = add(%x, %w)
  %z = mul(%y, %s)
  return z=%z, w=%w
}
weights {
  %w : f32[1,2]
  %s : f32[]
}
"""
    graph = tfgraph.parse_graph(text)
    weights = {"w": np.zeros((1, 2), np.float32), "s": np.array(2, np.float32)}
    x = np.ones((3, 2), np.float32)
    once = graph.intervene({"w[0]": [3, 4]})
    for made, row in ((once, [3, 4]), (once.intervene({"w[:,1]": 5}), [3, 5]),
                      (once.intervene({"w[0]": 7}), [7, 7])):  # fmt: skip
        z, w = outputs(made, weights, x=x)
        np.testing.assert_array_equal(w, [row])
        np.testing.assert_array_equal(z, 2 * (x + row))
    with pytest.raises(tfgraph.TfgraphError, match=r"s is f32\[\]: matrices and vectors have rows"):
        graph.intervene({"s[0]": 1})


# Mistakes.


@pytest.mark.parametrize(
    ("name", "value", "message", "hint"),
    [
        ("layers.1.heads.4", 0, "at layers.1.heads.4: layers.1 has heads 0..3", None),
        ("layers.1.heads.x", 0, "layers.1 has heads 0..3", None),
        ("layers.1.ffn.20", 0, "layers.1.ffn has hidden units 0..19", None),
        ("layers.7.heads.1", 0, "m has no such head, hidden unit or weight",
         r"did you mean 'layers\..\.heads.1'\?"),
        ("layer.1.fnn.3", 0, "no such head", r"did you mean 'layers.1.ffn.3'\?"),
        ("layers.1.ffn.up.wieght[3]", 0, "no such",
         r"did you mean 'layers.1.ffn.up.weight\[3\]'\?"),
        ("banana", 0, "no such", "it has such as layers.0.heads.0"),
        ("layers.1.ffn.w1[3]", 0, "layers.1.ffn is gated",
         r"gate.weight\[:,3\], .*down.weight\[3\]"),
        ("layers.1.ffn.down.weight[20]", 0, r"f32\[20,24\], has rows 0..19", None),
        ("layers.1.ffn.down.weight[:,24]", 0, r"has columns 0..23", None),
        ("layers.1.ffn.down.weight[-1]", 0, "has rows 0..19", None),
        ("layers.1.attention_norm.scale[:,1]", 0, "has elements 0..23", None),
        ("layers.1.ffn.down.weight[3]", [1, 2], "takes 24 numbers, or one for all, got 2", None),
        ("layers.1.ffn.down.weight[3]", [[1] * 24], "expected a number, or 24 of them", None),
        ("layers.1.heads.0", [1, 2], "takes one number, got 2", None),
        ("layers.1.heads.0", float("nan"), "heads.0 = nan: expected a number, finite", None),
        ("layers.1.heads.0", "0", "expected a number", None),
        ("layers.1.heads.0", True, "expected a number", None),
        ("layers.1.heads.0", None, "expected a number", None),
    ],
)  # fmt: skip
def test_mistakes(decoder: Model, name: str, value: Any, message: str, hint: str | None) -> None:
    with pytest.raises(tfgraph.TfgraphError, match=message) as caught:
        decoder.graph.intervene({name: value})
    assert (hint is None) == (caught.value.hint is None)
    if hint is not None:
        assert re.search(hint, str(caught.value.hint)), caught.value.hint


def test_layers_that_share_their_weights(folder: Path) -> None:
    """A head or unit is that of one layer, a weight that of all."""
    model = model_of("layers: 2\nwidth: 16\nheads: 2\nffn: 12\nshare_layers: true\n", folder)
    with pytest.raises(tfgraph.TfgraphError, match="no such") as caught:
        model.graph.intervene({"layers.1.ffn.w1[3]": 0})
    assert caught.value.hint == "did you mean 'layers.shared.ffn.w1[3]'?"
    weights = by_hand(model)
    weights["layers.shared.ffn.up.weight"][:, 3] = 0
    weights["layers.shared.ffn.up.bias"][3] = 0  # gelu(0) is 0
    edits = {"layers.shared.ffn.w1[3]": 0, "layers.shared.ffn.up.bias[3]": 0}
    x = np.random.default_rng(3).normal(size=(2, 3, 16)).astype(np.float32)
    (want,) = outputs(model.graph, weights, x=x)
    (got,) = outputs(model.graph.intervene(edits), model.weights, x=x)
    np.testing.assert_array_equal(got, want)
    units = {"layers.0.ffn.3": 0, "layers.1.ffn.3": 0}
    (each,) = outputs(model.graph.intervene(units), model.weights, x=x)
    np.testing.assert_array_equal(each, want)
    (first,) = outputs(model.graph.intervene({"layers.0.ffn.3": 0}), model.weights, x=x)
    assert np.abs(first - want).max() > 1e-4


def test_experts(folder: Path) -> None:
    text = "layers: 1\nwidth: 16\nheads: 2\nffn: 12\nexperts: {count: 3, active: 2, shared: 8}\n"
    model = model_of(text, folder)
    weights = by_hand(model)
    weights["layers.0.ffn.experts.2.down.weight"][7] = 0
    weights["layers.0.ffn.shared.down.weight"][5] *= 2
    edits = {"layers.0.ffn.experts.2.7": 0, "layers.0.ffn.shared.5": 2}
    (want,) = outputs(model.graph, weights)
    (got,) = outputs(model.graph.intervene(edits), model.weights)
    np.testing.assert_array_equal(got, want)
    assert not np.array_equal(got, outputs(model.graph, model.weights)[0])


def test_all_mistakes_at_once(decoder: Model) -> None:
    with pytest.raises(tfgraph.TfgraphError) as caught:
        decoder.graph.intervene({"a.heads.0": 0, "layers.0.heads.9": 0, "layers.0.heads.0": 0})
    assert len(caught.value.related) == 1


def test_a_number_that_the_weight_does_not_hold(decoder: Model) -> None:
    with pytest.raises(tfgraph.TfgraphError, match=r"q.bias\[0\]: \S+ does not fit f32"):
        decoder.graph.intervene({"layers.0.attention.q.bias[0]": 1e39})
