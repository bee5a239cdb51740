"""`to_onnx`: a graph as an ONNX model, without the bytes of its weights.

May import: emit, registry, ops, ir, errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from onnx import helper, numpy_helper

from tfgraph.errors import TfgraphError
from tfgraph.ir import Value
from tfgraph.onnx.export.emit import DTYPES, Emitter
from tfgraph.onnx.export.registry import find_exporter
from tfgraph.onnx.notes import write_notes
from tfgraph.ops import expand
from tfgraph.ops.evaluate import Unexpandable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgraph.ir import Dim, Graph, Node, Output, TensorType

OLDEST_OPSET = 13
"""The first in which axes are inputs of the operators that we write."""
DEFAULT_OPSET = 24
"""The newest for which ONNX Runtime has kernels of its own: of Attention it has none later."""
_NEWEST_TESTED = 28
_ATTENTION = 23


def newest_opset() -> int:
    """The newest version of the operator set that the installed `onnx` knows and tests cover."""
    return min(_NEWEST_TESTED, onnx.defs.onnx_opset_version())


def has_attention(opset: int) -> bool:
    """Whether Attention, RMSNormalization and RotaryEmbedding are in a version."""
    return opset >= _ATTENTION


def check_opset(opset: int) -> None:
    """Raise TfgraphError for a version that is not written."""
    if not OLDEST_OPSET <= opset <= newest_opset():
        raise TfgraphError(
            f"opset {opset} is not supported: expected {OLDEST_OPSET} to {newest_opset()}",
            hint=f"without --opset it is {DEFAULT_OPSET}",
        )


def to_onnx(graph: Graph, opset: int = DEFAULT_OPSET) -> onnx.ModelProto:
    """The ONNX model of a graph; its parameters are initialisers without data.

    Raises one TfgraphError that names every node without a form in this version of the operator
    set, and one for states, which ONNX has not.
    """
    check_opset(opset)
    _refuse_states(graph)
    graph = _resolved(graph, opset)
    to = Emitter(graph, opset)
    for value in _given(graph):
        to.declare(value, value.name)
    for output in graph.outputs:
        _refuse_taken(graph, output)
        to.reserve(output.value, output.name)
    to.run(graph.nodes)
    outputs = _outputs(to)
    made = helper.make_graph(
        [
            helper.make_node(n.op, n.inputs, n.outputs, name=n.outputs[0], **n.attrs)
            for n in to.nodes
        ],
        graph.name,
        [_port(item.value.name, item.value.type) for item in graph.inputs],
        outputs,
        [numpy_helper.from_array(array, name) for name, array in to.constants.items()],
    )
    for param in graph.params:
        kind = param.value.type
        made.initializer.add(
            name=param.value.name, data_type=DTYPES[kind.dtype][0], dims=map(int, kind.shape)
        )
    versions = [helper.make_opsetid("", opset)]
    model = helper.make_model(
        made,
        producer_name="tfgraph",
        opset_imports=versions,
        ir_version=helper.find_min_ir_version_for(versions),
    )
    helper.set_model_props(model, write_notes(graph))
    return model


def _refuse_states(graph: Graph) -> None:
    states = [i for i in graph.inputs if i.fill is not None and i.fill.kind == "state"]
    if states:
        names = ", ".join(f"%{item.value.name}" for item in states)
        raise TfgraphError(
            f"{graph.name} has states ({names}), which a run replaces: ONNX has none",
            states[0].fill.location if states[0].fill else None,
            "export the whole model, which computes all tokens anew",
        )


def _given(graph: Graph) -> list[Value]:
    """Inputs and weights."""
    return [i.value for i in graph.inputs] + [p.value for p in graph.params]


def _refuse_taken(graph: Graph, output: Output) -> None:
    """An output may be called as an input or a weight only where it is that."""
    for value in _given(graph):
        if value.name == output.name and value != output.value:
            what = "a weight" if value in graph.param_values else "an input"
            raise TfgraphError(
                f"output '{output.name}' is called as {what}, which ONNX does not allow",
                hint="rename the output",
            )


def _resolved(graph: Graph, opset: int) -> Graph:
    """The graph with the bodies of those ops that the table does not have in this version."""
    stuck: set[Value] = set()  # results of those whose bodies fail, which `run` names

    def missing(node: Node) -> bool:
        return find_exporter(node, opset) is None and node.outputs[0] not in stuck

    while any(map(missing, graph.nodes)):
        try:
            expanded = expand(graph, missing)
        except Unexpandable as error:
            stuck.add(error.node.outputs[0])
            continue
        again = {node.outputs[0]: node.op for node in graph.nodes}
        stuck |= {
            n.outputs[0] for n in expanded.nodes if n.op == again.get(n.outputs[0]) and missing(n)
        }
        graph = expanded
    return graph


def _outputs(to: Emitter) -> list[onnx.ValueInfoProto]:
    """The graph's outputs: values under their public names. One that is an input, a weight, or
    another output already, is a copy."""
    found: list[onnx.ValueInfoProto] = []
    for output in to.graph.outputs:
        made = to.names[output.value]
        if made != output.name:
            to.name(to.node("Identity", made), output.name)
        found.append(_port(output.name, output.value.type))
    return found


def _port(name: str, kind: TensorType) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, DTYPES[kind.dtype][0], _shape(kind.shape))


def _shape(shape: Sequence[Dim]) -> list[int | str]:
    return [int(dim) if dim.is_const else str(dim) for dim in shape]
