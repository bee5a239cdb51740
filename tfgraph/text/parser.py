"""Text as a graph. May import: lexer, arithmetic, expressions, printer, ops, ir, errors.

    file        graph weights?
    graph       "graph" name "(" inputs ")" "{" symbol* constraint* node* "return" outputs "}"
    input       %name ":" type ("=" generator)?
    symbol      "symbol" name ":" low ".." high ("," "example" size)?
    constraint  "constraint" size ("==" | "<=") size
    node        %name ("," %name)* "=" op "(" operands ")" ("{" attributes "}")? (":" types)?
    output      (name "=")? %name
    weights     "weights" "{" (%name ":" type ("=" generator)?)* "}"

Lines and indentation don't matter; # starts a comment. Types of results may be left out: they are
inferred, and compared where they are given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgraph.errors import Location, TfgraphError, nearest
from tfgraph.ir import (
    Constraint,
    Fill,
    Graph,
    Input,
    Node,
    Output,
    Param,
    Symbol,
    TensorType,
    Value,
    exact,
    verify_structure,
)
from tfgraph.ir.dim import Dim, check_symbol_name
from tfgraph.ir.legal import LARGEST_SIZE, check_input_name, check_symbol
from tfgraph.ops.trace import map_traced
from tfgraph.text.arithmetic import dim, integer
from tfgraph.text.expressions import Call, Ref, call, fill, tensor_type
from tfgraph.text.lexer import Cursor, Token, located, tokens

if TYPE_CHECKING:
    from collections.abc import Sequence


def parse_graph(text: str, file: str = "<text>") -> Graph:
    """The graph that `text` describes, checked; `file` is the name that errors give.

    Raises TfgraphError with the exact place.
    """
    found = tokens(text, Location(file, 1, 1))
    with located(Location(file), "not a graph: "):
        return _Parser(found).file()


class _Parser:
    def __init__(self, found: list[Token]) -> None:
        self.cursor = Cursor(found)
        self.weights_at = _find_weights(found)
        self.values: dict[str, Value] = {}
        self.symbols: dict[str, Symbol] = {}
        self.known_symbols: set[str] = set()

    def file(self) -> Graph:
        c = self.cursor
        params: list[Param] = []
        if self.weights_at is not None:  # they stand last, but the nodes need their types
            c.at = self.weights_at
            params = self.weights()
            c.expect("end", "the end of the text")
            c.at = 0
        c.expect_word("graph")
        name = c.expect("string" if c.sees("string") else "name", "the graph's name").text
        inputs = self.inputs()
        c.expect("{")
        constraints = self.declarations()
        nodes = self.nodes()
        outputs = self.outputs()
        c.expect("}", "'}'")
        if c.at != self.weights_at:
            c.expect("end", "'weights {' or the end of the text")
        graph = Graph(
            name, inputs, tuple(params), nodes, outputs, tuple(self.symbols.values()), constraints
        )
        verify_structure(graph)
        return graph

    def weights(self) -> list[Param]:
        c = self.cursor
        c.expect_word("weights")
        c.expect("{")
        params: list[Param] = []
        while c.sees("value"):
            value, given = self.declared_value()
            params.append(Param(value, given or Fill("normal", exact(0.02))))
        c.expect("}", "a weight such as %w: f32[8], or '}'")
        return params

    def inputs(self) -> tuple[Input, ...]:
        c = self.cursor
        c.expect("(")
        inputs: list[Input] = []
        while c.sees("value"):
            token = c.token
            value, given = self.declared_value()
            with located(token.location):
                check_input_name(value.name)
            inputs.append(Input(value, given))
            self.known_symbols.update(*(size.symbols for size in value.type.shape))
            if not c.accept(","):
                break
        c.expect(")", "an input such as %x: f32[8], or ')'")
        return tuple(inputs)

    def declared_value(self) -> tuple[Value, Fill | None]:
        """`%name: type`, and `= generator` where it stands."""
        c = self.cursor
        token = c.next()
        c.expect(":")
        value = self.define(token, tensor_type(c))
        return value, fill(c) if c.accept("=") else None

    def define(self, token: Token, type_: TensorType) -> Value:
        if token.text in self.values:
            raise TfgraphError(f"value {token} is defined twice", token.location)
        value = self.values[token.text] = Value(token.text, type_)
        return value

    def declarations(self) -> tuple[Constraint, ...]:
        c = self.cursor
        constraints: list[Constraint] = []
        while c.sees_word("symbol") or c.sees_word("constraint"):
            if c.next().text == "symbol":
                self.symbol()
            else:
                constraints.append(self.constraint())
        return tuple(constraints)

    def symbol(self) -> None:
        c = self.cursor
        token = c.expect("name", "a symbol's name")
        with located(token.location):
            check_symbol_name(token.text)
        if token.text in self.symbols:
            raise TfgraphError(f"symbol {token.text} is declared twice", token.location)
        c.expect(":")
        low = integer(c, "the lowest size", LARGEST_SIZE)
        c.expect("..")
        high = integer(c, "the highest size", LARGEST_SIZE)
        example = None
        if c.accept(","):
            c.expect_word("example")
            example = integer(c, "an example size", LARGEST_SIZE)
        symbol = Symbol(token.text, low, high, example)
        with located(token.location):
            check_symbol(symbol)
        self.symbols[token.text] = symbol
        self.known_symbols.add(token.text)

    def constraint(self) -> Constraint:
        c = self.cursor
        start = c.token.location
        left = dim(c)
        if not c.sees("==", "<="):
            raise c.wrong("'==' or '<='")
        relation = c.next().kind
        right = dim(c)
        self.check_symbols((left, right), start)
        return Constraint(left, relation, right, start)

    def check_symbols(self, sizes: Sequence[Dim], where: Location) -> None:
        for name in sorted({name for size in sizes for name in size.symbols}):
            if name not in self.known_symbols:
                raise TfgraphError(
                    f"no input or declaration gives the symbol '{name}'",
                    where,
                    nearest(name, self.known_symbols),
                )

    def nodes(self) -> tuple[Node, ...]:
        c = self.cursor
        nodes: list[Node] = []
        while c.sees("value"):
            nodes.append(self.node())
        return tuple(nodes)

    def node(self) -> Node:
        c = self.cursor
        names = [c.expect("value")]
        while c.accept(","):
            names.append(c.expect("value", "a value such as %x"))
        c.expect("=")
        made = call(c)
        operands = made.bind(self.values)
        types = _inferred(made, operands)
        if len(types) != len(names):
            raise TfgraphError(
                f"{made.op.name} has {len(types)} result{'s' * (len(types) > 1)}, not {len(names)}",
                names[0].location,
            )
        if c.accept(":"):
            self.check_types(types)
        outputs = tuple(self.define(name, t) for name, t in zip(names, types, strict=True))
        return Node(made.op.name, operands, outputs, made.attrs, made.location)

    def check_types(self, types: Sequence[TensorType]) -> None:
        c = self.cursor
        for i, inferred in enumerate(types):
            if i:
                c.expect(",", "',' and the type of the next result")
            where = c.token.location
            given = tensor_type(c)
            if given != inferred:
                raise TfgraphError(f"the result is {inferred}, not {given}", where)

    def outputs(self) -> tuple[Output, ...]:
        c = self.cursor
        if not c.sees_word("return"):
            raise c.wrong("a node such as %0 = op(...), or 'return'")
        returned = c.next()
        outputs: dict[str, Output] = {}
        while not c.sees("}"):
            start = c.token
            if c.sees("name", "string"):
                c.next()
                c.expect("=")
            token = c.expect("value", "an output such as %x or name=%x")
            value = Ref(token.text, token.location).find(self.values)
            if start.text in outputs:
                raise TfgraphError(f"two outputs are called '{start.text}'", start.location)
            outputs[start.text] = Output(start.text, value)
            if not c.accept(","):
                break
        if not outputs:
            raise TfgraphError("the graph has no outputs", returned.location, "return y=%x")
        return tuple(outputs.values())


def _inferred(made: Call, operands: Sequence[object]) -> tuple[TensorType, ...]:
    """The types of the results. Raises TfgraphError at the op's name."""
    given = [map_traced(operand, _type) for operand in operands]
    try:
        with located(made.location):
            types = made.op.node_types(given, made.attrs)
    except TfgraphError as error:
        message = error.message.removeprefix(f"{made.op.name}: ")
        raise TfgraphError(f"{made.op.name}: {message}", error.location, error.hint) from error
    return types


def _type(value: Value) -> TensorType:
    return value.type


def _find_weights(found: Sequence[Token]) -> int | None:
    """Where the section of the weights starts: `weights {` outside of all braces."""
    depth = 0
    for i, token in enumerate(found):
        is_word = token.kind == "name" and token.text == "weights"
        if depth == 0 and is_word and found[i + 1].kind == "{":
            return i
        depth += (token.kind == "{") - (token.kind == "}")
    return None
