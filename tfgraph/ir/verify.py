"""Structural rules of the IR; the types of each node are checked in `ops.verify`.

May import: graph, errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError
from tfgraph.ir.graph import dims_of

if TYPE_CHECKING:
    from tfgraph.errors import Location
    from tfgraph.ir.graph import Graph, Value


def verify_structure(graph: Graph) -> None:
    """Check that values are defined once and before use, that names are unique, that symbols are
    known, and that there are outputs. Raises TfgraphError that names the value and its place."""
    defined: dict[str, Value] = {}

    def define(value: Value, where: Location | None = None) -> None:
        if value.name in defined:
            raise TfgraphError(f"%{value.name} is defined twice", location=where)
        defined[value.name] = value

    for value in (*(i.value for i in graph.inputs), *(p.value for p in graph.params)):
        define(value)
    known = {s.name for s in graph.symbols}
    known |= {s for item in graph.inputs for d in item.value.type.shape for s in d.symbols}
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
            raise TfgraphError(f"constraint {constraint}: no input gives the symbol '{symbol}'")
        if constraint.relation not in ("==", "<="):
            raise TfgraphError(f"constraint {constraint}: the relation is not == or <=")
    declared: set[str] = set()
    for symbol_ in graph.symbols:
        if symbol_.name in declared:
            raise TfgraphError(f"symbol '{symbol_.name}' is declared twice")
        declared.add(symbol_.name)
        if not 1 <= symbol_.low <= symbol_.default <= symbol_.high:
            raise TfgraphError(
                f"symbol {symbol_.name}: {symbol_.low} <= {symbol_.default} <= {symbol_.high} "
                "does not hold (low, example, high)"
            )
