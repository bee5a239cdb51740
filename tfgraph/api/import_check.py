"""Which node of an ONNX file was not translated right: against a witness that runs the file itself.

First the weights: each parameter is the file's initialiser. Then every node by itself: what the
reference computes for it, on what the witness gives for its operands, is compared with what the
witness gives for its results. May import: blame, comparison, differ, backends, onnx, ops, ir,
errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import numpy_helper

from tfgraph.api.blame import judge
from tfgraph.api.comparison import Divergence
from tfgraph.api.differ import apart, isolated
from tfgraph.backends.original import OriginalFile, read_proto
from tfgraph.ir import Fill, Graph, Input, Node, Output, Value
from tfgraph.onnx.importer import clean
from tfgraph.ops import FloatArray
from tfgraph.ops.evaluate import run_node

if TYPE_CHECKING:
    from pathlib import Path

    from tfgraph.api.bounds import Difference
    from tfgraph.backends.base import Weights

NDArray = np.ndarray[Any, Any]
Arrays = Mapping[str, NDArray]


@dataclass(frozen=True)
class ImportReport:
    """`compared` of the file's `of` nodes have results that the graph has too, under the same name;
    and the first weight or node that is wrong."""

    witness: str
    compared: int
    of: int
    first: Divergence | None

    def to_json(self) -> dict[str, Any]:
        """The object under "import"."""
        return {
            "witness": self.witness,
            "compared": self.compared,
            "of": self.of,
            "ok": self.first is None,
        }

    def __str__(self) -> str:
        return f"{self.compared} of {self.of} nodes compared with {self.witness}"


def check_import(
    path: Path,
    witness: str,
    graph: Graph,
    weights: Weights,
    feeds: Arrays,
    sizes: Mapping[str, int],
) -> ImportReport:
    """Compare the graph, as it was imported, with the file in a witness, node by node."""
    model = read_proto(path)
    of = len(model.graph.node)
    wrong = _wrong_weight(model, path, graph, weights)
    if wrong is not None:
        return ImportReport(witness, 0, of, wrong)
    with OriginalFile(graph, path, witness) as original:
        theirs = original.inner(model, feeds)
    places = _places(model, graph)
    known = {name: FloatArray(np.asarray(array)) for name, array in feeds.items()}
    known |= {p.value.name: FloatArray(weights[p.value.name]) for p in graph.params}
    like, compared = FloatArray(np.zeros((), np.float64)), set[str]()
    for node in graph.nodes:
        with np.errstate(all="ignore"):
            results = run_node(node, known, sizes, like)
        known |= {v.name: r for v, r in zip(node.outputs, results, strict=True)}
        for value in node.outputs:
            if value not in places:
                continue
            origin, name = places[value]
            compared.add(origin.output[0])
            want, got = theirs[name], known[value.name].data
            found = _wrong(graph, value, places, weights, known, sizes, want)
            if found is not None:
                first = _wrong_node(path, origin, value, found, witness)
                return ImportReport(witness, len(compared), of, first)
            if want.shape == got.shape and want.dtype == got.dtype:
                known[value.name] = FloatArray(np.array(want))
    return ImportReport(witness, len(compared), of, None)


def _wrong(
    graph: Graph,
    value: Value,
    places: Mapping[Value, object],
    weights: Weights,
    known: Mapping[str, FloatArray],
    sizes: Mapping[str, int],
    want: NDArray,
) -> Difference | None:
    """How the witness's result differs from what the translation means; None where it is within
    bounds, or no worse than honest arithmetic."""
    got = known[value.name].data
    if apart(want, got) == 0:
        return None
    part, name = _between(graph, value, places), value.name
    arrays = {i.value.name: known[i.value.name].data for i in part.inputs}
    (found,) = isolated(part, weights, arrays, sizes, {name: want}, {name: got}, "witness")
    if found.ok:
        return None
    judgement = judge(part, name, weights, sizes, arrays, [("witness", want)])
    return found if judgement.blamed else None


def _between(graph: Graph, value: Value, places: Mapping[Value, object]) -> Graph:
    """What makes a value of those that the file has, too."""
    nodes: list[Node] = []
    needed = {value}
    for node in reversed(graph.nodes):
        made = needed.intersection(node.outputs)
        if made and (value in made or not made <= places.keys()):
            nodes.append(node)
            needed.update(node.inputs)
    made_here = {v for node in nodes for v in node.outputs}
    params = graph.param_values
    given = [v for n in nodes for v in n.inputs if v not in made_here and v not in params]
    fills = {i.value: i for i in graph.inputs}
    return replace(
        graph,
        inputs=tuple(fills.get(v, Input(v, Fill("zeros"))) for v in dict.fromkeys(given)),
        params=tuple(p for p in graph.params if p.value in needed),
        nodes=tuple(reversed(nodes)),
        outputs=(Output(value.name, value),),
        constraints=(),
    )


def _wrong_node(
    path: Path, origin: onnx.NodeProto, value: Value, found: Difference, witness: str
) -> Divergence:
    label = _label(origin)
    return Divergence(
        value.name,
        origin.op_type,
        f"{path}:{label}",
        found.error,
        found.max_abs,
        found.bound,
        "node",
        found.worst_index,
        f"node '{label}' ({origin.op_type}) is another function in {witness}, on equal operands",
    )


def _wrong_weight(
    model: onnx.ModelProto, path: Path, graph: Graph, weights: Weights
) -> Divergence | None:
    """The first parameter that is not the initialiser of its name."""
    for tensor in model.graph.initializer:
        name = clean(tensor.name)
        param = next((p.value for p in graph.params if p.value.name == name), None)
        if param is None or tuple(tensor.dims) != tuple(int(d) for d in param.type.shape):
            continue  # it was read as a formula, or in part
        want: NDArray = numpy_helper.to_array(tensor, str(path.parent))
        got = weights[name]
        if want.dtype != got.dtype:
            continue
        different = apart(want, got)
        if different > 0:
            others = (want != got) & ((want == want) | (got == got))  # NaN is NaN
            index = np.unravel_index(int(np.argmax(others)), want.shape)
            why = f"the file's initialiser '{tensor.name}' holds something else"
            first = tuple(int(i) for i in index)
            return Divergence(name, "", str(path), None, different, 0.0, "weight", first, why)
    return None


def _places(model: onnx.ModelProto, graph: Graph) -> dict[Value, tuple[onnx.NodeProto, str]]:
    """The values of the graph that are results of the file's nodes: the node, and the name there.
    Such a value has the name, and its node the place."""
    by_label: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        by_label.setdefault(_label(node), []).append(node)
    found: dict[Value, tuple[onnx.NodeProto, str]] = {}
    for value, maker in graph.producer.items():
        label = maker.location.file.rpartition(":")[2] if maker.location else ""
        for node in by_label.get(label, ()):
            for name in node.output:
                if re.fullmatch(f"v?{re.escape(clean(name))}(_[0-9]+)?", value.name):
                    found[value] = node, name
    return found


def _label(node: onnx.NodeProto) -> str:
    """What the importer calls a node."""
    return node.name or next(iter(node.output), node.op_type)
