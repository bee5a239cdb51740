"""The graph: values, nodes, inputs, parameters, symbols. Frozen, single assignment, in order.

A node applies an op to operands. An operand is a value, an exact scalar, a mask (whose tensors are
values), or None where an optional operand is left out. Every node knows the place in the user's
file that it came from; places take no part in equality.

May import: dim, exact, mask, types, errors.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tfgraph.ir.dim import Dim, as_dim
from tfgraph.ir.exact import Exact, exact
from tfgraph.ir.mask import Mask
from tfgraph.ir.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import networkx as nx

    from tfgraph.errors import Location


@dataclass(frozen=True)
class Value:
    """A tensor in the graph; its name is unique there."""

    name: str
    type: TensorType

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return f"%{self.name}"

    def __repr__(self) -> str:
        return f"<value {self}: {self.type}>"


Operand = Value | Exact | Mask | None
Attr = bool | int | str | Exact | Dim | DType | None | tuple["Attr", ...]


@dataclass(frozen=True)
class Node:
    """One application of an op. `attrs` holds every attribute, defaults included."""

    op: str
    operands: tuple[Operand, ...]
    outputs: tuple[Value, ...]
    attrs: Mapping[str, Attr] = field(default_factory=dict[str, "Attr"])
    location: Location | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "attrs", MappingProxyType(dict(self.attrs)))

    def __hash__(self) -> int:
        return hash(self.outputs)

    def __repr__(self) -> str:
        results = ", ".join(map(str, self.outputs))
        operands = ", ".join("_" if o is None else str(o) for o in self.operands)
        types = ", ".join(str(value.type) for value in self.outputs)
        return f"<node {results} = {self.op}({operands}): {types}>"

    @cached_property
    def inputs(self) -> tuple[Value, ...]:
        """The values that the node reads, masks' tensors included, in order."""
        found: list[Value] = []
        for operand in self.operands:
            if isinstance(operand, Value):
                found.append(operand)
            elif isinstance(operand, Mask):
                found.extend(operand.tensors())
        return tuple(found)

    @property
    def is_static(self) -> bool:
        """Whether no symbolic size occurs in its attributes, operands and results."""
        dims = [d for value in self.outputs for d in value.type.shape]
        dims += [d for a in (*self.attrs.values(), *self.operands) for d in dims_of(a)]
        return not any(d.symbols for d in dims)

    @property
    def output(self) -> Value:
        """The only output."""
        (value,) = self.outputs
        return value

    def map_values(self, f: Callable[[Value], Value]) -> Node:
        """The same node reading `f(value)` for each value."""
        return replace(self, operands=tuple(map_operand(o, f) for o in self.operands))


@dataclass(frozen=True)
class Symbol:
    """A symbolic size: its range, both ends included, and an example used where none is given."""

    name: str
    low: int = 1
    high: int = 65536
    example: int | None = None

    @property
    def default(self) -> int:
        """The example, or a small size within the range."""
        return self.example if self.example is not None else max(self.low, min(8, self.high))


@dataclass(frozen=True)
class Constraint:
    """A relation between dimensions, checked on every call: `==` or `<=`."""

    left: Dim
    relation: str
    right: Dim
    location: Location | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"


@dataclass(frozen=True)
class Fill:
    """How to make a tensor when none is given: a generator of inputs, or a seeded parameter.

    `normal(std)`, `zeros()`, `ones()`, `ones(std)` with normal noise, `ids(limit)` integers below
    limit, `prefix()` rows of ones then zeros, `lengths(size)` integers from 1 to that size, which
    may be symbolic, `sinusoidal()` position encodings [positions, width],
    `sinusoidal_halves()` those with all sines first. `state()` marks an input that a run replaces:
    the output of its name is what it becomes; examples of it are normal.
    """

    kind: str
    argument: Exact | Dim | None = None
    location: Location | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Numbers and names become what they stand for."""
        given: object = self.argument
        if self.kind == "lengths":
            given = int(given.factor) if isinstance(given, Exact) and given.is_integer else given
            given = as_dim(given) if isinstance(given, int | str) else given
        elif isinstance(given, int | float | Fraction):
            given = exact(given)
        object.__setattr__(self, "argument", given)

    def __str__(self) -> str:
        return f"{self.kind}({'' if self.argument is None else self.argument})"


@dataclass(frozen=True)
class Input:
    """A graph input and the generator that makes an example of it; None is as its uses tell, see
    `tfgraph.ops.generators`."""

    value: Value
    fill: Fill | None = None


@dataclass(frozen=True)
class Param:
    """A named weight; `fill` makes a seeded one where no file gives it."""

    value: Value
    fill: Fill


@dataclass(frozen=True)
class Output:
    """A graph output: a public name for a value."""

    name: str
    value: Value


@dataclass(frozen=True)
class Graph:
    """A dataflow graph. `nodes` stand in order of execution; `print_graph` gives its text."""

    name: str
    inputs: tuple[Input, ...]
    params: tuple[Param, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Output, ...]
    symbols: tuple[Symbol, ...] = ()
    constraints: tuple[Constraint, ...] = ()

    def __repr__(self) -> str:
        counts = {
            "input": self.inputs,
            "node": self.nodes,
            "weight": self.params,
            "output": self.outputs,
        }
        shown = [f"{len(of)} {name}{'s' * (len(of) != 1)}" for name, of in counts.items()]
        return f"<graph {self.name}: {', '.join(shown)}>"

    @cached_property
    def producer(self) -> Mapping[Value, Node]:
        """The node that makes each value; inputs and parameters have none."""
        return {value: node for node in self.nodes for value in node.outputs}

    @cached_property
    def users(self) -> Mapping[Value, tuple[Node, ...]]:
        """The nodes that read each value, in order, each once."""
        found: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.inputs):
                found.setdefault(value, []).append(node)
        return {value: tuple(nodes) for value, nodes in found.items()}

    @cached_property
    def output_values(self) -> frozenset[Value]:
        """The values that leave the graph."""
        return frozenset(output.value for output in self.outputs)

    @cached_property
    def param_values(self) -> frozenset[Value]:
        """The values of the parameters."""
        return frozenset(param.value for param in self.params)

    @cached_property
    def weight_values(self) -> frozenset[Value]:
        """The parameters, and all of fixed size that is computed from them alone: known at compile
        time."""
        known = set(self.param_values)
        for node in self.nodes:
            if known.issuperset(node.inputs) and node.is_static:
                known.update(node.outputs)
        return frozenset(known)

    def symbol(self, name: str) -> Symbol:
        """The symbol called `name`; one with the default range if it was not declared."""
        return next((s for s in self.symbols if s.name == name), Symbol(name))

    def values(self) -> Iterator[Value]:
        """Every value: inputs, parameters, then results in order."""
        yield from (item.value for item in self.inputs)
        yield from (item.value for item in self.params)
        for node in self.nodes:
            yield from node.outputs

    def intervene(self, edits: Mapping[str, Any]) -> Graph:
        """The graph with heads or hidden units scaled, and rows of weights replaced, by name:

            graph.intervene({
                "layers.3.heads.5": 0,           # what that head gives is multiplied by 0
                "layers.2.ffn.17": 0.5,          # so is the hidden unit's activation
                "layers.1.ffn.w1[17]": row,      # the weights into that unit, or w2 for out of it
                "layers.1.attention.q.weight[:,3]": 0,  # any column, or row, of a parameter
            })

        A row is a number for all its elements or as many of them, NumPy's too. The parameters stay
        as they are: the graph takes the same weights, and equals the one whose weights were edited.
        A factor of 0 gives 0 also where the value is NaN. A second intervention is of the result of
        the first. Raises TfgraphError with every name that means nothing, and what there is.
        """
        from tfgraph.ir.intervene import intervene

        return intervene(self, edits)

    def to_networkx(self) -> nx.MultiDiGraph[str]:
        """A view for graph algorithms: a vertex per input, parameter, node and output, keyed by
        the first value's name; an edge per value read."""
        import networkx

        view: nx.MultiDiGraph[str] = networkx.MultiDiGraph(name=self.name)
        for given in self.inputs:
            view.add_node(given.value.name, kind="input", value=given.value)
        for param in self.params:
            view.add_node(param.value.name, kind="param", value=param.value)
        for node in self.nodes:
            view.add_node(node.outputs[0].name, kind="node", node=node)
        vertex = {v: node.outputs[0].name for node in self.nodes for v in node.outputs}
        for node in self.nodes:
            for value in node.inputs:
                view.add_edge(vertex.get(value, value.name), node.outputs[0].name, value=value)
        for output in self.outputs:
            view.add_node(f"output {output.name}", kind="output", output=output)
            source = vertex.get(output.value, output.value.name)
            view.add_edge(source, f"output {output.name}", value=output.value)
        return view


def map_operand(operand: Operand, f: Callable[[Value], Value]) -> Operand:
    """`f` of the value, or of each tensor of a mask; anything else as it is."""
    if isinstance(operand, Value):
        return f(operand)
    return operand.map(f) if isinstance(operand, Mask) else operand


def dims_of(attr: Attr | Operand) -> Iterator[Dim]:
    """The dimensions inside an attribute or an operand."""
    if isinstance(attr, Dim):
        yield attr
    elif isinstance(attr, Mask):
        yield from attr.dims()
    elif isinstance(attr, tuple):
        for item in attr:
            yield from dims_of(item)
