"""YAML models: the graphs they make, against the DSL and against formulas in float64."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from helpers.reference import run_graph
from helpers.tolerance import assert_close

from tfgraph.ir import Graph
from tfgraph.model import TEMPLATE_PATH, Model, load_source, read_model
from tfgraph.ops import find_op, verify
from tfgraph.passes import DEFAULT_PIPELINE, parse_pipeline, run_pipeline
from tfgraph.text import parse_graph, print_graph

EXAMPLES = Path(__file__).parents[2] / "examples"


def model(tmp_path: Path, text: str) -> Model:
    path = tmp_path / "model.yaml"
    path.write_text(text, encoding="utf-8")
    made = read_model(path)
    verify(made.graph)
    return made


def ops_of(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def test_yaml_and_dsl_give_the_same_text() -> None:
    yaml = load_source(str(EXAMPLES / "encoder.yaml")).graph
    dsl = load_source(f"{EXAMPLES / 'encoder.py'}:model").graph
    assert yaml == dsl
    text = print_graph(yaml)
    assert text == print_graph(dsl)
    assert parse_graph(text) == yaml


def test_the_example_encoder_has_two_add_and_norms_a_layer() -> None:
    graph = load_source(str(EXAMPLES / "encoder.yaml")).graph
    assert ops_of(graph).count("layer_norm") == 8
    for node in graph.nodes:
        if node.op == "layer_norm":
            assert graph.producer[node.inputs[0]].op == "add"
    batch, seq = graph.symbols
    assert (batch.low, batch.high, batch.default) == (1, 64, 2)
    assert (seq.low, seq.high, seq.default) == (1, 512, 128)


def test_the_original_base_model() -> None:
    """Vaswani et al. 2017: 6 + 6 layers, 512 wide, 2048 inside, one table of 37,000 words."""
    graph = load_source(EXAMPLES / "transformer-base.yaml").graph
    d, inner, words = 512, 2048, 37000
    attention, ffn, norm = 4 * (d * d + d), 2 * d * inner + inner + d, 2 * d
    learned = words * d + 6 * (attention + ffn + 2 * norm) + 6 * (2 * attention + ffn + 3 * norm)
    sizes = [
        math.prod(map(int, p.value.type.shape)) for p in graph.params if p.fill.kind == "normal"
    ] + [d for p in graph.params if p.fill.kind == "ones"]
    assert sum(sizes) == learned == 63_082_496
    fused = ops_of(run_pipeline(graph, parse_pipeline(DEFAULT_PIPELINE))[0])
    assert [fused.count(op) for op in ("attention", "add_layer_norm")] == [18, 30]
    assert fused.count("linear_activation") == 12
    assert not {"softmax", "layer_norm", "mask"} & set(fused)


def test_encoder_against_numpy(tmp_path: Path) -> None:
    """The whole post-norm encoder, weights seeded, written out again without tfgraph."""
    made = model(
        tmp_path,
        "layers: 2\nwidth: 8\nheads: 2\nffn: 12\nvocabulary: 11\nmask: padding\nseed: 3\n"
        "positions: {kind: sinusoidal, max: 20}\nembedding: {scale: sqrt(width)}\n"
        "hidden_states: true\n",
    )
    assert made.seeded
    p = made.load()
    ids = np.array([[1, 5, 10, 0], [7, 7, 0, 0]])
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0]])
    out = run_graph(made.graph, p | {"input_ids": ids, "attention_mask": mask})

    def norm(x: Any, name: str) -> Any:
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
        return x * p[f"{name}.scale"] + p[f"{name}.bias"]

    def dense(x: Any, name: str) -> Any:
        return x @ p[f"{name}.weight"].astype(np.float64) + p[f"{name}.bias"]

    def split(x: Any) -> Any:
        return x.reshape(2, 4, 2, 4).transpose(0, 2, 1, 3)

    angles = np.arange(4)[:, None] / 10000 ** (np.arange(0, 8, 2) / 8)
    x = p["embeddings.tokens"][ids] * math.sqrt(8)
    x = x + np.stack([np.sin(angles), np.cos(angles)], -1).reshape(4, 8)
    assert_close(out["hidden.0"], x, length=3)
    for i in range(2):
        a = f"layers.{i}.attention"
        q, k, v = (split(dense(x, f"{a}.{n}")) for n in "qkv")
        scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(4)
        scores = np.where(mask[:, None, None, :] == 1, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        context = (weights @ v).transpose(0, 2, 1, 3).reshape(2, 4, 8)
        x = norm(x + dense(context, f"{a}.out"), f"layers.{i}.attention_norm")
        h = dense(x, f"layers.{i}.ffn.up")
        h = h * (1 + np.vectorize(math.erf)(h / math.sqrt(2))) / 2
        x = norm(x + dense(h, f"layers.{i}.ffn.down"), f"layers.{i}.ffn_norm")
        assert_close(out[f"hidden.{i + 1}"], x, length=64 * (i + 1))
    assert_close(out["last_hidden_state"], x, length=128)


def test_padding_cannot_reach_real_tokens(tmp_path: Path) -> None:
    made = model(tmp_path, "layers: 1\nwidth: 8\nvocabulary: 9\nmask: padding\n")
    p = made.load()
    mask = np.array([[1, 1, 0]])
    first, second = (
        run_graph(made.graph, p | {"input_ids": np.array([ids]), "attention_mask": mask})
        for ids in ([3, 4, 5], [3, 4, 8])
    )
    a, b = first["last_hidden_state"], second["last_hidden_state"]
    np.testing.assert_array_equal(a[:, :2], b[:, :2])
    assert (a[:, 2] != b[:, 2]).any()


def test_decoder_is_causal(tmp_path: Path) -> None:
    made = load_source(str(EXAMPLES / "decoder.yaml"))
    p = made.load()
    ids = np.array([[3, 4, 5, 6]])
    a = run_graph(made.graph, p | {"input_ids": ids})["logits"]
    ids[0, 3] = 7
    b = run_graph(made.graph, p | {"input_ids": ids})["logits"]
    assert a.shape == (1, 4, 1000)
    np.testing.assert_array_equal(a[:, :3], b[:, :3])
    assert (a[:, 3] != b[:, 3]).any()
    assert "lm_head.weight" not in p  # tied


def test_roberta_positions_count_tokens(tmp_path: Path) -> None:
    made = model(
        tmp_path,
        "layers: 1\nwidth: 8\nvocabulary: 9\n"
        "positions: {kind: learned, max: 12, padding_id: 1}\nhidden_states: true\n",
    )
    p = made.load()
    out = run_graph(made.graph, p | {"input_ids": np.array([[4, 5, 1, 6]])})
    expected = p["embeddings.tokens"][[4, 5, 1, 6]] + p["embeddings.positions"][[2, 3, 1, 4]]
    np.testing.assert_array_equal(out["hidden.0"][0], expected)
    assert made.graph.symbol("seq").high == 10  # rows 2 to 11


def test_albert_shares_and_projects(tmp_path: Path) -> None:
    made = model(
        tmp_path,
        "layers: 3\nwidth: 8\nvocabulary: 9\nshare_layers: true\nhead: mlm\n"
        "embedding: {size: 4, token_types: 2, norm: true}\n",
    )
    shapes = {n: a.shape for n, a in made.load().items()}
    assert shapes["embeddings.tokens"] == (9, 4)
    assert shapes["embeddings.norm.scale"] == (4,)
    assert shapes["embeddings.projection.weight"] == (4, 8)
    assert shapes["lm_head.transform.dense.weight"] == (8, 4)
    assert shapes["lm_head.bias"] == (9,)
    assert sum(n.endswith("attention.q.weight") for n in shapes) == 1
    assert ops_of(made.graph).count("softmax") == 3
    assert [i.value.name for i in made.graph.inputs] == ["input_ids", "token_type_ids"]


def test_bert_outputs(tmp_path: Path) -> None:
    text = (
        "layers: 2\nwidth: 8\nvocabulary: 9\nmask: padding\npooler: true\n"
        "positions: {kind: learned, max: 16}\n"
        "embedding: {token_types: 2, norm: true}\n"
    )
    made = model(tmp_path, text)
    assert [o.name for o in made.graph.outputs] == ["last_hidden_state", "pooler_output"]
    assert [str(i.fill) for i in made.graph.inputs] == ["ids(9)", "prefix()", "zeros()"]
    made = model(tmp_path, text + "head: {kind: classifier, labels: 3}\nhidden_states: true\n")
    names = [o.name for o in made.graph.outputs]
    assert names == ["logits", "hidden.0", "hidden.1", "hidden.2"]
    assert str(made.graph.outputs[0].value.type) == "f32[batch,3]"


def test_encoder_decoder(tmp_path: Path) -> None:
    made = model(
        tmp_path,
        "kind: encoder-decoder\nlayers: 1\nwidth: 8\nvocabulary: 9\nmask: padding\n"
        "positions: sinusoidal\nhead: lm\n",
    )
    p = made.load()
    given = {
        "input_ids": np.array([[3, 4, 5]]),
        "attention_mask": np.array([[1, 1, 0]]),
        "decoder_input_ids": np.array([[1, 2]]),
    }
    a = run_graph(made.graph, p | given)["logits"]
    assert a.shape == (1, 2, 9)
    hidden = given | {"input_ids": np.array([[3, 4, 8]])}
    np.testing.assert_array_equal(run_graph(made.graph, p | hidden)["logits"], a)
    seen = given | {"input_ids": np.array([[3, 8, 5]])}
    assert (run_graph(made.graph, p | seen)["logits"] != a).any()


def test_without_a_vocabulary_the_input_is_a_tensor(tmp_path: Path) -> None:
    made = model(tmp_path, "layers: 1\nwidth: 8\ndtype: f64\n")
    (x,) = made.graph.inputs
    assert f"{x.value}: {x.value.type}" == "%x: f64[batch,seq,8]"
    assert made.dtype.short == "f64"


def test_masks(tmp_path: Path) -> None:
    made = model(
        tmp_path,
        "layers: 1\nwidth: 8\nvocabulary: 9\nmask: [padding, causal, {kind: window, left: 3}]\n",
    )
    (masked,) = [n for n in made.graph.nodes if n.op == "mask"]
    expected = "padding(%attention_mask) & causal() & window(left=3)"
    assert str(masked.operands[1]) == expected


def test_every_node_has_a_place_in_the_file() -> None:
    path = EXAMPLES / "encoder.yaml"
    lines = path.read_text().splitlines()
    graph = load_source(str(path)).graph
    expected = {
        "softmax": "heads:",
        "layer_norm": "norm:",
        "gelu": "ffn:",
        "embedding": "vocabulary",
    }
    for node in graph.nodes:
        assert node.location is not None
        assert node.location.file == str(path)
        if node.op in expected:
            assert lines[node.location.line - 1].startswith(expected[node.op])


def test_free_form_orders_its_nodes() -> None:
    made = load_source(str(EXAMPLES / "free.yaml"))
    graph = made.graph
    assert ops_of(graph) == ["layer_norm", "linear", "silu", "linear", "mul", "linear", "add"]
    p = {k: v.astype(np.float64) for k, v in made.load().items()}
    x = np.random.default_rng(1).standard_normal((2, 3, 64))
    n = x - x.mean(-1, keepdims=True)
    n = n / np.sqrt((n * n).mean(-1, keepdims=True) + 1e-6) * p["norm.scale"] + p["norm.bias"]
    gate = n @ p["gate.weight"]
    hidden = gate / (1 + np.exp(-gate)) * (n @ p["up.weight"])
    expected = x + hidden @ p["down.weight"] + p["down.bias"]
    got = run_graph(graph, made.load() | {"x": x.astype(np.float32)})["y"]
    assert_close(got, expected, length=64 + 128)


def test_free_form_with_several_results_masks_and_generators(tmp_path: Path) -> None:
    made = model(
        tmp_path,
        "inputs:\n  s: f32[batch,seq,seq]\n  n: i64[batch] = lengths(4)\n"
        "constraints: [seq <= 64, batch == 2*half]\n"
        "symbols: {half: {min: 1}}\n"
        "nodes:\n  top, where: topk(p) {k=1}\n  p: softmax(m)\n"
        "  m: mask(s, causal() & padding(n))\n"
        "outputs: {best: where, value: top}\n",
    )
    assert ops_of(made.graph) == ["mask", "softmax", "topk"]
    assert [str(c) for c in made.graph.constraints] == ["seq <= 64", "batch == 2*half"]
    assert str(made.graph.inputs[1].fill) == "lengths(4)"


def test_the_template_is_a_model() -> None:
    made = read_model(TEMPLATE_PATH)
    assert (made.name, made.target, made.seeded) == ("model", "cpu", True)
    example = load_source(str(EXAMPLES / "encoder.yaml"))
    assert made.graph.nodes == example.graph.nodes


def test_all_ops_of_a_model_are_known() -> None:
    for name in ("encoder.yaml", "decoder.yaml", "transformer-base.yaml", "free.yaml"):
        for node in load_source(str(EXAMPLES / name)).graph.nodes:
            find_op(node.op)
