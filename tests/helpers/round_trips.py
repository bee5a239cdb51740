"""Graphs out to ONNX and in again: the texts of both, value names aside; and graphs to try."""

from __future__ import annotations

import runpy
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from helpers.checkpoints import CASES, NAMES, import_model
from helpers.generating import YAML, model
from helpers.part_graphs import GRAPH

import tfgraph
from tfgraph import ops
from tfgraph.api.export import FUSED
from tfgraph.ir import Output, Value, as_dim
from tfgraph.ir.mask import (
    alibi,
    bias,
    causal,
    dense,
    padding,
    prefix,
    relative,
    segments,
    window,
)
from tfgraph.model import load_source
from tfgraph.onnx import import_onnx
from tfgraph.onnx.export import has_attention, to_onnx, write_model
from tfgraph.passes import DEFAULT_PIPELINE, IMPORTED_PIPELINE, parse_pipeline, run_pipeline
from tfgraph.weights import Seeded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest

    from tfgraph.ir import DimLike, Graph, Mask

    NDArray = np.ndarray[Any, Any]
    Weights = Mapping[str, NDArray] | None

EXAMPLES = Path(__file__).parents[2] / "examples"
PARTS = sorted((EXAMPLES / "parts").glob("[0-9]*.py"))
OPSETS = (13, 17, 18, 21, 23, 24, 28)
"""The oldest; LayerNormalization; axes as inputs; before Attention; with it; the default; the
newest."""


def text(graph: Graph) -> str:
    """The text of a graph whose values are called by their order."""
    made = [value for node in graph.nodes for value in node.outputs]
    names = {value: Value(str(i), value.type) for i, value in enumerate(made)}

    def name(value: Value) -> Value:
        return names.get(value, value)

    nodes = tuple(
        replace(n.map_values(name), outputs=tuple(map(name, n.outputs))) for n in graph.nodes
    )
    outputs = tuple(Output(o.name, name(o.value)) for o in graph.outputs)
    return tfgraph.print_graph(replace(graph, nodes=nodes, outputs=outputs))


def returned(graph: Graph, weights: Weights, opset: int) -> tuple[Graph, Mapping[str, NDArray]]:
    """The graph that comes back of the file, as it is imported, and its weights."""
    written = graph
    if has_attention(opset):
        written, _ = run_pipeline(graph, parse_pipeline(FUSED))
    given = Seeded(graph.params) if weights is None else weights
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file.onnx"
        write_model(to_onnx(written, opset), written, given, path, "file.onnx.data")
        again, found = import_onnx(path)
        return again, {name: np.array(found[name]) for name in found}


def recovered(graph: Graph) -> Graph:
    """After the passes for what another tool wrote."""
    return run_pipeline(graph, parse_pipeline(IMPORTED_PIPELINE))[0]


def fused(graph: Graph) -> Graph:
    """After the passes for our own models."""
    return run_pipeline(graph, parse_pipeline(DEFAULT_PIPELINE))[0]


def difference(a: str, b: str) -> str:
    """The first line in which two texts differ; "" where none does."""
    pairs = zip_longest(a.splitlines(), b.splitlines())
    return next((f"- {x}\n+ {y}" for x, y in pairs if x != y), "")


def models() -> dict[str, Callable[[], tuple[Graph, Weights]]]:
    """Each kind of model, the examples, the parts and the checkpoints, by name."""

    def of_yaml(name: str) -> tuple[Graph, Weights]:
        found = model(name)
        return found.graph, found.weights

    def of_example(path: Path) -> tuple[Graph, Weights]:
        found = load_source(str(path))
        return found.graph, found.weights

    def of_case(name: str) -> tuple[Graph, Weights]:
        with TemporaryDirectory() as folder:
            found = import_model(CASES / name, Path(folder) / "model.yaml", hidden_states=True)
            return found.graph, None if found.weights is None else dict(found.weights)

    made: dict[str, Callable[[], tuple[Graph, Weights]]] = {}
    made |= {name: lambda name=name: of_yaml(name) for name in YAML}
    for path in sorted(EXAMPLES.glob("*.yaml")):
        made[path.name] = lambda path=path: of_example(path)
    made["parts"] = lambda: (GRAPH, None)
    made |= {f"checkpoint {name}": lambda name=name: of_case(name) for name in NAMES}
    return made


def graphs_of_part(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """The graphs that a script of examples/parts compiles."""
    found: dict[str, Graph] = {}
    compile_ = tfgraph.compile

    def noted(graph: Any, target: str, **options: Any) -> Any:
        built = graph if isinstance(graph, tfgraph.Graph) else graph.build()
        found[tfgraph.print_graph(built)] = built
        return compile_(graph, "numpy", **options)

    monkeypatch.setattr(tfgraph, "compile", noted)
    monkeypatch.syspath_prepend(path.parent)
    runpy.run_path(str(path), run_name="__main__")
    return list(found.values())


LENGTHS: tuple[tuple[DimLike | None, DimLike, DimLike], ...] = (
    (None, "n", "n"),
    ("past", "n", as_dim("past") + "n"),
    ("past", 1, as_dim("past") + 1),
    (3, "n", "m"),
    (None, 7, 7),
    (2, 5, 7),
)
"""Where the queries stand, how many they are, and the keys."""


def masks(q: DimLike, k: DimLike, past: DimLike | None) -> dict[str, Callable[[], Mask]]:
    """A mask of every kind and form, its tensors inputs of the graph being built."""

    def of(name: str, dtype: str, *shape: DimLike) -> Any:
        return ops.current().input(name, dtype, *shape)

    def slopes() -> Mask:
        return alibi(of("slopes", "f32", 4), past)

    def keep() -> Mask:
        return padding(of("keep", "i64", "batch", k))

    return {
        "causal": lambda: causal(past),
        "left": lambda: window(2, offset=past),
        "right": lambda: window(right=1, offset=past),
        "right 0": lambda: window(right=0, offset=past),
        "both": lambda: window(3, 1, past),
        "open": lambda: window(offset=past),
        "lengths": lambda: padding(of("lengths", "i32", "batch")),
        "bools": lambda: padding(of("keep", "bool", "batch", k)),
        "prefix": lambda: prefix(of("lengths", "i64", "batch"), past),
        "segments": lambda: segments(of("a", "i64", "batch", q), of("b", "i32", "batch", k)),
        "dense": lambda: dense(of("allowed", "bool", "batch", 1, 1, k)),
        "whole": lambda: dense(of("allowed", "bool", "batch", 4, q, k)),
        "bias": lambda: bias(of("t", "f32", 4, q, k)),
        "alibi": slopes,
        "relative": lambda: relative(of("table", "f32", 32, 4), offset=past),
        "one way": lambda: relative(of("table", "f32", 8, 4), 21, bidirectional=False, offset=past),
        "several": lambda: causal(past) & keep() & slopes(),
        "mixed": lambda: slopes() & causal(past) & bias(of("t", "f32", 4, q, k)),
        "narrow": lambda: window(5, offset=past) & causal(past) & keep(),
    }


def under_mask(name: str, lengths: tuple[Any, Any, Any], *, whole: bool) -> Graph:
    """A mask applied to scores, or in a `whole` attention."""
    past, q, k = lengths
    with tfgraph.graph("masked") as g:
        if past == "past":
            g.input("former", "i8", past)  # tells the size
        if whole:
            x, y = g.input("x", "f32", "batch", q, 16), g.input("y", "f32", "batch", k, 16)
            m = masks(q, k, past)[name]()
            z: Any = ops.attention(x, y, y, m, heads=4, kv_heads=4, scale=0.5)
        else:
            z = ops.mask(g.input("x", "f32", "batch", 4, q, k), masks(q, k, past)[name]())
        g.output("z", z)
    return g.build()
