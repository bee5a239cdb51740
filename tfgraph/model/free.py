"""The free form: a graph by its nodes, in any order. networkx orders them, and names a cycle.

May import: schema, read, text, ops, ir, errors; networkx.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, cast

from tfgraph import ops
from tfgraph.errors import Location, TfgraphError
from tfgraph.ir import Fill, Graph
from tfgraph.ir.dim import check_symbol_name
from tfgraph.model.read import QUOTE
from tfgraph.text import parse_call, parse_dim, parse_fill, parse_type
from tfgraph.text.lexer import located

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.ir import TensorType
    from tfgraph.model.read import Document
    from tfgraph.model.schema import FreeForm
    from tfgraph.ops import Builder, Traced
    from tfgraph.text import Call


def build_free(spec: FreeForm, document: Document, name: str) -> Graph:
    """The graph of a free-form model. Raises one TfgraphError with every mistake that can be
    found: of the declarations first, then of the nodes' text, then of the graph."""
    values: dict[str, Traced] = {}
    with ops.graph(name) as builder:
        _declare(spec, document, builder, values)
        document.raise_errors()
        calls = _parse_nodes(spec, document, values)
        document.raise_errors()
        for key in _ordered(document, calls):
            _add_node(key, calls[key], builder, values, document)
        document.raise_errors()
        for output, value in spec.outputs.items():
            found, place = values.get(value), document.place("outputs", output)
            if found is None:
                hint = document.near(value, values)
                document.errors.append(TfgraphError(f"'{value}' is not defined", place.value, hint))
            else:
                with _Collect(document, place.key), builder.at(place.key):
                    builder.output(output, found)
        document.raise_errors()
    try:
        return builder.build()
    except TfgraphError as error:
        where = error.location or document.place().key
        raise TfgraphError(error.message, where, error.hint) from error


def _declare(
    spec: FreeForm, document: Document, builder: Builder, values: dict[str, Traced]
) -> None:
    """Symbols, constraints, inputs and weights."""

    def collect(*path: str | int) -> _Collect:
        return _Collect(document, document.place(*path).value)

    for name, symbol in spec.symbols.items():
        place = document.place("symbols", name)
        with collect("symbols", name):
            with located(place.key):
                check_symbol_name(name)
            with builder.at(place.value):
                high = symbol.max or max(65536, symbol.min)
                builder.symbol(name, symbol.min, high, symbol.example)
    for i, text in enumerate(spec.constraints):
        with collect("constraints", i):
            _constrain(text, document.place("constraints", i).text, builder)
    for group, declare in (("inputs", builder.input), ("weights", builder.param)):
        for name, text in getattr(spec, group).items():
            place = document.place(group, name)
            with collect(group, name), builder.at(place.key):
                if name in values:
                    raise TfgraphError(f"{name}: defined twice", place.key)
                type_, fill = _declaration(text, place.text)
                declared: Callable[..., Traced] = declare
                values[name] = declared(name, type_.dtype, *type_.shape, fill=fill)


def _constrain(text: str, where: Location, builder: Builder) -> None:
    for relation in ("==", "<="):
        left, found, right = text.partition(relation)
        if found:
            start = len(left) + len(relation)
            sizes = parse_dim(left, where), parse_dim(right, _shifted(where, start))
            with builder.at(where):
                builder.constrain(sizes[0], relation, sizes[1])
            return
    hint = QUOTE if text.count("(") != text.count(")") else None
    raise TfgraphError(f"constraints: expected == or <= between sizes, got '{text}'", where, hint)


def _declaration(text: str, where: Location) -> tuple[TensorType, Fill | None]:
    """`f32[batch,seq]`, or with a generator `i64[batch,seq] = ids(1000)`."""
    before, equals, after = text.partition("=")
    fill = parse_fill(after, _shifted(where, len(before) + 1)) if equals else None
    return parse_type(before, where), fill


def _shifted(where: Location, columns: int) -> Location:
    return Location(where.file, where.line, where.column + columns)


_STRING = r'"(?:[^"\\]|\\.)*"'
_PART = re.compile(rf"(?:{_STRING}|[^,])*")


def _parts(key: str) -> list[str]:
    """The results that a node names, as they are written: one, or several with commas."""
    parts: list[str] = []
    at = 0
    while at <= len(key):
        part = _PART.match(key, at)
        assert part is not None  # it matches nothing at all, too
        parts.append(part[0].strip())
        at = part.end() + 1
    return parts


def _names(key: str) -> list[str]:
    """The names of a node's results; as in a call, one in quotes is a JSON string."""
    return [json.loads(p) if re.fullmatch(_STRING, p) else p for p in _parts(key)]


def _parse_nodes(spec: FreeForm, document: Document, values: dict[str, Traced]) -> dict[str, Call]:
    calls: dict[str, Call] = {}
    defined = set(values)
    for key, text in spec.nodes.items():
        place = document.place("nodes", key)
        try:
            names = _names(key)
        except ValueError:
            document.errors.append(TfgraphError(f"{key}: escapes are those of JSON", place.key))
            continue
        for part, name in zip(_parts(key), names, strict=True):
            if not part or name in defined:
                what = f"{name}: defined twice" if part else f"'{key}' has an empty name"
                document.errors.append(TfgraphError(what, place.key))
            defined.add(name)
        with _Collect(document, place.value):
            calls[key] = parse_call(text, place.text)
    for call in calls.values():
        for ref in call.refs:
            if ref.name not in defined:
                hint = document.near(ref.name, defined)
                document.errors.append(
                    TfgraphError(f"'{ref.name}' is not defined", ref.location, hint)
                )
    return calls


def _ordered(document: Document, calls: dict[str, Call]) -> list[str]:
    """The nodes so that each follows what it reads, else as in the file."""
    import networkx as nx

    maker = {name: key for key in calls for name in _names(key)}
    order = {key: i for i, key in enumerate(calls)}
    view: nx.DiGraph[str] = nx.DiGraph()
    view.add_nodes_from(calls)
    for key, call in calls.items():
        view.add_edges_from((maker[ref.name], key) for ref in call.refs if ref.name in maker)
    try:
        return list(nx.lexicographical_topological_sort(view, key=order.__getitem__))
    except nx.NetworkXUnfeasible as cause:
        cycle = next(nx.simple_cycles(view))
        first = min(range(len(cycle)), key=lambda i: order[cycle[i]])
        path = cycle[first:] + cycle[:first]
        where = document.place("nodes", path[0]).key
        raise TfgraphError(
            f"a cycle: {' -> '.join([*path, path[0]])}",
            where,
            "a node may read only what does not depend on it",
        ) from cause


def _add_node(
    key: str, call: Call, builder: Builder, values: dict[str, Traced], document: Document
) -> None:
    names = _names(key)
    if any(ref.name not in values for ref in call.refs):
        return  # what it reads has an error of its own
    with _Collect(document, call.location), builder.at(call.location):
        made = builder.apply(call.op.name, *call.bind(values), **call.attrs)
        results = cast("tuple[Traced, ...]", made if isinstance(made, tuple) else (made,))
        if len(results) != len(names):
            raise TfgraphError(
                f"{call.op.name} has {len(results)} results, and '{key}' names {len(names)}",
                document.place("nodes", key).key,
            )
        for name, result in zip(names, results, strict=True):
            values[name] = builder.label(result, name)


class _Collect:
    """A `with` block whose TfgraphError joins those of the document, with a place."""

    def __init__(self, document: Document, where: Location) -> None:
        self._document, self._where = document, where

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if not isinstance(error, TfgraphError):
            return False
        where = error.location or self._where
        self._document.errors.append(TfgraphError(error.message, where, error.hint))
        return True
