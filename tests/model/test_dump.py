"""Graphs as model files in the free form: what is written, and that it reads back as the same."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from helpers.random_graphs import graphs
from hypothesis import HealthCheck, given, settings

from tfgraph.errors import TfgraphError
from tfgraph.ir import Graph
from tfgraph.model import dump_yaml, load_source, read_model
from tfgraph.text import parse_graph, print_graph

EXAMPLES = Path(__file__).parents[2] / "examples"

TEXT = """
graph g(%x: f32[batch,8], %ids: i64[batch] = ids(9), %"a, b": f32[] = zeros()) {
  symbol batch: 1..64, example 2
  symbol rows: 2..1099511627776
  constraint batch + 2 <= rows
  %0 = mul(%x, rsqrt(8)) : f32[batch,8]
  %"s, 1", %14~2 = topk(%0) {k=2} : f32[batch,2], i64[batch,2]
  %yes = linear_activation(%x, %"w #1", _) {activation="gelu"} : f32[batch,8]
  %_ = add(%yes, %"a, b") : f32[batch,8]
  return y=%_, "0"=%0, "s, 1"=%"s, 1"
}
weights { %"w #1": f32[8,8] = normal(1/3) }
"""

YAML = r"""
name: g
symbols:
  batch: {min: 1, max: 64, example: 2}
  rows: {min: 2, max: 1099511627776}
constraints:
  - batch + 2 <= rows
inputs:
  x: f32[batch,8]
  ids: i64[batch] = ids(9)
  a, b: f32[] = zeros()
# Seeded unless `checkpoint: FILE` names a safetensors file.
weights:
  "w #1": f32[8,8] = normal(1/3)
nodes:
  0: mul(x, rsqrt(8))
  "\"s, 1\", \"14~2\"": topk("0") {k=2}
  "yes": "linear_activation(x, \"w #1\") {activation=\"gelu\"}"
  "\"_\"": add(yes, "a, b")
outputs:
  "y": _
  0: "0"
  s, 1: s, 1
"""


def read_back(text: str) -> Graph:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.yaml"
        path.write_text(text, "utf-8")
        return read_model(path).graph


def test_the_file_that_is_written() -> None:
    graph = parse_graph(TEXT)
    assert dump_yaml(graph) == YAML.lstrip()
    assert read_back(YAML) == graph


@given(graphs())
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_reading_gives_the_graph_that_was_written(graph: Graph) -> None:
    read = read_back(dump_yaml(graph))
    assert print_graph(read) == print_graph(graph)
    assert read == graph


@pytest.mark.parametrize("name", ["encoder.yaml", "free.yaml"])
def test_examples_read_back_as_the_same(name: str) -> None:
    graph = load_source(str(EXAMPLES / name)).graph
    assert read_back(dump_yaml(graph)) == graph


def test_names_that_only_results_may_have() -> None:
    graph = parse_graph("graph g(%0: f32[n]) {\n  %y = relu(%0) : f32[n]\n  return %y\n}")
    with pytest.raises(TfgraphError, match="%0 cannot be written as YAML"):
        dump_yaml(graph)


def test_a_name_that_is_no_identifier_becomes_one() -> None:
    graph = parse_graph('graph "1 größe"(%x: f32[n]) {\n  return %x\n}')
    assert dump_yaml(graph).startswith("name: _1_gr__e\n")
    assert read_back(dump_yaml(graph)).inputs == graph.inputs


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("'a,'", "'a,' has an empty name"),
        ("'\"a\\q\"'", '"a\\q": escapes are those of JSON'),
        ("'\"x\"'", "x: defined twice"),
    ],
)
def test_wrong_names_of_results(tmp_path: Path, key: str, message: str) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(f"inputs:\n  x: f32[n]\nnodes:\n  {key}: relu(x)\noutputs:\n  y: x\n", "utf-8")
    with pytest.raises(TfgraphError) as error:
        read_model(path)
    assert (error.value.message, str(error.value.location)) == (message, f"{path}:4:3")
