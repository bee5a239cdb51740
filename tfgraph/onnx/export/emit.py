"""`Emitter`: the ONNX graph while it is written. May import: sizes, rows, registry, ops, ir,
errors.

Every value has a name and an element type, which is checked against ONNX's own schemas when an
operator reads it: so what a version of the operator set does not take is known at its place, before
any file exists.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx
from onnx import TensorProto

from tfgraph.errors import TfgraphError
from tfgraph.ir import DType, Exact, Mask, Value, exact
from tfgraph.onnx.export.registry import find_exporter
from tfgraph.onnx.export.rows import find_low
from tfgraph.onnx.export.sizes import Sizes
from tfgraph.ops import Builder, Traced
from tfgraph.ops.floats import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from tfgraph.ir import ExactLike, Graph, Node, TensorType
    from tfgraph.onnx.export.rows import Low

    NDArray = np.ndarray[Any, Any]

DTYPES = {
    DType.float64: (TensorProto.DOUBLE, "tensor(double)"),
    DType.float32: (TensorProto.FLOAT, "tensor(float)"),
    DType.float16: (TensorProto.FLOAT16, "tensor(float16)"),
    DType.bfloat16: (TensorProto.BFLOAT16, "tensor(bfloat16)"),
    DType.int64: (TensorProto.INT64, "tensor(int64)"),
    DType.int32: (TensorProto.INT32, "tensor(int32)"),
    DType.int8: (TensorProto.INT8, "tensor(int8)"),
    DType.uint8: (TensorProto.UINT8, "tensor(uint8)"),
    DType.int4: (TensorProto.INT4, "tensor(int4)"),
    DType.bool_: (TensorProto.BOOL, "tensor(bool)"),
}
"""ONNX's number of an element type, and how its schemas write a tensor of it."""
_MOST = 20  # errors that are shown
_BY_TEXT = {text: dtype for dtype, (_, text) in DTYPES.items()}


@dataclass
class Made:
    """An ONNX node that may still get other names for its results."""

    op: str
    inputs: tuple[str, ...]
    outputs: list[str]
    attrs: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Emitter:
    """Collects nodes and constants. Entries of the table use `node`, `scalar`, `ints`, `sizes`."""

    def __init__(self, graph: Graph, opset: int) -> None:
        self.graph, self.opset = graph, opset
        self.nodes: list[Made] = []
        self.constants: dict[str, NDArray] = {}
        self.types: dict[str, DType] = {}
        self.names: dict[Value, str] = {}
        self.public: dict[Value, str] = {}  # what results are called outside
        self.sizes = Sizes(self)
        self._taken: set[str] = set()
        self._made: dict[str, Made] = {}
        self._known: dict[Any, Any] = {}  # what is shared, by what it is
        self._base, self._shared = graph.name, False

    @cached_property
    def low_values(self) -> Mapping[Value, Low]:
        """Where values may be -inf."""
        return find_low(self.graph)

    def declare(self, value: Value, name: str) -> None:
        """A value that no node makes: an input or a weight."""
        self._taken.add(name)
        self.names[value], self.types[name] = name, value.type.dtype

    def reserve(self, value: Value, name: str) -> None:
        """Call a value so where a node makes it; nothing else is called so."""
        self._taken.add(name)
        if value in self.graph.producer:
            self.public.setdefault(value, name)

    def node(
        self, op: str, *inputs: str, outputs: int = 1, dtype: DType | None = None, **attrs: Any
    ) -> Any:
        """Apply an operator; the name of its result, or a tuple of names. `dtype` is the result's
        where the operands don't tell. Raises TfgraphError where this version of the operator set
        does not have the operator, or not of these element types."""
        given = tuple(inputs)
        while given and not given[-1]:
            given = given[:-1]
        key = (op, given, repr(sorted(attrs.items())))
        if self._shared and key in self._known:
            return self._known[key]
        types = self._result_types(op, given, outputs, dtype)
        names = [self._fresh(f"{self._base}/{op}") for _ in types]
        made = Made(op, given, names, attrs)
        self.nodes.append(made)
        for name, kind in zip(names, types, strict=True):
            self._made[name], self.types[name] = made, kind
        result = names[0] if outputs == 1 else tuple(names)
        if self._shared:
            self._known[key] = result
            for name in names:
                del self._made[name]  # it keeps its name: several nodes read it
        return result

    def constant(self, array: NDArray, label: str) -> str:
        """A constant tensor; equal ones are stored once."""
        dtype = DType(str(array.dtype))
        key = (dtype, array.shape, array.tobytes())
        if key not in self._known:
            name = self._known[key] = self._fresh(f"constant/{label}")
            self.constants[name], self.types[name] = array, dtype
        return str(self._known[key])

    def scalar(self, value: ExactLike, dtype: DType) -> str:
        """A number as a tensor of rank 0, rounded once to the element type."""
        number = exact(value)
        plain = float(number) if dtype.is_float else int(number.factor)
        array = np.array(plain).astype(numpy_dtype(dtype))
        return self.constant(array, str(number).replace("/", ":"))

    def low(self, dtype: DType) -> str:
        """Minus infinity, which hides a score."""
        return self.constant(np.array(-np.inf).astype(numpy_dtype(dtype)), "-inf")

    def ints(self, *values: int) -> str:
        """A vector of i64."""
        return self.constant(np.array(values, np.int64), ",".join(map(str, values)))

    @contextmanager
    def shared(self, base: str) -> Generator[None]:
        """Nodes made inside are made once for the whole file, and named after `base`."""
        before = self._base, self._shared
        self._base, self._shared = base, True
        try:
            yield
        finally:
            self._base, self._shared = before

    def trace(
        self, base: str, formula: Callable[[Mask, Any], Any], mask: Mask, scores: TensorType
    ) -> tuple[str, Value] | None:
        """What a formula of ours gives for a mask and scores of that type: its name and the value,
        or None where the formula says that there is nothing. Equal ones are written once."""
        builder = Builder(base, prefix=f"{base} ")

        def traced(value: Value) -> Traced:
            return Traced(builder, value)

        with builder:
            result: Any = formula(mask.map(traced), traced(Value("scores", scores)))
        if result is None:
            return None
        with self.shared(base):
            for node in builder.nodes:
                self._write(node)
        value: Value = result.value
        return self.names[value], value

    def run(self, nodes: Sequence[Node]) -> None:
        """Write nodes in order. Raises one TfgraphError with all that have no form in ONNX."""
        errors: list[TfgraphError] = []
        for node in nodes:
            try:
                self._write(node)
            except TfgraphError as error:
                what = f"%{node.outputs[0].name} = {node.op}: {error.message}"
                errors.append(TfgraphError(what, error.location or node.location, error.hint))
                for value in node.outputs:  # so that what reads it is looked at too
                    self.declare(value, self._fresh(value.name))
        if errors:
            first, *rest = errors[:_MOST]
            left = len(errors) - _MOST
            hint = f"{first.hint or ''}; and {left} more nodes" if left > 0 else first.hint
            raise TfgraphError(first.message, first.location, hint, rest)

    def name(self, made: str, wanted: str) -> str:
        """Call the result of the newest node `wanted`, which it is called then."""
        node = self._made.pop(made)
        node.outputs[node.outputs.index(made)] = wanted
        self.types[wanted] = self.types[made]
        return wanted

    def _write(self, node: Node) -> None:
        function = find_exporter(node, self.opset)
        if function is None:
            raise TfgraphError(
                "ONNX has no form for it",
                hint=f"register one: @tfgraph.onnx.export.exports('{node.op}')",
            )
        first = next((o.type.dtype for o in node.operands if isinstance(o, Value)), None)
        before = self._base
        self._base = before if self._shared else node.outputs[0].name
        try:
            made: Any = function(self, node, *(self._operand(o, first) for o in node.operands))
        finally:
            self._base = before
        results = cast("tuple[str, ...]", made if isinstance(made, tuple) else (made,))
        for value, name in zip(node.outputs, results, strict=True):
            if self.types[name] != value.type.dtype:
                raise TfgraphError(f"written as {self.types[name]}, expected {value.type.dtype}")
            self.names[value] = name if self._shared else self._named(value, name)

    def _named(self, value: Value, made: str) -> str:
        if made not in self._made:
            return made
        return self.name(made, self.public.get(value) or self._fresh(value.name))

    def _operand(self, operand: Any, dtype: DType | None) -> Any:
        if operand is None:
            return ""
        if isinstance(operand, Exact):
            return self.scalar(operand, dtype or DType.float32)
        return operand if isinstance(operand, Mask) else self.names[operand]

    def _fresh(self, name: str) -> str:
        number, free = 0, name
        while free in self._taken:
            number += 1
            free = f"{name}~{number}"
        self._taken.add(free)
        return free

    def _result_types(
        self, op: str, inputs: Sequence[str], outputs: int, dtype: DType | None
    ) -> list[DType]:
        schema = find_schema(op, self.opset)
        bound: dict[str, str] = {}
        allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
        for i, name in enumerate(inputs):
            if not name:
                continue
            formal = schema.inputs[min(i, len(schema.inputs) - 1)]
            text = DTYPES[self.types[name]][1]
            if text not in allowed.get(formal.type_str, [formal.type_str]):
                raise TfgraphError(
                    f"ONNX's {op} does not take {self.types[name]} in opset {self.opset}",
                    hint=_hint(op, formal.name, text, self.opset),
                )
            bound[formal.type_str] = text
        found: list[DType] = []
        for formal in schema.outputs[:outputs]:
            if formal.type_str in bound:
                found.append(_BY_TEXT[bound[formal.type_str]])
                continue
            kinds = allowed.get(formal.type_str, [formal.type_str])
            kind = dtype or _BY_TEXT[kinds[0]]
            if DTYPES[kind][1] not in kinds:
                raise TfgraphError(
                    f"ONNX's {op} does not make {kind} in opset {self.opset}",
                    hint=_hint(op, formal.name, DTYPES[kind][1], self.opset),
                )
            found.append(kind)
        return found


@cache
def find_schema(op: str, opset: int) -> Any:
    """ONNX's own description of an operator."""
    try:
        return onnx.defs.get_schema(op, max_inclusive_version=opset, domain="")
    except onnx.defs.SchemaError:
        raise TfgraphError(f"ONNX has no {op} in opset {opset}") from None


def _hint(op: str, formal: str, text: str, opset: int) -> str | None:
    """A later version of the operator set that takes the element type."""
    for version in range(opset + 1, onnx.defs.onnx_opset_version() + 1):
        schema = find_schema(op, version)
        kinds = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
        for port in (*schema.inputs, *schema.outputs):
            if port.name == formal and text in kinds.get(port.type_str, [port.type_str]):
                return f"opset {version} does"
    return "cast it to another element type"
