"""The fuzzer on libraries that are not ours, which run what is exported."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tfgraph.api.rounding import Float64
from tfgraph.fuzz import Case, Judge, random_case
from tfgraph.fuzz.batch import ONES, points
from tfgraph.fuzz.run import run
from tfgraph.fuzz.witnesses import FAULTS, Fault, nothing_hidden, one_by_one
from tfgraph.ir import DType
from tfgraph.onnx.export import exports, registry
from tfgraph.text import parse_graph

if TYPE_CHECKING:
    from pathlib import Path

CONSTANT = """graph g() {
  %0 = constant() {values=[0, 0.5, 3, -1], shape=[4], dtype=f32} : f32[4]
  %1 = tanh(%0) : f32[4]
  return y=%1
}"""


@pytest.mark.parametrize("witness", ["onnxruntime", "onnx-reference"])
def test_what_is_made_of_weights_alone_is_rounded_by_a_witness(witness: str) -> None:
    """Our backends leave it to the reference: its bound was 0."""
    judge = Judge(witness)
    assert judge.check(parse_graph(CONSTANT), [({}, {})]) == []
    assert judge.sensitive == 0


def test_ops_that_read_constants_are_disturbed() -> None:
    """They were not: so an honest result was blamed."""
    found = Float64(parse_graph(CONSTANT), {}, {}, {})
    assert max(float(abs(moved - found.exact).max()) for moved in found.moved) > 1e-9


def test_a_mistake_of_the_export_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_TABLE", dict(vars(registry)["_TABLE"]))

    @exports("tanh")
    def wrong(to: Any, node: Any, x: str) -> Any:
        return to.node("Sigmoid", x)

    graph = parse_graph(
        """graph g(%x: f32[batch,4]) {
          %0 = mul(%x, 2) : f32[batch,4]
          %1 = tanh(%0) : f32[batch,4]
          return y=%1
        }"""
    )
    case = Case(3, graph, {"x": ("normal", None)})
    (found,), refused = one_by_one([case], Judge("onnx-reference"), [ONES], 3, 5)
    assert [node.op for node in found.graph.nodes] == ["tanh"]
    assert not refused


def test_what_a_witness_refuses_is_counted(tmp_path: Path) -> None:
    graph = parse_graph(
        """graph g(%x: f32[batch,4]) {
          symbol past: 1..8
          %0 = iota() {length=past} : i64[past]
          return y=%0
        }"""
    )
    found, refused = one_by_one(
        [Case(3, graph, {"x": ("normal", None)})], Judge("onnx-reference"), [ONES], 3, 5
    )
    assert found == []
    (reason,) = refused
    assert reason.startswith("iota: no input's shape tells the size 'past'")
    report = run(("onnxruntime",), graphs=10, seed=100464, folder=tmp_path)
    assert (report.graphs, report.failures) == (10, [])
    assert report.to_json()["refused"]["onnxruntime"] == dict(report.refused["onnxruntime"])


def test_faults_are_of_graphs_that_compute_nothing_else() -> None:
    def shown(fault: Fault, dtype: str, *ops: str) -> bool:
        made, lines = "x", list[str]()
        for i, op in enumerate(ops):
            lines.append(f"  %{i} = {op}(%{made}) : {dtype}[n]\n")
            made = str(i)
        text = f"graph g(%x: {dtype}[n]) {{\n{''.join(lines)}  return y=%{made}\n}}"
        return fault.shows(parse_graph(text))

    half = Fault("onnx-reference", frozenset({"gelu", "erf"}), DType.float16, "")
    assert shown(half, "f16", "gelu", "erf")
    assert not shown(half, "f16", "erf", "tanh")
    assert not shown(half, "f16", "tanh", "erf")
    assert not shown(half, "f32", "erf")
    assert shown(replace(half, dtype=None), "f32", "erf")
    text = "graph g(%x: f32[n]) { %0 = silu(%x) : f32[n] %1 = minimum(2, %0) : f32[n] return y=%1 }"
    clipped = parse_graph(text)
    assert [f.why for f in FAULTS if f.shows(clipped)] == [FAULTS[2].why]
    assert "Sigmoid" in FAULTS[2].why


def test_a_mask_hides_numbers_from_witnesses() -> None:
    cases = [random_case(seed, kind="blocks") for seed in range(100)]
    hidden = [c for c in cases if any(kind == "hidden" for kind, _ in c.fills.values())]
    assert hidden
    for case in hidden:
        names = {name for name, (kind, _) in case.fills.items() if kind == "hidden"}
        arrays = replace(nothing_hidden(case)).feeds(points(0)[1])
        assert all(np.isfinite(arrays[name]).all() for name in names)
