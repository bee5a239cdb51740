"""A graph in another float type: its float inputs, parameters and outputs, and all between.

What no float data enters keeps its type, since narrow floats would not hold it: positions, angles,
ranks, masks that integers are made into. It is cast where it meets the data. May import: define,
trace, widen, ir, errors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfgraph.errors import TfgraphError
from tfgraph.ir import DType, Exact, Graph, Node, Value, exact, map_operand
from tfgraph.ir.legal import largest
from tfgraph.ir.mask import SENTINEL
from tfgraph.ops.define import find_op
from tfgraph.ops.trace import map_traced
from tfgraph.ops.widen import fresh

if TYPE_CHECKING:
    from tfgraph.ir import Attr, Operand

_MOVES = ("cast", "full", "slice", "reshape", "transpose", "broadcast_to", "embedding")
_READS_ROWS = ("embedding", "take", "take_at")


def with_dtype(graph: Graph, dtype: DType) -> Graph:
    """The graph with floats of that type; integers and bools stay as they are, and names do.

    Casts between floats go. Constants that hide scores become the lowest number of the type. Raises
    TfgraphError at the node whose constant the type does not hold.
    """
    return _Retyping(graph, dtype).run()


class _Retyping:
    """The nodes made so far; `data` are the floats that change, as they were."""

    def __init__(self, graph: Graph, dtype: DType) -> None:
        self.graph, self.dtype = graph, dtype
        self.data = _floats_of_data(graph)
        self.taken = {v.name for v in graph.values()}
        self.nodes: list[Node] = []
        self.new: dict[Value, Value] = {}
        self.casts: dict[Value, Value] = {}

    def run(self) -> Graph:
        graph = self.graph
        inputs = tuple(replace(i, value=self._given(i.value)) for i in graph.inputs)
        params = tuple(replace(p, value=self._given(p.value)) for p in graph.params)
        for node in graph.nodes:
            self._node(node)
        outputs = tuple(replace(o, value=self._read(o.value)) for o in graph.outputs)
        return replace(
            graph, inputs=inputs, params=params, nodes=tuple(self.nodes), outputs=outputs
        )

    def _given(self, value: Value) -> Value:
        """An input or parameter."""
        if value in self.data:
            self.new[value] = Value(value.name, value.type.with_dtype(self.dtype))
        return self.new.get(value, value)

    def _node(self, node: Node) -> None:
        if self.data.isdisjoint((*node.inputs, *node.outputs)):
            self.nodes.append(node.map_values(lambda v: self.new.get(v, v)))
            return
        if _is_cast(node) and node.inputs[0] in self.data:
            self.new[node.output] = self.new[node.inputs[0]]
            return
        if "dtype" in node.attrs and node.output in self.data:
            result = Value(node.output.name, node.output.type.with_dtype(self.dtype))
            attrs: dict[str, Attr] = {**node.attrs, "dtype": self.dtype}
            if isinstance(value := attrs.get("value"), Exact):
                attrs["value"] = self._constant(value)
            self.new[node.output] = result
            self.nodes.append(replace(node, outputs=(result,), attrs=attrs))
            return
        operands = tuple(map(self._operand, node.operands))
        try:
            types = find_op(node.op).node_types(
                [map_traced(o, lambda v: v.type) for o in operands], node.attrs
            )
        except TfgraphError as error:
            wider = self.dtype == DType.float16 and "does not fit" in error.message
            raise TfgraphError(
                f"%{node.outputs[0].name} = {node.op}: {error.message}",
                node.location,
                "bfloat16 has the range of float32" if wider else error.hint,
            ) from error
        made = tuple(Value(v.name, t) for v, t in zip(node.outputs, types, strict=True))
        self.new |= zip(node.outputs, made, strict=True)
        self.nodes.append(replace(node, operands=operands, outputs=made))

    def _operand(self, operand: Operand) -> Any:
        if isinstance(operand, Exact):
            return self._constant(operand)
        return map_operand(operand, self._read)

    def _constant(self, number: Exact) -> Exact:
        """A number that hides scores, as the type holds such."""
        limit = largest(self.dtype)
        return exact(-limit) if float(number) < min(-limit, SENTINEL) else number

    def _read(self, value: Value) -> Value:
        """A value as data or results meet it."""
        if value in self.data or not value.type.dtype.is_float:
            return self.new.get(value, value)
        if value.type.dtype == self.dtype:
            return value
        if value not in self.casts:
            cast = fresh(value, self.dtype, self.taken)
            self.casts[value] = cast
            made = self.graph.producer.get(value)
            place = None if made is None else made.location
            self.nodes.append(Node("cast", (value,), (cast,), {"dtype": self.dtype}, place))
        return self.casts[value]


def _is_cast(node: Node) -> bool:
    """Whether it casts floats to floats."""
    types = [v.type.dtype for v in (*node.inputs, *node.outputs)]
    return node.op == "cast" and all(dtype.is_float for dtype in types)


def _floats_of_data(graph: Graph) -> set[Value]:
    """The floats that inputs and parameters are, and all that is computed from them; and what only
    casts, fills or moves floats for those."""
    kept = _angles(graph)
    given = [*(i.value for i in graph.inputs), *(p.value for p in graph.params)]
    data = {v for v in given if v.type.dtype.is_float and v not in kept}
    for node in graph.nodes:
        if not data.isdisjoint(node.inputs):
            data.update(v for v in node.outputs if v.type.dtype.is_float)

    def reads_data(node: Node) -> bool:
        return not data.isdisjoint((*node.inputs, *node.outputs))

    for node in reversed(graph.nodes):
        users = graph.users.get(node.outputs[0], ())
        read = users or node.outputs[0] in graph.output_values
        if node.op in _MOVES and read and all(map(reads_data, users)):
            data.update(v for v in node.outputs if v.type.dtype.is_float)
    return data


def _angles(graph: Graph) -> set[Value]:
    """The parameters that angles are made of: what is upstream of a sine and has neither floats of
    inputs nor rows of a table in it."""
    found: set[Value] = set()
    floats = {i.value for i in graph.inputs if i.value.type.dtype.is_float}
    for node in graph.nodes:
        if node.op not in ("sin", "cos"):
            continue
        above, ahead = set[Value](), list(node.inputs)
        while ahead:
            value = ahead.pop()
            if value not in above:
                above.add(value)
                made = graph.producer.get(value)
                ahead += made.inputs if made is not None else ()
        makers = (graph.producer[v] for v in above if v in graph.producer)
        rows = any(
            m.op in _READS_ROWS and any(v.type.dtype.is_float for v in m.inputs) for m in makers
        )
        if not rows and above.isdisjoint(floats):
            found |= above & graph.param_values
    return found
