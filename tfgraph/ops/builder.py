"""Builds graphs: collects inputs, parameters, nodes and outputs.

    with graph("block") as g:
        x = g.input("x", "f32", "batch", "seq", 8)
        g.output("y", softmax(x + x))
    g.build()

May import: trace, place, operands, define, indices, ir, errors.
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfgraph.errors import TfgraphError
from tfgraph.ir import (
    Constraint,
    Dim,
    DType,
    Fill,
    Graph,
    Input,
    Node,
    Output,
    Param,
    Symbol,
    TensorType,
    Value,
    as_dim,
    dims_of,
    exact,
    map_operand,
    tensor,
    verify_structure,
)
from tfgraph.ir.legal import (
    check_dim,
    check_dims,
    check_fill,
    check_input_name,
    check_name,
    check_relation,
    check_shape,
    check_symbol,
)
from tfgraph.ops.define import OpDef, find_op
from tfgraph.ops.indices import index_ranges
from tfgraph.ops.operands import Refused, not_a_tensor
from tfgraph.ops.place import caller_location, raised_location, user_location
from tfgraph.ops.trace import Traced, map_traced

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from types import TracebackType

    from tfgraph.errors import Location
    from tfgraph.ir import DimLike

_current: ContextVar[Builder] = ContextVar("builder")
_OF_GRAPHS = {name for name in (*vars(Graph), *Graph.__dataclass_fields__) if name[0] != "_"}


class Builder:
    """Collects inputs, parameters, nodes and outputs, and builds the graph."""

    def __init__(self, name: str, prefix: str = "") -> None:
        """`prefix` starts the names of results, to keep them apart from another graph's."""
        self.name = name
        self._prefix = prefix
        self._inputs: list[Input] = []
        self._params: dict[str, Param] = {}
        self.nodes: list[Node] = []
        self._most: int | None = None
        self._results = 0  # of all nodes
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

    def __exit__(self, _: object, error: BaseException | None, trace: TracebackType | None) -> None:
        _current.reset(self._token)
        if isinstance(error, TfgraphError) and error.location is None:
            error.location = raised_location(trace)

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            """Say what is missing where a Graph is expected."""
            if name in _OF_GRAPHS:
                raise TfgraphError(
                    f"graph {self.name} is still being built", hint="call build() for the graph"
                )
            raise AttributeError(f"'Builder' object has no attribute '{name}'")

    def symbol(self, name: str, low: int = 1, high: int = 65536, example: int | None = None) -> Dim:
        """Declare a symbolic size with its range; `example` is used where no size is given."""
        with Blame():
            declared = Symbol(name, low, high, example)
            dim = as_dim(name)
            check_symbol(declared)
        self._symbols[name] = declared
        return dim

    def constrain(self, left: DimLike, relation: str, right: DimLike) -> None:
        """Record a relation (`==` or `<=`) between sizes, checked on every call."""
        with Blame():
            stated = Constraint(as_dim(left), relation, as_dim(right), self.here())
            check_relation(stated)
        self._constraints.append(stated)

    def input(
        self, name: str, dtype: str | DType, *shape: DimLike, fill: Fill | None = None
    ) -> Traced:
        """Declare an input; `fill` makes an example of it. Unless given it is what its uses ask for
        (partial masks, ids of a table), else normal values, or ones of an integer or bool."""
        with Blame():
            check_input_name(name)
        if name.isdigit():
            raise TfgraphError(f"input '{name}': results have numbers for names", self.here())
        if name in self._params or any(name == item.value.name for item in self._inputs):
            what = "a parameter" if name in self._params else "an input"
            raise TfgraphError(f"there is {what} '{name}' already", self.here())
        value = self._declared(name, dtype, shape)
        self._inputs.append(Input(value, self._checked(fill)))
        return Traced(self, value)

    def param(
        self, name: str, dtype: str | DType, *shape: DimLike, fill: Fill | None = None
    ) -> Traced:
        """Declare a weight under the current scope, or return the one of that name and type."""
        full = ".".join([*self._param_scopes, name])
        with Blame():
            check_name(full, "parameter")
        if full.isdigit():
            raise TfgraphError(f"parameter '{full}': results have numbers for names", self.here())
        if any(full == item.value.name for item in self._inputs):
            raise TfgraphError(f"there is an input '{full}' already", self.here())
        value = self._declared(full, dtype, shape)
        fill = self._checked(fill) or Fill("normal", exact(0.02))
        known = self._params.setdefault(full, Param(value, fill))
        if known.value != value:
            raise TfgraphError(
                f"parameter {full} is {known.value.type} and {value.type}", self.here()
            )
        return Traced(self, value)

    def _declared(self, name: str, dtype: str | DType, shape: Sequence[DimLike]) -> Value:
        with Blame():
            try:
                sizes = tuple(as_dim(size) for size in shape)
                check_shape(sizes)
            except TfgraphError as error:
                raise TfgraphError(f"{name}: {error.message}", hint=error.hint) from error
            return Value(name, tensor(dtype, *sizes))

    def _checked(self, fill: Fill | None) -> Fill | None:
        """The generator, with its place."""
        if fill is None:
            return None
        with Blame():
            check_fill(fill)
        return replace(fill, location=fill.location or self.here())

    def output(self, name: str, x: Traced) -> None:
        """Give a value a public name."""
        with Blame():
            check_name(name, "output")
        if any(name == output.name for output in self._outputs):
            raise TfgraphError(f"there is an output '{name}' already", self.here())
        with Blame():
            self._outputs.append(Output(name, self._value(x, f"output '{name}'")))

    def label(self, x: Traced, name: str) -> Traced:
        """Name a value under the current scope, so that dumps and reports read well.

        The last name given to a result stands; inputs and parameters keep theirs."""
        old, full = x.value, ".".join([*self._scopes, name])
        with Blame():
            check_name(full, "label")
        if old.name.isdigit():  # a result, not an input or a parameter
            self._renamed[old] = Value(full, old.type)
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
    def scope(self, name: str, params: str | None = None) -> Generator[None]:
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
    def at(self, location: Location | None) -> Generator[None]:
        """Nodes made inside come from `location` rather than from the Python line."""
        previous, self._location = self._location, location
        try:
            yield
        finally:
            self._location = previous

    @contextlib.contextmanager
    def at_most(self, count: int) -> Generator[None]:
        """Raises TfgraphError inside the block for more nodes than that."""
        previous, self._most = self._most, len(self.nodes) + count
        try:
            yield
        finally:
            self._most = previous

    def apply(self, name: str, *operands: Any, **attrs: Any) -> Any:
        """Add a node by the op's name; returns its result, or a tuple of several."""
        with Blame():
            definition = find_op(name)
            bound = definition.bind_operands(operands), definition.bind_attrs(attrs)
        return self.emit(definition, *bound)

    def emit(self, definition: OpDef, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        """Add a node; returns its result, or a tuple of several. Raises Refused at the user's line
        where the op does not take them."""
        here = self.here()
        if self._most is not None and len(self.nodes) >= self._most:
            raise TfgraphError("it would take too many nodes", here)
        try:
            plain = tuple(map_traced(o, self._value) for o in operands)
            types = definition.node_types([map_traced(o, _type_of) for o in operands], attrs)
            for attr in attrs.values():
                check_dims(tuple(dims_of(attr)))
            for dim in (d for operand in plain for d in dims_of(operand)):
                check_dim(dim)
        except TfgraphError as error:
            if error.location is None:
                message = error.message
                if not message.startswith(definition.name):
                    message = f"{definition.name}: {message}"
                raise Refused(message, here, error.hint) from error
            raise
        first = self._results
        self._results += len(types)
        outputs = tuple(Value(f"{self._prefix}{first + i}", t) for i, t in enumerate(types))
        self.nodes.append(Node(definition.name, plain, outputs, dict(attrs), here))
        results = [Traced(self, value) for value in outputs]
        return tuple(results) if len(results) > 1 else results[0]

    def build(self) -> Graph:
        """The finished graph, verified. Raises TfgraphError, such as for one without outputs."""
        place = caller_location()
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
        try:
            verify_structure(graph)
            index_ranges(graph)
        except TfgraphError as error:
            error.location = error.location or place
            raise
        return graph

    def _value(self, traced: Any, what: str = "an operand") -> Value:
        if not isinstance(traced, Traced):
            raise not_a_tensor(traced, what)
        if traced.builder is not self:
            other = traced.builder.name
            raise TfgraphError(f"{what} belongs to another graph, {other}, not to {self.name}")
        return traced.value

    def __repr__(self) -> str:
        return f"<graph {self.name}, being built: {len(self.nodes)} nodes>"

    def here(self) -> Location | None:
        """The place that a node made now comes from."""
        return self._location or user_location()


def _type_of(traced: Traced) -> TensorType:
    return traced.type


def graph(name: str) -> Builder:
    """Start a graph; use it in a `with` statement, then call `build()`."""
    with Blame():
        check_name(name, "graph")
        if not name.isidentifier():
            raise TfgraphError(f"graph name '{name}' is not an identifier")
    return Builder(name)


def current() -> Builder:
    """The graph being built. Raises TfgraphError outside of `with graph(...)`."""
    try:
        return _current.get()
    except LookupError:
        raise TfgraphError(
            "no graph is being built", hint="with tfgraph.graph('name') as g:"
        ) from None


class Blame:
    """A `with` block whose errors without a place get the user's line, or the one set by `at`."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, TfgraphError) and error.location is None:
            builder = _current.get(None)
            error.location = builder.here() if builder else user_location()
