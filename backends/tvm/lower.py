"""From graphs to a Relax module: a function each, whose bindings call our kernels.

What the targets share: symbols, weights in compiled layout, views, and the walk over the nodes.
Each target brings its kernels; an op without an emitter goes through its body, and core ops that
no emitter claims through the generic kernels. May import: tvm, module, passes, ops, ir, errors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
from tvm import ir, relax, tirx

from tfgraph.backends.base import FLOATS, CompiledWeight
from tfgraph.backends.tvm.generic import (
    SUPPORTED,
    computed_by,
    inlinable,
    kernel_key,
    leaves,
    symbols_of,
)
from tfgraph.backends.tvm.generic.dims import to_expr
from tfgraph.backends.tvm.module import Launch, LoweredFunction, Module, identity
from tfgraph.backends.tvm.weights import source_names, weight_array
from tfgraph.errors import TfgraphError
from tfgraph.ir import (
    Dim,
    DType,
    Exact,
    Graph,
    Node,
    Output,
    TensorType,
    Value,
    product,
)
from tfgraph.ops import expand
from tfgraph.ops.evaluate import Unexpandable
from tfgraph.ops.widen import computes_narrow, in_float32
from tfgraph.passes import Declined, NoMatch

NDArray = np.ndarray[Any, Any]
Var = Any  # relax.Var
Emitter = Callable[["Lowering", Node], None]

_EMITTERS: dict[tuple[str | None, str], tuple[Emitter, Callable[[Graph, Node], bool], bool]] = {}


def emitter(
    *ops: str,
    target: str | None = None,
    when: Callable[[Graph, Node], bool] = lambda graph, node: True,
    floats: bool = False,
) -> Callable[[Emitter], Emitter]:
    """Decorator: the function emits these ops, for one target or for all; `when` may turn a node
    down, with a reason that the user reads if it raises NoMatch. A target's own emitter comes
    before one for all. With `floats` it takes the float types that the target's kernels have, and
    no others."""

    def add(function: Emitter) -> Emitter:
        for op in ops:
            _EMITTERS[target, op] = (function, when, floats)
        return function

    return add


def find_emitter(target: str, graph: Graph, node: Node) -> Emitter | None:
    """The emitter for a node, or None."""
    found = _choose(target, graph, node)
    return None if isinstance(found, str) else found


def _choose(target: str, graph: Graph, node: Node) -> Emitter | str:
    """The emitter for a node, or why there is none."""
    reason = f"{target} has no kernel for it"
    for key in ((target, node.op), (None, node.op)):
        if key in _EMITTERS:
            function, when, floats = _EMITTERS[key]
            try:
                if (not floats or has_kernels(target, node)) and when(graph, node):
                    return function
                types = ", ".join(str(v.type) for v in node.inputs)
                reason = f"its kernel does not take {types}"
            except NoMatch as no:
                reason = str(no)
    return reason


def has_kernels(target: str, node: Node) -> bool:
    """Whether the target's kernels take the floats of a node."""
    dtypes = {v.type.dtype for v in (*node.inputs, *node.outputs) if v.type.dtype.is_float}
    return dtypes <= set(FLOATS.get(target, (DType.float32,)))


def one_float(graph: Graph, node: Node) -> bool:
    """Whether all that a node reads and makes is of one float type, for `when`."""
    dtype = node.outputs[0].type.dtype
    return dtype.is_float and all(v.type.dtype == dtype for v in (*node.inputs, *node.outputs))


def number(attr: Any) -> float:
    """An attribute as a kernel takes it; 0 for none."""
    return float(attr) if isinstance(attr, Exact) else float(attr or 0.0)


class Lowering:
    """Emits one graph. Emitters use `value`, `weight`, `call` and `put`."""

    def __init__(self, graph: Graph, module: Module) -> None:
        self.module, self.kernels, self.builder = module, module.kernels, module.builder
        self._given = graph
        self.graph, self._expanded = resolve(graph, module.kernels.target)
        self.symbols = {name: tirx.Var(name, "int64") for name in sorted(_symbols(self.graph))}
        self.shared: dict[Any, Any] = {}
        """Results that several nodes share, by a key of the emitter's choice."""
        self._values: dict[Value, Var] = {}
        self._matrices: dict[Value, Var] = {}
        self._node: Node | None = None
        self._launches: list[Launch] = []
        self._states: set[Value] = set()
        self._weights: dict[Any, tuple[CompiledWeight, Var]] = {}
        self._lazy = {
            value: node
            for value, node in inlinable(self.graph).items()
            if find_emitter(self.kernels.target, self.graph, node) is None
        }
        """What is computed where it is read, and has a kernel where that cannot be."""

    def run(self, name: str = "main") -> LoweredFunction:
        """Lower the whole graph as the function of that name."""
        inputs = [item.value for item in self.graph.inputs]
        bound = {str(d) for v in inputs for d in v.type.shape if str(d) in self.symbols}
        scalars = tuple(size for size in self.symbols if size not in bound)
        for size in scalars:
            self.symbols[size] = relax.Var(size, ir.PrimType("int64"))
        parameters = [self._parameter(v, scalars) for v in inputs]
        with self.builder.function(name):
            with _ended(self.builder), self.builder.dataflow():
                for value, var in zip(inputs, parameters, strict=True):
                    whole = all(d.symbols.isdisjoint(scalars) for d in value.type.shape)
                    self.put(value, var if whole else self.reshape(var, value.type.shape))
                for node in self.graph.nodes:
                    made = self.graph.weight_values.issuperset(node.outputs)
                    if not made and node.outputs[0] not in self._lazy:
                        self._emit(node)
                self._node = None
                results = [self._output(o) for o in self.graph.outputs]
                result = self.builder.emit_output(relax.Tuple(results))
            parameters += [self.symbols[size] for size in scalars]
            parameters += [var for _, var in self._weights.values()]
            self.builder.emit_func_output(result, parameters)
        weights = tuple(w for w, _ in self._weights.values())
        launches = tuple(self._launches)
        return LoweredFunction(self._given, self.graph, scalars, weights, launches, self._expanded)

    def value(self, value: Value) -> Var:
        """The Relax variable of a value; a weight in its plain layout."""
        if value in self.graph.weight_values:
            return self.weight(value)
        if value in self._lazy and not self.has(value):
            node, self._node = self._node, self._lazy[value]
            self.emit_generic(self._lazy[value])
            self._node = node
        if value not in self._values:
            self._values[value] = self.reshape(self._matrices[value], value.type.shape)
        return self._values[value]

    def put(self, value: Value, var: Var) -> None:
        """Say what a value is in Relax."""
        self._values[value] = var

    def has(self, value: Value) -> bool:
        """Whether the value has been emitted."""
        return value in self._values or value in self._matrices

    def weight(
        self,
        value: Value,
        layout: str = "plain",
        shape: tuple[int, ...] | None = None,
        make: Callable[[NDArray], NDArray] = np.ascontiguousarray,
    ) -> Var:
        """A parameter that holds a weight in some layout; `make` turns the plain array into it."""
        key = (identity(self.graph, value), layout)
        if key not in self._weights:
            sources = tuple(self.sources(value))
            base = value.name if "~" not in value.name else "+".join(sources) or value.name
            sizes = shape if shape is not None else tuple(int(d) for d in value.type.shape)
            dtype = value.type.dtype.value
            names = [base if layout == "plain" else f"{base}:{layout}", f"{value.name}:{layout}"]
            entry = self.module.weight(
                key,
                names,
                lambda name: CompiledWeight(
                    name, dtype, sizes, layout, sources, lambda: make(self.array(value))
                ),
            )
            self._weights[key] = entry, relax.Var(entry.name, relax.TensorType(sizes, dtype))
        return self._weights[key][1]

    def array(self, value: Value) -> NDArray:
        """A weight's array, computed from the parameters where nodes make it."""
        return weight_array(self.graph, self.module.arrays, value)

    def sources(self, value: Value) -> list[str]:
        """The names of the parameters that a weight is made of, in order."""
        return source_names(self.graph, value)

    def kernel(self, key: Any, make: Callable[[], Any], name: str) -> Any:
        """The global variable of a kernel, made once for each key."""
        return self.module.kernel(key, make, name)

    def call(
        self, kernel: Any, arguments: Sequence[Any], results: Sequence[TensorType]
    ) -> tuple[Var, ...]:
        """Call a kernel; one variable for each result type."""
        self._called(kernel)
        types = [self.relax_type(t) for t in results]
        if len(types) == 1:
            return (self.builder.emit(relax.call_tir(kernel, list(arguments), types[0])),)
        made = self.builder.emit(relax.call_tir(kernel, list(arguments), types))
        return tuple(self.builder.emit(relax.TupleGetItem(made, i)) for i in range(len(types)))

    def call_in_place(
        self,
        kernel: Any,
        states: Sequence[Value],
        arguments: Sequence[Any],
        results: Sequence[TensorType] = (),
    ) -> tuple[Var, ...]:
        """Call a kernel that writes the arrays of some inputs, its first arguments, and after them
        `results`, its last: those, and what the inputs become. Nothing else may read the inputs,
        see `ops.cache`."""
        self._called(kernel)
        given = [*map(self.value, states), *arguments]
        places = [-1] * len(results) + list(range(len(states)))
        types = [self.relax_type(t) for t in (*results, *(state.type for state in states))]
        self._states.update(states)
        if len(types) == 1:
            return (self.builder.emit(relax.op.call_tir_inplace(kernel, given, 0, types[0])),)
        made = self.builder.emit(relax.op.call_tir_inplace(kernel, given, places, types))
        return tuple(self.builder.emit(relax.TupleGetItem(made, i)) for i in range(len(types)))

    def _called(self, kernel: Any) -> None:
        self._launches.append(Launch(kernel.name_hint, self._node))
        callers = self.module.calls.setdefault(kernel.name_hint, [])
        if self._node is not None:
            callers.append(self._node)

    def reshape(self, var: Var, shape: Sequence[Dim]) -> Var:
        """A view under another shape."""
        return self.builder.emit(relax.op.reshape(var, [self.expr(d) for d in shape]))

    def rows(self, value: Value) -> Var:
        """A value [..., n] as a matrix [rows, n]; the view is made once."""
        if value.type.rank == 2:
            return self.value(value)
        if value not in self._matrices:
            shape = product(value.type.shape[:-1]), value.type.shape[-1]
            self._matrices[value] = self.reshape(self.value(value), shape)
        return self._matrices[value]

    def put_rows(self, value: Value, var: Var) -> None:
        """The reverse of `rows` for a result; the view [..., n] is made if `value` asks for it."""
        (self._values if value.type.rank == 2 else self._matrices)[value] = var

    def expr(self, dim: Dim) -> Any:
        """A dimension as a TIR expression of the symbols."""
        return to_expr(dim, self.symbols)

    def relax_type(self, type_: TensorType) -> Any:
        """The Relax type of a tensor type."""
        return relax.TensorType([self.expr(d) for d in type_.shape], type_.dtype.value)

    def emit_generic(self, node: Node) -> None:
        """Emit a core op through its generic kernel, which computes what it may of its operands."""
        inner = computed_by(node, self._lazy, self.has)
        key = kernel_key(node, inner)
        kernel = self.kernel(key, lambda: self.kernels.generic(node, inner), node.op)
        arguments = [self.value(v) for v in leaves(node, inner)]
        arguments += [self.symbols[name] for name in symbols_of(node, inner)]
        results = self.call(kernel, arguments, [v.type for v in node.outputs])
        for value, var in zip(node.outputs, results, strict=True):
            self.put(value, var)

    def _parameter(self, value: Value, scalars: Sequence[str]) -> Var:
        """The parameter of `main` for an input. Relax can't match a shape against scalars, which
        become known after it: such a dimension gets a name of its own."""
        sizes = [
            self.expr(d) if d.symbols.isdisjoint(scalars) else tirx.Var(f"size{axis}", "int64")
            for axis, d in enumerate(value.type.shape)
        ]
        return relax.Var(value.name, relax.TensorType(sizes, value.type.dtype.value))

    def _emit(self, node: Node) -> None:
        self._node = node
        function = find_emitter(self.kernels.target, self.graph, node)
        try:
            if function is not None:
                function(self, node)
            else:
                self.emit_generic(node)
        except TfgraphError as error:
            if error.location is None:
                raise TfgraphError(error.message, node.location, error.hint) from error
            raise

    def _output(self, output: Output) -> Var:
        """A result: a buffer of its own, never an input's or another result's, but for what became
        of a state."""
        value = output.value
        if any(state.name == output.name for state in self._states):
            return self.value(value)
        if value in self.graph.producer and value not in self.graph.weight_values:
            node = self.graph.producer[value]
            count = sum(1 for o in self.graph.outputs if o.value == value)
            if node.op != "reshape" and count == 1 and self.has(value):
                return self.value(value)
        copy = Node("cast", (value,), (value,), {"dtype": value.type.dtype})
        kernel = self.kernel(("copy", value.type), lambda: self.kernels.generic(copy), "copy")
        arguments = [self.value(value), *(self.symbols[name] for name in symbols_of(copy))]
        return self.call(kernel, arguments, [value.type])[0]


@contextlib.contextmanager
def _ended(builder: Any) -> Generator[None]:
    """Ends the open block where an error leaves `function`, which does not; the builder would warn
    of it on stderr when it is freed."""
    try:
        yield
    except BaseException:
        builder._end_block()
        builder.end_scope()
        raise


def resolve(graph: Graph, target: str) -> tuple[Graph, tuple[Declined, ...]]:
    """Expand ops that the target has no emitter for, those of floats of 16 bits in float32, and say
    which. Raises TfgraphError for one that nothing runs, which says where to register one."""
    notes: list[Declined] = []

    def missing(node: Node) -> bool:
        if graph.weight_values.issuperset(node.outputs):
            return False  # the reference computes it when the artifact is made
        return find_emitter(target, graph, node) is None and node.op not in SUPPORTED

    while True:
        absent = [n for n in graph.nodes if missing(n)]
        if not absent:
            return graph, tuple(notes)
        wide = [n for n in absent if computes_narrow(n) and has_kernels(target, n)]
        how = "runs in f32" if wide else "runs as its parts"
        for node in wide or absent:
            at = f"{', '.join(map(str, node.outputs))} = {node.op}"
            reason = f"{_choose(target, graph, node)}: {how}"
            notes.append(Declined(node.op, at, reason, node.location))
        graph = in_float32(graph, wide) if wide else _expanded(graph, target, absent)


def _expanded(graph: Graph, target: str, absent: Sequence[Node]) -> Graph:
    """The graph with the parts of these nodes in place of them."""
    try:
        expanded = expand(graph, lambda node: node in absent)
    except Unexpandable as error:
        raise _no_emitter(error.node, target, error.reason) from error
    for node in absent:
        same = next((n for n in expanded.nodes if n.outputs == node.outputs), None)
        if same is not None and same.op == node.op:
            raise _no_emitter(node, target)
    return expanded


def _no_emitter(node: Node, target: str, reason: str = "") -> TfgraphError:
    """The error for a node that nothing runs on the target, and why it has no parts that do."""
    operands = ", ".join(str(v.type) for v in node.inputs)
    return TfgraphError(
        f"the {target} backend cannot run {node.op} on {operands}{reason and f': {reason}'}",
        node.location,
        f"register one: @tfgraph.backends.tvm.lower.emitter('{node.op}', target='{target}')",
    )


def _symbols(graph: Graph) -> set[str]:
    used = {s for v in graph.values() for d in v.type.shape for s in d.symbols}
    return used.union(*(symbols_of(node) for node in graph.nodes))
