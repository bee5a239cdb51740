"""The traced domain: applying an op to a `Traced` value adds a node to the graph being built.

    with graph("block") as g:
        x = g.input("x", "f32", "batch", "seq", 8)
        g.output("y", softmax(x + x))
    g.build()

May import: array, define, ir, errors.
"""

from __future__ import annotations

import contextlib
import os
import sys
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfgraph.errors import Location, TfgraphError
from tfgraph.ir import (
    Constraint,
    Dim,
    DType,
    Exact,
    Fill,
    Graph,
    Input,
    Mask,
    Node,
    Output,
    Param,
    Symbol,
    TensorType,
    Value,
    as_dim,
    exact,
    map_operand,
    tensor,
    verify_structure,
)
from tfgraph.ops.array import Array
from tfgraph.ops.define import OpDef, find_op

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import FrameType

    from tfgraph.ir import DimLike, ExactLike

_HOUSE = Path(__file__).resolve().parents[1]
# Where the code is laid out as in the repository, passes and backends stand beside `tfgraph/`.
_LIBRARY = tuple(f"{p}{os.sep}" for p in (_HOUSE, _HOUSE.parent / "passes", _HOUSE.parent / "backends"))
_current: ContextVar[Builder] = ContextVar("builder")


@dataclass(frozen=True, eq=False)
class Traced(Array):
    """A value of a graph that is being built. Python operators apply the ops of their names."""

    builder: Builder
    value: Value

    @property
    def type(self) -> TensorType:
        """The value's type."""
        return self.value.type

    def apply(self, definition: OpDef, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        """Add a node."""
        results = self.builder.emit(definition, operands, attrs)
        return results if len(results) > 1 else results[0]

    def _emit(self, name: str, *operands: Any, **attrs: Any) -> Any:
        return self.builder.apply(name, self, *operands, **attrs)

    def like(self, value: ExactLike) -> Any:
        """The exact constant itself: scalars are operands."""
        return exact(value)

    def unary(self, f: str) -> Any:
        """The op of that name."""
        return self._emit(f)

    def binary(self, f: str, other: Any) -> Any:
        """The op of that name."""
        return self._emit(f, other)

    def binary_after(self, f: str, first: ExactLike) -> Any:
        """The op of that name, whose first operand is the scalar."""
        return self.builder.apply(f, first, self)

    def select(self, yes: Any, no: Any) -> Any:
        """The op `where`; a scalar becomes a tensor of rank 0."""
        dtype = (yes if isinstance(yes, Traced) else no).dtype

        def whole(x: Any) -> Any:
            if isinstance(x, Traced):
                return x
            return self.builder.apply("full", shape=(), value=x, dtype=dtype)

        return self._emit("where", whole(yes), whole(no))

    def hide(self, allowed: Any) -> Any:
        """The op `mask` with a dense mask."""
        from tfgraph.ir.mask import dense

        return self._emit("mask", dense(allowed))

    def empty(self, axis: int) -> Any:
        """The op `empty`."""
        return self._emit("empty", axis=axis)

    def reduce(self, f: str, axis: int) -> Any:
        """The op of that name, keeping the axis."""
        return self._emit(f, axis=axis, keepdims=True)

    def scan(self, f: str, axis: int) -> Any:
        """The op `cumsum`."""
        return self._emit("cumsum", axis=axis)

    def matmul(self, other: Any) -> Any:
        """The op `matmul`."""
        return self._emit("matmul", other)

    def reshape(self, shape: Sequence[DimLike]) -> Any:
        """The op `reshape`."""
        return self._emit("reshape", shape=tuple(shape))

    def transpose(self, perm: Sequence[int]) -> Any:
        """The op `transpose`."""
        return self._emit("transpose", perm=tuple(perm))

    def broadcast(self, shape: Sequence[DimLike]) -> Any:
        """The op `broadcast_to`."""
        return self._emit("broadcast_to", shape=tuple(shape))

    def slice(self, axis: int, start: DimLike, stop: DimLike) -> Any:
        """The op `slice`."""
        return self._emit("slice", axis=axis, start=start, stop=stop)

    def join(self, others: Sequence[Any], axis: int) -> Any:
        """The op `concat`."""
        return self._emit("concat", *others, axis=axis)

    def take(self, indices: Any, axis: int) -> Any:
        """The op `take`."""
        return self._emit("take", indices, axis=axis)

    def topk(self, k: int) -> Any:
        """The op `topk`."""
        return self._emit("topk", k=k)

    def iota(self, length: DimLike) -> Any:
        """The op `iota`, in the same graph."""
        return self.builder.apply("iota", length=length)

    def cast(self, dtype: DType) -> Any:
        """The op `cast`."""
        return self._emit("cast", dtype=dtype)

    def __add__(self, other: Traced | ExactLike) -> Any:
        return self.binary("add", other)

    def __radd__(self, other: ExactLike) -> Any:
        return self.binary_after("add", other)

    def __sub__(self, other: Traced | ExactLike) -> Any:
        return self.binary("sub", other)

    def __rsub__(self, other: ExactLike) -> Any:
        return self.binary_after("sub", other)

    def __mul__(self, other: Traced | ExactLike) -> Any:
        return self.binary("mul", other)

    def __rmul__(self, other: ExactLike) -> Any:
        return self.binary_after("mul", other)

    def __truediv__(self, other: Traced | ExactLike) -> Any:
        return self.binary("div", other)

    def __rtruediv__(self, other: ExactLike) -> Any:
        return self.binary_after("div", other)

    def __matmul__(self, other: Traced) -> Any:
        return self.matmul(other)

    def __neg__(self) -> Any:
        return self.unary("neg")


class Builder:
    """Collects inputs, parameters, nodes and outputs, and builds the graph."""

    def __init__(self, name: str, prefix: str = "") -> None:
        """`prefix` starts the names of results, to keep them apart from another graph's."""
        self.name = name
        self._prefix = prefix
        self._inputs: list[Input] = []
        self._params: dict[str, Param] = {}
        self.nodes: list[Node] = []
        self._outputs: list[Output] = []
        self._symbols: dict[str, Symbol] = {}
        self._constraints: list[Constraint] = []
        self._renamed: dict[Value, Value] = {}
        self._scopes: list[str] = []
        self._param_scopes: list[str] = []
        self._blocks: set[str] = set()
        self._location: Location | None = None

    def __enter__(self) -> Builder:
        self._token = _current.set(self)
        return self

    def __exit__(self, *exception: object) -> None:
        _current.reset(self._token)

    def symbol(self, name: str, low: int = 1, high: int = 65536, example: int | None = None) -> Dim:
        """Declare a symbolic size with its range; `example` is used where no size is given."""
        self._symbols[name] = Symbol(name, low, high, example)
        return as_dim(name)

    def constrain(self, left: DimLike, relation: str, right: DimLike) -> None:
        """Record a relation (`==` or `<=`) between sizes, checked on every call."""
        self._constraints.append(Constraint(as_dim(left), relation, as_dim(right)))

    def input(
        self, name: str, dtype: str | DType, *shape: DimLike, fill: Fill | None = None
    ) -> Traced:
        """Declare an input; `fill` makes an example of it (normal values unless given)."""
        if name.isdigit():
            raise TfgraphError(f"input '{name}': results have numbers for names", self.here())
        value = self._declared(name, dtype, shape)
        default = Fill("normal", exact(1)) if value.type.dtype.is_float else Fill("ones")
        self._inputs.append(Input(value, fill or default))
        return Traced(self, value)

    def param(
        self, name: str, dtype: str | DType, *shape: DimLike, fill: Fill | None = None
    ) -> Traced:
        """Declare a weight under the current scope, or return the one of that name and type."""
        full = ".".join([*self._param_scopes, name])
        value = self._declared(full, dtype, shape)
        known = self._params.setdefault(full, Param(value, fill or Fill("normal", exact(0.02))))
        if known.value != value:
            raise TfgraphError(f"parameter {full} is {known.value.type} and {value.type}",
                               self.here())
        return Traced(self, value)

    def _declared(self, name: str, dtype: str | DType, shape: Sequence[DimLike]) -> Value:
        with Blame():
            try:
                return Value(name, tensor(dtype, *shape))
            except (ValueError, TypeError) as cause:  # from as_dim
                raise TfgraphError(f"{name}: {cause}") from cause

    def output(self, name: str, x: Traced) -> None:
        """Give a value a public name."""
        self._outputs.append(Output(name, x.value))

    def label(self, x: Traced, name: str) -> Traced:
        """Name a value under the current scope, so that dumps and reports read well.

        The last name given to a result stands; inputs and parameters keep theirs."""
        old = x.value
        if old.name.isdigit():  # a result, not an input or a parameter
            self._renamed[old] = Value(".".join([*self._scopes, name]), old.type)
        return x

    def unique(self, name: str) -> str:
        """`name`, or `name_1`, `name_2`, ... where the current scope has such a block already."""
        inputs = {item.value.name for item in self._inputs}
        prefix = "".join(f"{scope}." for scope in self._scopes)
        number, free = 0, name
        while prefix + free in self._blocks or prefix + free in inputs:
            number += 1
            free = f"{name}_{number}"
        self._blocks.add(prefix + free)
        return free

    @contextlib.contextmanager
    def scope(self, name: str, params: str | None = None) -> Iterator[None]:
        """Prefix the names of labels and parameters inside; parameters with `params` where given,
        so that blocks with names of their own share them."""
        self._scopes.append(name)
        self._param_scopes.append(name if params is None else params)
        try:
            yield
        finally:
            self._scopes.pop()
            self._param_scopes.pop()

    @contextlib.contextmanager
    def at(self, location: Location | None) -> Iterator[None]:
        """Nodes made inside come from `location` rather than from the Python line."""
        previous, self._location = self._location, location
        try:
            yield
        finally:
            self._location = previous

    def apply(self, name: str, *operands: Any, **attrs: Any) -> Any:
        """Add a node by the op's name; returns its result, or a tuple of several."""
        with Blame():
            definition = find_op(name)
            bound = definition.bind_operands(operands), definition.bind_attrs(attrs)
        results = self.emit(definition, *bound)
        return results if len(results) > 1 else results[0]

    def emit(
        self, definition: OpDef, operands: Sequence[Any], attrs: Mapping[str, Any]
    ) -> tuple[Traced, ...]:
        """Add a node; its types are inferred. Raises TfgraphError at the user's line."""
        here = self.here()
        try:
            plain = tuple(map_traced(o, self._value) for o in operands)
            types = definition.result_types([map_traced(o, lambda t: t.type) for o in operands], attrs)
        except TfgraphError as error:
            if error.location is None:
                message = error.message
                if not message.startswith(definition.name):
                    message = f"{definition.name}: {message}"
                raise TfgraphError(message, here, error.hint) from error
            raise
        first = sum(len(node.outputs) for node in self.nodes)
        outputs = tuple(Value(f"{self._prefix}{first + i}", t) for i, t in enumerate(types))
        self.nodes.append(Node(definition.name, plain, outputs, dict(attrs), here))
        return tuple(Traced(self, value) for value in outputs)

    def build(self) -> Graph:
        """The finished graph, verified."""
        new = self._renamed

        def rename(value: Value) -> Value:
            return new.get(value, value)

        graph = Graph(
            name=self.name,
            inputs=tuple(self._inputs),
            params=tuple(self._params.values()),
            nodes=tuple(
                replace(
                    node,
                    operands=tuple(map_operand(o, rename) for o in node.operands),
                    outputs=tuple(map(rename, node.outputs)),
                )
                for node in self.nodes
            ),
            outputs=tuple(Output(o.name, rename(o.value)) for o in self._outputs),
            symbols=tuple(self._symbols.values()),
            constraints=tuple(self._constraints),
        )
        verify_structure(graph)
        return graph

    def _value(self, traced: Any) -> Value:
        if not isinstance(traced, Traced) or traced.builder is not self:
            raise TfgraphError("an operand belongs to another graph, or to none")
        return traced.value

    def here(self) -> Location | None:
        """The place that a node made now comes from."""
        return self._location or _user_location()


def graph(name: str) -> Builder:
    """Start a graph; use it in a `with` statement, then call `build()`."""
    if not name.isidentifier():
        raise TfgraphError(f"graph name '{name}' is not an identifier")
    return Builder(name)


def current() -> Builder:
    """The graph being built. Raises TfgraphError outside of `with graph(...)`."""
    try:
        return _current.get()
    except LookupError:
        raise TfgraphError("no graph is being built", hint="with tfgraph.graph('name') as g:") from None


class Blame:
    """A `with` block whose errors without a place get the user's line, or the one set by `at`."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, TfgraphError) and error.location is None:
            builder = _current.get(None)
            error.location = builder.here() if builder else _user_location()


def map_traced(operand: Any, f: Any) -> Any:
    """`f` of a tensor operand or of each tensor in a mask."""
    if isinstance(operand, Mask):
        return operand.map(f)
    return operand if operand is None or isinstance(operand, Exact | Dim) else f(operand)


def _user_location() -> Location | None:
    """The innermost frame outside of this library: the user's line."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_LIBRARY):
            positions = list(code.co_positions())[frame.f_lasti // 2]
            return Location(code.co_filename, frame.f_lineno, (positions[2] or 0) + 1)
        frame = frame.f_back
    return None
