"""Taps: intermediates as further outputs, against plain formulas, of a model that stays fused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.checkpoints import CASES, import_model, reference
from helpers.masks import masked
from helpers.tolerance import TRANSFORMERS, assert_close, assert_within

import tfgraph
from tfgraph import Fill, blocks, ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import Mask
from tfgraph.ir.mask import alibi, bias, causal, dense, padding, prefix, relative, segments, window
from tfgraph.ops import FloatArray
from tfgraph.passes import (
    DEFAULT_PIPELINE,
    find_taps,
    is_attention,
    parse_pipeline,
    run_pipeline,
    tap_fused,
)
from tfgraph.passes.draft import prune

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tfgraph.ops import Traced

    NDArray = np.ndarray[Any, Any]

BATCH, SEQ, SOURCE, WIDTH, HEADS = 2, 7, 5, 16, 4


def masks(given: Any) -> dict[str, Mask | None]:
    """A mask of every kind over [batch, head, query, key] by its name. `given` gives the tensor of
    a name: a value of the graph, or an array for the formula."""
    return {
        "none": None,
        "causal": causal(),
        "window": window(2, 1),
        "padding": padding(given("keep")),
        "prefix": prefix(given("lengths")),
        "segments": segments(given("ids"), given("ids")),
        "dense": dense(given("allowed")),
        "bias": bias(given("added")),
        "alibi": alibi(given("slopes")),
        "relative": relative(given("table"), 20),
        "joined": causal() & padding(given("keep")) & bias(given("added")),
        "grouped": causal(),
        "turned": causal(),
        "cross": padding(given("sources")),
    }


OPTIONS: dict[str, dict[str, Any]] = {
    "grouped": {"kv_heads": 2, "softcap": 3, "scale": 2},
    "joined": {"bias": False},
}
NAMES = list(masks(lambda name: FloatArray(np.zeros(1))))


def every_attention(names: Sequence[str]) -> tfgraph.Graph:
    """An attention of each of these kinds over x, beside each other."""
    with tfgraph.graph("every") as g:
        batch, seq, source = g.symbol("batch"), g.symbol("seq", 1, 32), g.symbol("source")
        x = g.input("x", "f32", batch, seq, WIDTH)
        memory = g.input("memory", "f32", batch, source, WIDTH)
        given: dict[str, Traced] = {
            "keep": g.input("keep", "i64", batch, seq),
            "lengths": g.input("lengths", "i64", batch),
            "sources": g.input("sources", "i64", batch),
            "ids": g.input("ids", "i64", batch, seq),
            "allowed": g.input("allowed", "bool", batch, 1, seq, seq),
            "added": g.input("added", "f32", HEADS, seq, seq),
            "slopes": g.input("slopes", "f32", HEADS),
            "table": g.input("table", "f32", 8, HEADS),
        }
        turn = blocks.rotary_tables(WIDTH // HEADS, positions=32).rows(seq)
        kinds = masks(given.__getitem__)
        for name in names:
            options = {"rotary": turn} if name == "turned" else OPTIONS.get(name, {})
            to = memory if name == "cross" else x
            with g.scope(name):
                y = blocks.attention(x, to, to, heads=HEADS, mask=kinds[name], **options)
                y = blocks.layer_norm(x + y)
            g.output(name, y)
    return g.build()


def arrays() -> dict[str, NDArray]:
    """Inputs of it: a row of the mask and one of the sources with nothing to attend to."""
    rng = np.random.default_rng(5)
    allowed = rng.random((BATCH, 1, SEQ, SEQ)) < 0.5
    allowed[1, :, 2] = False
    return {
        "x": rng.normal(size=(BATCH, SEQ, WIDTH)).astype(np.float32),
        "memory": rng.normal(size=(BATCH, SOURCE, WIDTH)).astype(np.float32),
        "keep": (np.arange(SEQ) < np.array([[SEQ], [3]])).astype(np.int64),
        "lengths": np.array([2, 4]),
        "sources": np.array([SOURCE, 0]),
        "ids": rng.integers(0, 2, (BATCH, SEQ)),
        "allowed": allowed,
        "added": rng.normal(size=(HEADS, SEQ, SEQ)).astype(np.float32),
        "slopes": rng.random(HEADS).astype(np.float32),
        "table": rng.normal(size=(8, HEADS)).astype(np.float32),
    }


TAPS = ("attention", "*.q", "*.k", "*.?_turned")


@pytest.fixture(scope="module")
def graph() -> tfgraph.Graph:
    return every_attention(NAMES)


@pytest.fixture(scope="module")
def on_cpu(graph: tfgraph.Graph) -> dict[str, NDArray]:
    """All outputs, the taps with them."""
    with tfgraph.compile(graph, tap=TAPS) as model:
        return model(**arrays())


@pytest.fixture(scope="module")
def on_numpy(graph: tfgraph.Graph) -> dict[str, NDArray]:
    """The same by the reference."""
    return tfgraph.compile(graph, "numpy", tap=TAPS)(**arrays())


def split(x: NDArray, size: int = WIDTH // HEADS) -> NDArray:
    """[batch, length, heads*size] to [batch, HEADS, length, size], groups repeated, in float64."""
    heads = x.reshape(*x.shape[:2], -1, size).transpose(0, 2, 1, 3).astype(np.float64)
    return np.repeat(heads, HEADS // heads.shape[1], axis=1)


@pytest.mark.parametrize("backend", ["cpu", "numpy"])
@pytest.mark.parametrize("name", NAMES)
def test_attention_weights_by_the_formula(
    name: str, backend: str, request: pytest.FixtureRequest
) -> None:
    """softmax(Q K^T scale under the mask) in float64, of the tapped Q and K."""
    found: dict[str, NDArray] = request.getfixturevalue(f"on_{backend}")
    turned = "_turned" * (name == "turned")
    q, k = (split(found[f"{name}.attention.{n}{turned}"]) for n in ("q", "k"))
    scores = q @ k.transpose(0, 1, 3, 2) * OPTIONS.get(name, {}).get("scale", 0.5)
    if name == "grouped":
        scores = 3 * np.tanh(scores / 3)
    m = masks(lambda tensor: FloatArray(arrays()[tensor]))[name]
    scores = scores if m is None else masked(scores, m, 0)
    with np.errstate(invalid="ignore"):
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p = np.nan_to_num(p / p.sum(-1, keepdims=True))  # a row without a key is zeros
    got = found[f"{name}.attention.probabilities"]
    assert_close(got, p, length=4 * WIDTH)
    empty = {"dense": np.s_[1, :, 2], "cross": np.s_[1]}
    if name in empty:
        assert not got[empty[name]].any()


def fused(graph: tfgraph.Graph) -> tfgraph.Graph:
    return run_pipeline(graph, parse_pipeline(DEFAULT_PIPELINE))[0]


@pytest.mark.parametrize("patterns", [["attention"], ["*"], ["*.masked_scores", "*.k_turned"]])
def test_the_model_stays_fused(graph: tfgraph.Graph, patterns: list[str]) -> None:
    """Without the nodes of the taps, the text is that of the graph without taps."""
    plain = fused(graph)
    tapped, taps = tap_fused(graph, plain, find_taps(graph, patterns))
    ops.verify(tapped)
    assert len(tapped.nodes) > len(plain.nodes)
    assert any(tap.recomputed for tap in taps)
    without = prune(replace(tapped, outputs=plain.outputs))
    assert tfgraph.print_graph(without) == tfgraph.print_graph(plain)
    again = tfgraph.print_graph(tapped)
    assert tfgraph.print_graph(tfgraph.parse_graph(again)) == again


def test_outputs_have_the_bits_that_they_have_without_taps() -> None:
    names = ["padding", "grouped", "turned", "cross"]
    graph = every_attention(names)
    with tfgraph.compile(graph) as plain, tfgraph.compile(graph, tap="attention") as tapped:
        expected, got = plain(**arrays()), tapped(**arrays())
    assert list(expected) == names
    assert len(got) == 2 * len(names)
    for name, array in expected.items():
        assert array.tobytes() == got[name].tobytes(), name


def test_projections_are_windows_of_the_merged_one(graph: tfgraph.Graph) -> None:
    plain = fused(graph)
    tapped, _ = tap_fused(graph, plain, find_taps(graph, "attention"))
    count = [sum(node.op == "linear" for node in g.nodes) for g in (plain, tapped)]
    assert count[0] == count[1] < sum(node.op == "linear" for node in graph.nodes)


def test_a_value_under_another_name_is_not_computed_twice() -> None:
    with tfgraph.graph("twice") as g:
        x = g.input("x", "f32", "batch", 8)
        y = blocks.linear(x, 8)
        for name, (a, b) in {"one": (x, y), "other": (y, x)}.items():
            g.output(f"{name} times 2", g.label(a + b, name) * 2)
    graph = g.build()
    plain = fused(graph)
    assert "other" not in {v.name for v in plain.values()}
    tapped, (tap,) = tap_fused(graph, plain, find_taps(graph, "other"))
    assert tapped.nodes == plain.nodes
    assert (tap.recomputed, tapped.outputs[-1].name) == (False, "other")
    assert tapped.outputs[-1].value.name == "one"


def test_every_value_may_be_tapped() -> None:
    """Values of several results, of weights alone, in groups, unnamed, of integers."""
    with tfgraph.graph("all") as g:
        g.symbol("seq", 1, 16)
        ids = g.input("ids", "i64", "batch", "seq", fill=Fill("ids", 20))
        x = blocks.embedding(ids, 20, 8)
        layer = blocks.Layer(
            heads=2,
            kv_heads=1,
            ffn=16,
            norm="rms_norm",
            qk_norm=blocks.Norm("rms_norm"),
            rotary=blocks.rotary_tables(4, positions=16).rows("seq"),
            placement="pre",
            experts=blocks.Experts(2, 1),
        )
        g.output("y", blocks.decoder(x, 1, layer))
    graph = g.build()
    wanted = find_taps(graph, "*")
    double = {tap.output for tap in wanted if tap.value.type.dtype.value == "float64"}
    patterns = [tap.value.name for tap in wanted if tap.output not in double]
    assert {"layers.0", "0", "positions.cos", "layers.0.ffn.probabilities"} <= set(patterns)
    ids = np.array([[3, 1, 4, 1, 5]])
    with (
        tfgraph.compile(graph, tap=patterns) as cpu,
        tfgraph.compile(graph, "numpy", tap=patterns) as numpy,
    ):
        got, expected = cpu(ids=ids), numpy(ids=ids)
        assert [port.name for port in cpu.outputs if port.attention] == [
            "layers.0.attention.probabilities"  # not those of the experts' router
        ]
    assert list(got) == list(expected)
    for name, array in expected.items():
        if array.dtype.kind == "f":
            assert_close(got[name], array, length=256, name=name)
        else:
            np.testing.assert_array_equal(got[name], array, name)


def small() -> tfgraph.Graph:
    """Two layers; the last one's output is an output of the graph."""
    with tfgraph.graph("small") as g:
        x = g.input("x", "f32", g.symbol("batch", 1, 4), g.symbol("seq", 1, 9), 8)
        g.output("last", blocks.encoder(x, 2, blocks.Layer(heads=2, ffn=16)))
        g.output("clash", x * 2)
        g.label(x + 1, "clash")
    return g.build()


def test_what_is_an_output_already_stays_one() -> None:
    taps = find_taps(small(), "hidden")
    assert [(t.value.name, t.output, t.added) for t in taps] == [
        ("layers.0", "layers.0", True),
        ("layers.1", "last", False),
    ]
    assert {p.name for p in tfgraph.compile(small(), "numpy", tap="hidden").outputs} == {
        "last",
        "clash",
        "layers.0",
    }


@pytest.mark.parametrize(
    ("pattern", "message", "hint"),
    [
        ("layers.*.atention", "no value is named 'layers.*.atention'", "layers.0.attention"),
        ("zzz", "no value is named 'zzz'", "`tfgraph inspect` prints all names"),
        ("x", "no value is named 'x'", "it is an input or a parameter"),
        ("layers.0.ffn.up.weight", "no value", "it is an input or a parameter"),
        ("clash", "the output 'clash' is %", "give the output another name"),
    ],
)
def test_mistakes(pattern: str, message: str, hint: str) -> None:
    with pytest.raises(TfgraphError) as raised:
        tfgraph.compile(small(), tap=[pattern])
    assert message in raised.value.message
    assert hint in (raised.value.hint or "")


def test_shorthands_that_name_nothing() -> None:
    with tfgraph.graph("plain") as g:
        x = g.input("x", "f32", "batch", "seq", 8)
        weights = ops.softmax(ops.matmul(x, ops.transpose(x, perm=(0, 2, 1))))
        g.output("attention", weights)  # without heads, which the shorthand is of
    for pattern, advice in (("attention", "no softmax"), ("hidden", "no value is named layers")):
        with pytest.raises(TfgraphError) as raised:
            find_taps(g.build(), pattern)
        assert advice in (raised.value.hint or "")


def test_a_value_by_the_name_of_a_shorthand() -> None:
    with tfgraph.graph("named") as g:
        x = g.input("x", "f32", "batch", "seq", 8)
        y = blocks.attention(x, x, x, heads=2)
        g.output("y", y * 2)
    built = g.build()
    assert [t.output for t in find_taps(built, "attention")] == ["attention.probabilities"]
    assert [t.output for t in find_taps(built, "%attention")] == ["attention"]
    weights = next(v for v in built.values() if v.name == "attention.probabilities")
    assert is_attention(built, weights)


def test_names_that_passes_make_anew() -> None:
    """In a graph that was fused and is read again %y~0 may be another value than after passes."""
    before, after = (
        tfgraph.parse_graph(
            f"graph g(%x: f32[n,8]) {{\n  %y~0 = {op}(%x)\n  %y = exp(%y~0)\n  return y=%y\n}}"
        )
        for op in ("relu", "neg")
    )
    tapped, (tap,) = tap_fused(before, after, find_taps(before, "y~0"))
    assert tap.recomputed
    made = tapped.producer[tapped.outputs[-1].value]
    assert (made.op, made.output.name) == ("relu", "y~1")
    assert tapped.outputs[-1].name == "y~0"


def test_the_artifact(tmp_path: Path) -> None:
    """Taps are verified, marked in the manifest, and in the command that makes it again."""
    file = tmp_path / "m.tfg"
    file.write_text(tfgraph.print_graph(small()))
    report = tfgraph.build(file, "cpu", tmp_path / "m.tfgraph", tap=["attention", "layers.?"])
    assert report.verification.ok
    names = [f"layers.{i}.attention.probabilities" for i in (0, 1)]
    added = {names[0], names[1], "layers.0"}
    assert {d.name for d in report.verification.outputs} == {"last", "clash", *added}
    taps = report.to_json()["taps"]
    assert taps[:2] == [
        {"value": names[0], "output": names[0], "added": True, "recomputed": True},
        {"value": "layers.0", "output": "layers.0", "added": True, "recomputed": False},
    ]
    assert taps[-1] == {"value": "layers.1", "output": "last", "added": False, "recomputed": False}
    manifest = json.loads((tmp_path / "m.tfgraph" / "manifest.json").read_text())
    marks = {p["name"]: (p.get("tap"), p.get("attention")) for p in manifest["outputs"]}
    assert marks == {
        "last": (None, None),
        "clash": (None, None),
        "layers.0": (True, None),
        names[0]: (True, True),
        names[1]: (True, True),
    }
    command = manifest["command"]
    assert command[-4:] == ["--tap", "attention", "--tap", "layers.?"]
    with tfgraph.load(tmp_path / "m.tfgraph") as model:
        assert {p.name for p in model.outputs if p.attention} == set(names)
        outputs = model(**model.example({"batch": 2, "seq": 5}))
    assert outputs[names[0]].shape == (2, 2, 5, 5)
    assert_close(outputs[names[0]].sum(-1), np.ones((2, 2, 5)), length=5)


@pytest.mark.parametrize("case", ["bert", "roberta"])
def test_hidden_states_of_a_checkpoint(case: str, tmp_path: Path) -> None:
    """Those that transformers recorded."""
    model = import_model(CASES / case, tmp_path / "model.yaml")
    inputs = reference(case, "in")
    hidden = reference(case, "hidden")
    with tfgraph.compile(model, "cpu", tap=["embeddings", "hidden"]) as tapped:
        if "token_type_ids" in {port.name for port in tapped.inputs}:
            inputs["token_type_ids"] = np.zeros_like(inputs["input_ids"])
        got = tapped(**inputs)
    last = len(hidden) - 1
    names = ["embeddings", *(f"layers.{i}" for i in range(last))]
    if "last_hidden_state" in got:  # which the last one is
        names[last] = "last_hidden_state"
    real = inputs["attention_mask"].astype(bool)
    for i, name in enumerate(names):
        assert_within(got[name][real], hidden[f"hidden.{i}"][real], TRANSFORMERS, name)
