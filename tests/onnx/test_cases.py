"""Exports of both of torch's exporters against what transformers computes."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.onnx_files import NAMES, NDArray, export_path, references
from helpers.tolerance import TRANSFORMERS, assert_within

import tfgraph
from tfgraph.onnx import import_onnx

ON_CPU = ("bert.legacy_static", "llama.dynamo_dyn")


def check(got: dict[str, NDArray], ref: dict[str, NDArray], prefix: str, mask: NDArray) -> None:
    """All outputs are near enough, at real positions where the output has positions."""
    assert got
    for name, array in got.items():
        want = ref[f"{prefix}.{name}"]
        assert array.shape == want.shape
        real = mask if want.shape[:2] == mask.shape else np.ones(len(want), bool)
        assert_within(array[real], want[real], TRANSFORMERS, name)


@pytest.mark.parametrize("export", NAMES)
def test_on_numpy(export: str) -> None:
    graph, weights = import_onnx(export_path(export))
    ref = references(export)
    run = tfgraph.compile(graph, weights=weights, target="numpy")
    given = {port.name: ref[f"in.{port.name}"] for port in run.inputs}
    mask = given.get("attention_mask", np.ones((1, 1))).astype(bool)
    check(run(**given), ref, "out", mask)
    if "attention_mask" in given and "decoder_input_ids" not in given:
        ones = np.ones_like(given["attention_mask"])
        check(run(**given | {"attention_mask": ones}), ref, "nomask", ones.astype(bool))
    if "leftpad.logits" in ref and graph.symbols:
        left = {port.name: ref[f"leftpad.{port.name}"] for port in run.inputs}
        check(run(**left), ref, "leftpad", left["attention_mask"].astype(bool))


@pytest.mark.parametrize("export", ON_CPU)
def test_on_cpu(export: str) -> None:
    ref = references(export)
    run = tfgraph.compile(str(export_path(export)), target="cpu")
    given = {port.name: ref[f"in.{port.name}"] for port in run.inputs}
    check(run(**given), ref, "out", given["attention_mask"].astype(bool))
    assert {port.name for port in run.inputs} == {"input_ids", "attention_mask"}


@pytest.mark.parametrize("export", NAMES)
def test_no_shape_arithmetic_is_left(export: str) -> None:
    """Symbols are those of the file, and sizes appear in types alone."""
    graph, _ = import_onnx(export_path(export))
    assert {s.name for s in graph.symbols} <= {"batch", "seq", "dec_seq"}
    assert all(node.op != "iota" or node.is_static for node in graph.nodes) or graph.symbols
    static = not any(d.symbols for value in graph.values() for d in value.type.shape)
    assert static == ("static" in export or "sdpa23" in export)


def test_the_same_text_again() -> None:
    graph, _ = import_onnx(export_path("t5.dynamo_dyn"))
    text = tfgraph.print_graph(graph)
    assert tfgraph.print_graph(tfgraph.parse_graph(text)) == text
    again, _ = import_onnx(export_path("t5.dynamo_dyn"))
    assert tfgraph.print_graph(again) == text


def test_ranges_from_tables_of_positions() -> None:
    for export, longest in (("bert.legacy_op11", 40), ("gpt2.legacy_dyn", 40)):
        graph, _ = import_onnx(export_path(export))
        assert graph.symbol("seq").high == longest, export
