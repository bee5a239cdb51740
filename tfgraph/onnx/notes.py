"""What a graph says and ONNX has no place for, in a file's metadata: its name, ranges of sizes,
constraints, the generators of inputs and weights. The exporter writes it, the importer reads it.

Each note is a line of the textual IR without its first word. A note on what the file does not have
(another tool may have renamed it) says nothing. May import: text, ir, errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfgraph.errors import Location, TfgraphError
from tfgraph.ir import Constraint, Fill, Symbol
from tfgraph.text import parse_fill, parse_graph

if TYPE_CHECKING:
    from tfgraph.ir import Graph

_GRAPH, _CONSTRAINTS = "tfgraph.graph", "tfgraph.constraints"
_SYMBOL, _INPUT, _WEIGHT = "tfgraph.symbol.", "tfgraph.input.", "tfgraph.weight."
_HINT = "remove the entry from the file's metadata_props, or write it as export does"


@dataclass(frozen=True)
class Notes:
    """The notes of a file. Inputs without an entry have no generator; all weights have one."""

    name: str
    symbols: tuple[Symbol, ...]
    constraints: tuple[Constraint, ...]
    inputs: Mapping[str, Fill]
    weights: Mapping[str, Fill]


def write_notes(graph: Graph) -> dict[str, str]:
    """The entries of `metadata_props`."""
    notes = {_GRAPH: graph.name}
    for symbol in graph.symbols:
        example = "" if symbol.example is None else f", example {symbol.example}"
        notes[_SYMBOL + symbol.name] = f"{symbol.low}..{symbol.high}{example}"
    if graph.constraints:
        notes[_CONSTRAINTS] = "; ".join(map(str, graph.constraints))
    for item in graph.inputs:
        if item.fill is not None:
            notes[_INPUT + item.value.name] = str(item.fill)
    for param in graph.params:
        notes[_WEIGHT + param.value.name] = str(param.fill)
    return notes


def read_notes(entries: Mapping[str, str], where: Location) -> Notes | None:
    """The notes among a file's metadata; None of a file that has none. Raises TfgraphError for one
    that cannot be read."""
    if _GRAPH not in entries:
        return None
    lines = [f"symbol {key}: {text}" for key, text in _of(_SYMBOL, entries).items()]
    said = entries.get(_CONSTRAINTS, "")
    lines += [f"constraint {text}" for text in said.split(";") if text.strip()]
    try:
        graph = parse_graph("\n".join(["graph notes(%x: f32[1]) {", *lines, "return %x", "}"]))
        fills = [
            {key: parse_fill(text, where) for key, text in _of(prefix, entries).items()}
            for prefix in (_INPUT, _WEIGHT)
        ]
    except TfgraphError as error:
        raise TfgraphError(f"a note of tfgraph: {error.message}", where, _HINT) from error
    return Notes(entries[_GRAPH], graph.symbols, graph.constraints, *fills)


def _of(prefix: str, entries: Mapping[str, str]) -> dict[str, str]:
    """The entries that begin so, without that."""
    return {k.removeprefix(prefix): text for k, text in entries.items() if k.startswith(prefix)}
