"""What keys of a model file make: the graphs of the blocks, compiled as NumPy computes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import blocks, ops
from tfgraph.ir import Fill
from tfgraph.model import Model, read_model
from tfgraph.text import print_graph

SMALL = "layers: 2\nwidth: 16\nheads: 2\nffn: 24\n"
TWO = SMALL + "kind: encoder-decoder\nvocabulary: 11\nmask: padding\n"


def model(tmp_path: Path, text: str) -> Model:
    path = tmp_path / "model.yaml"
    path.write_text(text, encoding="utf-8")
    return read_model(path)


def inputs_of(made: Model, seed: int = 0) -> dict[str, Any]:
    """Small inputs: batch 2, lengths 6 and 4, the second row padded at its end."""
    rng = np.random.default_rng(seed)
    sizes = {"batch": 2, "seq": 6, "target": 4}
    found: dict[str, Any] = {}
    for item in made.graph.inputs:
        shape = [d.evaluate(sizes) for d in item.value.type.shape]
        if item.value.type.dtype.is_float:
            found[item.value.name] = rng.standard_normal(shape).astype(np.float32)
        elif item.value.name == "attention_mask":
            found[item.value.name] = np.array([[1] * 6, [1] * 4 + [0] * 2])
        else:
            found[item.value.name] = rng.integers(0, 11, shape)
    return found


FEATURES = [
    "positions: rotary\n",
    "positions: {kind: rotary, size: 2, layout: interleaved, max: 32}\n",
    "positions: {kind: rotary, base: 500, scaling: {kind: linear, factor: 4}}\n",
    "positions: {kind: rotary, scaling: {kind: llama3, factor: 8, original: 64}}\n",
    "kind: decoder\npositions: alibi\nheads: 4\n",
    "positions: {kind: relative, buckets: 8, max_distance: 20}\n",
    "positions: {kind: sinusoidal, layout: halves, max: 32}\n",
    "attention: {qk_norm: layer_norm, value_size: 3, bias: false, out_bias: true}\n",
    "norm: {kind: rms_norm, unit_offset: true, placement: sandwich}\n",
    "norm: {scale: false, placement: parallel, shared: false}\n",
    "norm: none\nresidual_scale: 0.5\nactivation: none\n",
    "residual: false\nffn_bias: false\n",
    "experts: {count: 4, active: 2, shared: 8}\ngated: true\nactivation: silu\n",
    "experts: {count: 3, active: 1, normalise: false}\n",
    "head: pointer\nmask: padding\n",
    "layers: 1\nmask: padding\npooler: {kind: mean}\nconvolution: tanh\n"
    "head: {kind: classifier, labels: 3, transform: true}\n",
    "layers: 1\nkind: encoder-decoder\nvocabulary: 11\ndecoder_start: 3\n"
    "pooler: {kind: last, padding_id: 4}\n",
    "vocabulary: 11\nhead: {kind: lm, scale: 0.5, softcap: 3, probabilities: true}\n",
]


@pytest.mark.parametrize("text", FEATURES)
def test_the_cpu_computes_what_numpy_does(tmp_path: Path, text: str) -> None:
    kept = [line for line in SMALL.splitlines() if line.partition(":")[0] + ":" not in text]
    made = model(tmp_path, "\n".join(kept) + "\n" + text)
    inputs = inputs_of(made)
    want = tfgraph.compile(made.graph, "numpy", weights=made.weights)(**inputs)
    got = tfgraph.compile(made.graph, "cpu", weights=made.weights)(**inputs)
    assert want.keys() == got.keys()
    for name, expected in want.items():
        assert np.isfinite(expected).all()
        assert_close(got[name], expected, length=200, name=name)


def test_a_decoder_of_today_is_that_of_the_dsl(tmp_path: Path) -> None:
    made = model(
        tmp_path,
        "name: today\nkind: decoder\nlayers: 2\nwidth: 16\nheads: 4\nkv_heads: 2\nhead_size: 8\n"
        "ffn: 24\nactivation: silu\ngated: true\nbias: false\nvocabulary: 11\n"
        "norm: {kind: rms_norm, placement: pre, eps: 1e-6}\nembedding: {scale: sqrt(width)}\n"
        "positions: {kind: rotary, base: 500, size: 4, max: 32, "
        "scaling: {kind: llama3, factor: 8, original: 16}}\n"
        "attention: {qk_norm: rms_norm}\nhead: {kind: lm, tied: false, softcap: 30}\n",
    )
    with ops.graph("today") as g:
        batch, seq = g.symbol("batch", 1, 1024, 2), g.symbol("seq", 1, 32, 32)
        ids = g.input("input_ids", "i64", batch, seq, fill=Fill("ids", 11))  # type: ignore[arg-type]
        x = blocks.embedding(ids, 11, 16, scale=4)
        g.label(x, "embeddings")
        norm = blocks.Norm("rms_norm", 1e-6)
        turn = blocks.rotary_tables(
            4, positions=32, base=500, scaling=blocks.Llama3Scaling(8, 16)
        ).rows(seq)
        layer = blocks.Layer(
            heads=4, kv_heads=2, head_size=8, ffn=24, activation="silu", gated=True, bias=False,
            norm=norm, qk_norm=norm, placement="pre", rotary=turn,
        )  # fmt: skip
        x = blocks.decoder(x, 2, layer)
        g.output("logits", blocks.lm_head(x, 11, softcap=30))
    text = print_graph(made.graph).replace("sqrt(16)", "4")
    assert text == print_graph(g.build())


def test_both_stacks_have_their_own_relative_table(tmp_path: Path) -> None:
    made = model(tmp_path, TWO + "positions: {kind: relative, buckets: 8}\nhead: lm\n")
    masks = [str(n.operands[1]) for n in made.graph.nodes if n.op == "mask"]
    text = print_graph(made.graph)
    assert text.count("relative(%encoder.positions.table)") == 2  # for two layers
    assert text.count("causal() & relative(%decoder.positions.table, bidirectional=false)") == 2
    assert len(masks) == 6  # and none of positions where the decoder looks at the encoder


def test_stacks_share_slopes_and_tables(tmp_path: Path) -> None:
    made = model(tmp_path, TWO + "positions: rotary\n")
    tables = [n for n in made.graph.nodes if n.op in ("cos", "sin")]
    assert len(tables) == 2
    assert sum(n.op == "rotary" for n in made.graph.nodes) == 8  # not in cross-attention


@pytest.mark.parametrize(("shared", "tied"), [(s, t) for s in (0, 1) for t in (0, 1)])
def test_embeddings_of_two_stacks(tmp_path: Path, shared: int, tied: int) -> None:
    """The decoder's table, the encoder's and the head's: one, two or three."""
    keys = f"embedding: {{shared: {str(bool(shared)).lower()}}}\n"
    made = model(tmp_path, TWO + keys + f"head: {{kind: lm, tied: {str(bool(tied)).lower()}}}\n")
    names = {p.value.name for p in made.graph.params}
    tables = {n for n in names if n.endswith("embeddings.tokens")}
    own = {"encoder.embeddings.tokens", "decoder.embeddings.tokens"}
    assert tables == ({"embeddings.tokens"} if shared else own)
    assert ("lm_head.weight" in names) == (not tied)
    inputs, weights = inputs_of(made), dict(made.load())
    run = tfgraph.compile(made.graph, "numpy", weights=weights)
    before = run(**inputs)["logits"]
    changed = weights | {"lm_head.weight" if not tied else sorted(tables)[0]: None}
    name = next(n for n, w in changed.items() if w is None)
    other = weights | {name: weights[name] * 2}
    after = tfgraph.compile(made.graph, "numpy", weights=other)(**inputs)["logits"]
    assert np.abs(after - before).max() > 1e-3
    if not tied:
        assert_close(after, 2 * before, length=1)


def test_probabilities(tmp_path: Path) -> None:
    head = "head: {kind: lm, scale: 2, probabilities: true}\n"
    made = model(tmp_path, SMALL + "vocabulary: 11\n" + head)
    got = tfgraph.compile(made.graph, "numpy", weights=made.weights)(**inputs_of(made))
    e = np.exp(got["logits"].astype(np.float64))
    assert_close(got["probabilities"], e / e.sum(-1, keepdims=True), length=11)


def test_a_pointer_points_at_the_encoders_tokens(tmp_path: Path) -> None:
    made = model(tmp_path, TWO + "head: pointer\n")
    inputs = inputs_of(made)
    got = tfgraph.compile(made.graph, "cpu", weights=made.weights)(**inputs)["probabilities"]
    assert got.shape == (2, 4, 6)
    assert_close(got.sum(-1), np.ones((2, 4)), length=6)
    assert (got[1, :, 4:] == 0).all(), "padding is never pointed at"
    assert (got[0] > 0).all()


def test_a_future_token_changes_no_earlier_output(tmp_path: Path) -> None:
    """Bit for bit, with every kind of positions and a mixture of experts."""
    for positions in ("rotary", "alibi", "{kind: relative, buckets: 4}"):
        made = model(
            tmp_path,
            SMALL + "kind: decoder\nvocabulary: 11\nhead: lm\nexperts: {count: 3}\n"
            f"positions: {positions}\nnorm: {{placement: pre}}\n",
        )
        run = tfgraph.compile(made.graph, "cpu", weights=made.weights)
        ids = np.array([[1, 2, 3, 4, 5, 6]])
        other = ids.copy()
        other[0, -1] = 9
        a, b = run(input_ids=ids)["logits"], run(input_ids=other)["logits"]
        np.testing.assert_array_equal(a[:, :-1], b[:, :-1])
        assert (a[:, -1] != b[:, -1]).any()
