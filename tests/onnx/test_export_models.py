"""Whole models as ONNX files: what operators they are made of, and what ONNX Runtime computes."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from helpers.checkpoints import CASES, NAMES, import_model, reference
from helpers.generating import YAML, model
from helpers.onnx_export import OPSETS, Session, by_numpy, operators, written
from helpers.tolerance import TRANSFORMERS, assert_close, assert_within

import tfgraph
from tfgraph import ops
from tfgraph.api.export import FUSED
from tfgraph.ir import as_dim, dim_max, dim_min
from tfgraph.model import load_source
from tfgraph.onnx.export import to_onnx
from tfgraph.passes import parse_pipeline, run_pipeline

if TYPE_CHECKING:
    from tfgraph.model import Model

EXAMPLES = Path(__file__).parents[2] / "examples"
ROTARY = ("rotary", "rotary, parallel", "local", "longrope", "encoder-decoder, normed keys")
LENGTH = 4096
"""Roundings in a row: all layers, the sums of products among them."""


def check(found: Model, opset: int, *sizes: dict[str, int]) -> bytes:
    """ONNX Runtime against the reference at each of the sizes; the file."""
    file = written(found.graph, opset, found.weights)
    session = Session(file)
    numpy = tfgraph.compile(found.graph, "numpy", weights=found.weights)
    for seed, given in enumerate(sizes):
        inputs = numpy.example({k: given[k] for k in numpy.symbols}, seed)
        got = session(**inputs)
        for name, want in numpy(**inputs).items():
            assert_close(got[name], want, length=LENGTH, name=f"{name} at {given}")
    return file


@pytest.mark.parametrize("name", YAML)
@pytest.mark.parametrize("opset", [13, 24])
def test_every_kind_of_model(name: str, opset: int) -> None:
    sizes = [dict.fromkeys(("seq", "target"), n) | {"batch": 2, "source": n + 1} for n in (1, 23)]
    symbols = {s.name for s in model(name).graph.symbols}
    assert symbols <= sizes[0].keys(), symbols
    file = check(model(name), opset, *sizes)
    found, attentions = operators(file), 6 if "encoder" in name else 2
    experts = 2 if name == "experts" else 0
    if opset == 24:
        assert (found["Attention"], found["Softmax"]) == (attentions, experts)
        turned = sum(node.op == "rotary" for node in model(name).graph.nodes)
        assert found["RotaryEmbedding"] == turned
        assert bool(turned) == (name in ROTARY)
    else:
        assert (found["Attention"], found["Softmax"]) == (0, attentions + experts)


@pytest.mark.parametrize("name", ["encoder", "decoder", "free"])
def test_examples_in_every_opset(name: str) -> None:
    found = load_source(str(EXAMPLES / f"{name}.yaml"))
    files = {opset: check(found, opset, {"batch": 2, "seq": 5}) for opset in OPSETS}
    counts = {opset: operators(file) for opset, file in files.items()}
    norm = "RMSNormalization" if name == "decoder" else "LayerNormalization"
    least = 23 if name == "decoder" else 17
    for opset, count in counts.items():
        assert bool(count[norm]) == (opset >= least)
        assert bool(count["Gelu"]) == (name == "encoder" and opset >= 20)
        assert bool(count["Attention"]) == (name != "free" and opset >= 23)
        assert count["Identity"] == 0


def test_sizes_stay_symbolic() -> None:
    """And each is read from one input, once for the whole file."""
    file = onnx.load_from_string(written(model("alibi").graph, 13, model("alibi").weights))
    shapes = {
        port.name: [d.dim_param or d.dim_value for d in port.type.tensor_type.shape.dim]
        for port in (*file.graph.input, *file.graph.output)
    }
    assert shapes == {
        "input_ids": ["batch", "seq"],
        "attention_mask": ["batch", "seq"],
        "logits": ["batch", "seq", 40],
    }
    assert sum(node.op_type == "Shape" for node in file.graph.node) == 1
    notes = {prop.key: prop.value for prop in file.metadata_props}
    assert notes["tfgraph.symbol.seq"].startswith("1..")


def test_the_mask_is_made_once() -> None:
    """Not once a layer: the same nodes for 2 layers as for 5."""
    two, five = (
        model(YAML["alibi"].replace("layers: 2", f"layers: {layers}")) for layers in (2, 5)
    )
    for opset, names in ((13, ("Range", "Less", "And")), (24, ("Range", "Less", "And", "Where"))):
        few, many = (operators(written(m.graph, opset, m.weights)) for m in (two, five))
        assert [few[n] for n in names] == [many[n] for n in names]
        assert all(few[n] for n in names)


def test_weights_and_values_keep_their_names() -> None:
    found = model("learned")
    file = onnx.load_from_string(written(found.graph, 24, found.weights))
    stored = {tensor.name for tensor in file.graph.initializer}
    assert {p.value.name for p in found.graph.params} <= stored
    made = {name for node in file.graph.node for name in node.output}
    fused, _ = run_pipeline(found.graph, parse_pipeline(FUSED))
    inner = {v.name for node in fused.nodes for v in node.outputs if v not in fused.output_values}
    assert {name for name in inner if "~" not in name} <= made
    assert {output.name for output in fused.outputs} <= made


@pytest.mark.parametrize("case", NAMES)
def test_checkpoints(tmp_path: Path, case: str) -> None:
    """Against what transformers computes from the same weights, with padding at either end."""
    found = import_model(CASES / case, tmp_path / "model.yaml", hidden_states=True)
    inputs = reference(case, "in")
    if "token_type_ids" in {item.value.name for item in found.graph.inputs}:
        inputs["token_type_ids"] = np.zeros_like(inputs["input_ids"])
    wanted = reference(case, "out") | reference(case, "hidden")
    left = reference(case, "leftpad")
    logits = left.pop("logits", None)
    mask = inputs.get("attention_mask", np.ones((1, 1))).astype(bool)
    for opset in (13, 24):
        session = Session(written(found.graph, opset, found.weights))
        got = session(**inputs)
        assert got.keys() == wanted.keys()
        for name, want in wanted.items():
            of_source = "decoder_input_ids" not in inputs or name.startswith("encoder")
            real = mask if of_source and want.shape[:2] == mask.shape else slice(None)
            assert_within(got[name][real], want[real], TRANSFORMERS, name)
        if logits is not None:
            real = left["attention_mask"].astype(bool)
            assert_within(session(**left)["logits"][real], logits[real], TRANSFORMERS, "leftpad")


def test_constants_are_rounded_once() -> None:
    """1/3 in the dtype of the tensor beside it, not by way of float32."""
    with tfgraph.graph("constant") as g:
        for name in ("f16", "f32", "f64"):
            x = g.input(name, name, "n")
            g.output(f"y_{name}", x * Fraction(1, 3))
    file = to_onnx(g.build(), 24)
    arrays = [onnx.numpy_helper.to_array(tensor) for tensor in file.graph.initializer]
    want: list[Any] = [kind(1 / 3) for kind in (np.float16, np.float32, np.float64)]
    assert [(a.dtype, a.item()) for a in arrays] == [(w.dtype, w.item()) for w in want]


def test_outputs_that_are_no_results() -> None:
    """An input, a weight, and one value under two names."""
    with tfgraph.graph("odd") as g:
        x, w = g.input("x", "f32", "n", 4), g.param("w", "f32", 4)
        y = x + w
        for name, value in {"x": x, "w": w, "again": x, "y": y, "z": y}.items():
            g.output(name, value)
    graph = g.build()
    weights = {"w": np.arange(4, dtype=np.float32)}
    given = {"x": np.ones((3, 4), np.float32)}
    got = Session(written(graph, 24, weights))(**given)
    for name, want in by_numpy(graph, given, weights).items():
        np.testing.assert_array_equal(got[name], want)


def test_sizes_are_computed_as_ours() -> None:
    """Differences, products, quotients rounded down below 0 too, least and largest, of symbols that
    stand alone in no shape."""
    n, m = as_dim("n"), as_dim("m")
    sizes = [n, m, n + m, n * m + 3, (n + 1) // 2, (n - m) // (m + 1) + 9, 20 - n, 2 * m - n + 9]
    sizes += [dim_min(n, m), dim_max(n, m, 5), dim_max((m - n) // 2, 1), n * n // m + 1]
    with tfgraph.graph("sizes") as g:
        g.input("x", "f32", n + 2, 3)
        g.input("y", "f32", 2 * m + n)
        for i, size in enumerate(sizes):
            g.output(f"s{i}", ops.iota(length=size))
    for opset in (13, 24):
        session = Session(written(g.build(), opset))
        for a, b in ((1, 1), (2, 7), (9, 2)):
            x, y = np.zeros((a + 2, 3), np.float32), np.zeros(2 * b + a, np.float32)
            got = [len(array) for array in session(x=x, y=y).values()]
            assert got == [size.evaluate({"n": a, "m": b}) for size in sizes]
