"""Structural rules of the IR; the types of each node are checked in `ops.verify`.

May import: graph, legal, errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError
from tfgraph.ir.dim import Dim
from tfgraph.ir.graph import Param, dims_of
from tfgraph.ir.legal import (
    check_fill,
    check_input_name,
    check_relation,
    check_shape,
    check_symbol,
)

if TYPE_CHECKING:
    from tfgraph.errors import Location
    from tfgraph.ir.graph import Graph, Input, Value


def verify_structure(graph: Graph) -> None:
    """Check that values are defined once and before use, that names are unique, that symbols are
    known, and that there are outputs. Raises TfgraphError that names the value and its place."""
    defined: dict[str, Value] = {}

    def define(value: Value, where: Location | None = None) -> None:
        if value.name in defined:
            raise TfgraphError(f"%{value.name} is defined twice", location=where)
        defined[value.name] = value

    known = {s.name for s in graph.symbols}
    known |= {s for item in graph.inputs for d in item.value.type.shape for s in d.symbols}
    for given in graph.inputs:
        check_input_name(given.value.name)
    declared: tuple[Input | Param, ...] = (*graph.inputs, *graph.params)
    for item in declared:
        define(item.value)
        _check_declared(item, known)
    for node in graph.nodes:
        for value in node.inputs:
            if defined.get(value.name) != value:
                what = (
                    "has another type where it is defined"
                    if value.name in defined
                    else ("is used before it is defined")
                )
                raise TfgraphError(f"%{value.name} {what}", location=node.location)
        used = [d for a in (*node.attrs.values(), *node.operands) for d in dims_of(a)]
        for dim in used:
            for symbol in sorted(dim.symbols - known):
                raise TfgraphError(
                    f"{node.op}: no input or declaration gives the symbol '{symbol}'",
                    location=node.location,
                )
        for value in node.outputs:
            define(value, node.location)
    if not graph.outputs:
        raise TfgraphError(
            f"graph {graph.name} has no outputs", hint="name one: g.output('y', x), or return y=%x"
        )
    names: set[str] = set()
    for output in graph.outputs:
        if defined.get(output.value.name) != output.value:
            raise TfgraphError(f"output '{output.name}' is %{output.value.name}: not defined")
        if output.name in names:
            raise TfgraphError(f"two outputs are called '{output.name}'")
        names.add(output.name)
    for constraint in graph.constraints:
        for symbol in sorted((constraint.left.symbols | constraint.right.symbols) - known):
            raise TfgraphError(
                f"constraint {constraint}: no input gives the symbol '{symbol}'",
                location=constraint.location,
            )
        check_relation(constraint)
    ranged: set[str] = set()
    for symbol_ in graph.symbols:
        if symbol_.name in ranged:
            raise TfgraphError(f"symbol '{symbol_.name}' is declared twice")
        ranged.add(symbol_.name)
        check_symbol(symbol_)


def _check_declared(item: Input | Param, known: set[str]) -> None:
    """An input's or a parameter's shape, and how it is filled."""
    name, fill = item.value.name, item.fill
    try:
        check_shape(item.value.type.shape)
        if fill is not None:
            check_fill(fill)
            if fill.kind == "state" and isinstance(item, Param):
                raise TfgraphError("a parameter is no state: inputs are")
    except TfgraphError as error:
        raise TfgraphError(f"%{name}: {error.message}", error.location, error.hint) from error
    if fill is not None and isinstance(fill.argument, Dim):
        for symbol in sorted(fill.argument.symbols - known):
            raise TfgraphError(
                f"%{name}: {fill}: no input gives the symbol '{symbol}'", fill.location
            )
