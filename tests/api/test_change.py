"""Two models on the same inputs: what changes, and the tokens that they expect."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from helpers.small_tokenizers import byte_level
from helpers.text_models import write_decoder
from helpers.tolerance import assert_close

import tfgraph
from tfgraph import Fill

if TYPE_CHECKING:
    from pathlib import Path

    from tfgraph import Graph

    NDArray = np.ndarray[Any, Any]

rng = np.random.default_rng(8)


def graph(outputs: str, name: str = "m", shape: str = "batch,seq,7") -> Graph:
    """Outputs of x by their expressions, such as `logits=mul(%x, 2)`."""
    pairs = [pair.partition("=") for pair in outputs.split("; ")]
    nodes = "\n".join(f"  %v{i} = {call}" for i, (_, _, call) in enumerate(pairs))
    returned = ", ".join(f"{out}=%v{i}" for i, (out, _, _) in enumerate(pairs))
    return tfgraph.parse_graph(
        f"graph {name}(%x: f32[{shape}]) {{\n{nodes}\n  return {returned}\n}}\n"
    )


def softmax(x: NDArray) -> NDArray:
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def test_the_numbers_are_those_of_plain_formulas() -> None:
    x = rng.normal(size=(2, 3, 7)).astype(np.float32)
    a, b = graph("y=mul(%x, 2); z=neg(%x); only=abs(%x)"), graph("y=exp(%x); z=neg(%x)", "n")
    found = tfgraph.compare_models(a, b, {"x": x})
    assert (found.a, found.b, found.only_a, found.only_b) == ("m", "n", ("only",), ())
    assert (dict(found.dims), found.made) == ({"batch": 2, "seq": 3}, ())
    y, z = found.outputs
    before, after = 2 * x, np.exp(x)
    apart = np.abs(after - before)
    assert_close(y.max_abs, apart.max(), dtype="float32", length=4)
    assert_close(y.mean_abs, apart.mean(), dtype="float32", length=4)
    ratio = np.linalg.norm(apart) / np.linalg.norm(before)
    assert_close(y.relative, ratio, dtype="float32", length=4)
    flat = before.ravel() @ after.ravel() / np.linalg.norm(before) / np.linalg.norm(after)
    assert_close(y.cosine, flat, dtype="float32", length=4)
    assert (z.max_abs, z.mean_abs, z.relative, z.top) == (0, 0, 0, ())
    assert "outputs of a alone: only" in str(found)
    assert json.loads(json.dumps(found.to_json()))["only_a"] == ["only"]


def test_what_is_not_finite_is_null() -> None:
    x = np.zeros((1, 1, 7), np.float32)
    found = tfgraph.compare_models(graph("y=neg(%x)"), graph("y=log(%x)"), {"x": x})
    (y,) = found.to_json()["outputs"]
    assert (y["max_abs"], y["mean_abs"], y["relative"], y["cosine"]) == (None,) * 4
    same = tfgraph.compare_models(graph("y=log(%x)"), graph("y=log(%x)"), {"x": x - 1})
    assert same.outputs[0].max_abs == 0  # NaN equals NaN
    assert str(same)


def test_outputs_of_other_shapes() -> None:
    found = tfgraph.compare_models(graph("y=neg(%x)"), graph("y=sum(%x)"))
    (y,) = found.outputs
    assert y.shapes == ((8, 8, 7), (8, 8))
    assert y.max_abs is None
    assert "8x8x7 and 8x8" in str(found)
    assert found.made == ("x",)


def test_the_likeliest_tokens_at_the_last_position() -> None:
    x = rng.normal(size=(6, 3, 7)).astype(np.float32)
    x[1, -1, 4] = x[1, -1, 2] = x[1].max() + 1  # of equal ones the lower number comes first
    both = graph("logits=mul(%x, 2); probabilities=softmax(%x)"), graph("logits=neg(%x)")
    found = tfgraph.compare_models(*both, {"x": x}, top=3)
    (logits,) = found.outputs
    assert [(rows.row, rows.position) for rows in logits.top] == [(i, 2) for i in range(6)]
    for row, rows in enumerate(logits.top):
        for tokens, scores in ((rows.a, 2 * x[row, -1]), (rows.b, -x[row, -1])):
            want = np.argsort(-scores, kind="stable")[:3]
            assert [t.id for t in tokens] == list(want)
            got = [t.probability for t in tokens]
            assert_close(got, softmax(scores)[want], dtype="float32", length=8)
    assert [t.id for t in logits.top[1].a[:2]] == [2, 4]
    assert "and 2 rows more" in str(found)


def test_probabilities_are_taken_as_they_are_where_there_are_no_logits() -> None:
    x = softmax(rng.normal(size=(2, 7))).astype(np.float32)
    same = graph("probabilities=mul(%x, 1); other=neg(%x)", shape="batch,7")
    found = tfgraph.compare_models(same, same, {"x": x}, top=2)
    probabilities, other = found.outputs
    assert other.top == ()
    rows = probabilities.top[1]
    assert (rows.position, rows.a) == (None, rows.b)
    assert_close([t.probability for t in rows.a], np.sort(x[1])[::-1][:2], dtype="float32")


def test_a_row_ends_where_its_mask_says() -> None:
    with tfgraph.graph("masked") as g:
        x = g.input("x", "f32", "batch", "seq", 5)
        mask = g.input("attention_mask", "i64", "batch", "seq", fill=Fill("prefix"))
        g.output("logits", x)
        g.output("mask", tfgraph.ops.add(mask, 0))
    graph = g.build()
    masks = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 1, 1]])
    inputs = {"x": rng.normal(size=(3, 4, 5)).astype(np.float32), "attention_mask": masks}
    logits, _ = tfgraph.compare_models(graph, graph, inputs).outputs
    assert [rows.position for rows in logits.top] == [1, 3, 3]
    assert logits.top[0].a[0].id == inputs["x"][0, 1].argmax()


def test_tokens_are_written_as_the_tokenizer_has_them(tmp_path: Path) -> None:
    model = tfgraph.load_source(str(write_decoder(tmp_path)))
    ids = np.array([byte_level().encode("the cät").ids])
    (logits,) = tfgraph.compare_models(model, model.graph, {"input_ids": ids}, top=3).outputs
    (row,) = logits.top
    assert row.position == ids.shape[1] - 1
    assert [t.text for t in row.a] == [byte_level().id_to_token(t.id) for t in row.a]
    assert [t.text for t in row.b] == [None] * 3  # a graph has no tokenizer
    assert f"{row.a[0].id} {row.a[0].text!r} " in str(row.a[0])


def test_models_artifacts_and_what_is_compiled(tmp_path: Path) -> None:
    a = graph("y=mul(%x, 2)")
    tfgraph.build(a, "cpu", tmp_path / "a.tfgraph", check=False)
    (tmp_path / "b.tfg").write_text(tfgraph.print_graph(graph("y=mul(%x, 2)")))
    found = tfgraph.compare_models(tmp_path / "a.tfgraph", tmp_path / "b.tfg", dims={"seq": 2})
    assert found.outputs[0].max_abs == 0
    with tfgraph.compile(a, "numpy") as model:
        again = tfgraph.compare_models(model, a, names=("before", "after"))
        assert (again.a, again.b, again.outputs[0].max_abs) == ("before", "after", 0)
        model(x=np.zeros((1, 1, 7), np.float32))  # it is still open: who opened it closes it


def test_other_inputs_are_an_error() -> None:
    with tfgraph.graph("two") as g:
        y = g.input("y", "f32", "batch", "seq", 7)
        g.output("z", tfgraph.ops.add(y, g.input("w", "f32", 7)))
    with pytest.raises(tfgraph.TfgraphError, match=r"x of a \(m\) and y, w of b \(two\)"):
        tfgraph.compare_models(graph("y=neg(%x)"), g.build())
    with pytest.raises(tfgraph.TfgraphError, match=r"x: float32\[.*\] of a, x: float32\[.*\] of b"):
        tfgraph.compare_models(graph("y=neg(%x)"), graph("y=neg(%x)", shape="batch,7"))
    with pytest.raises(tfgraph.TfgraphError, match="have no input 'banana'") as caught:
        tfgraph.compare_models(graph("y=neg(%x)"), graph("y=neg(%x)"), {"banana": np.zeros(1)})
    assert caught.value.hint == "it has x"
