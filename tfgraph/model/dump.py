"""A graph as a model file in the free form, which `read_model` reads back.

May import: text, ir, errors.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError
from tfgraph.text import bare_name, print_call

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfgraph.ir import Graph, Input, Symbol

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")  # a word
_TEXT = re.compile(r"[A-Za-z_][ -~]*[!-9;-~]|[A-Za-z_]")  # a line of printable ASCII
_KEYWORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")


def dump_yaml(graph: Graph) -> str:
    """The graph in the free form of model files. Reading it gives an equal graph, names included;
    a name that is not an ASCII identifier becomes one.

    Weights are not in it: their generators are, and `checkpoint: FILE` may name a file of them.
    Raises TfgraphError for inputs and weights whose names are numbers, which only results have.
    """
    for value in (*(i.value for i in graph.inputs), *(p.value for p in graph.params)):
        if value.name.isdigit():
            raise TfgraphError(
                f"%{value.name} cannot be written as YAML: in model files only results have "
                "numbers for names",
                hint="give the input or weight another name",
            )
    return "\n".join(_lines(graph)) + "\n"


def _lines(graph: Graph) -> Iterator[str]:
    yield f"name: {re.sub(r'[^A-Za-z0-9_]|^(?=[0-9])', '_', graph.name) or '_'}"
    yield from _section("symbols", {s.name: _symbol(s) for s in graph.symbols}, quote=False)
    if graph.constraints:
        yield "constraints:"
        yield from (f"  - {_scalar(str(constraint))}" for constraint in graph.constraints)
    yield from _section("inputs", {i.value.name: _input(i) for i in graph.inputs})
    if graph.params:
        yield "# Seeded unless `checkpoint: FILE` names a safetensors file."
        params = {p.value.name: f"{p.value.type} = {p.fill}" for p in graph.params}
        yield from _section("weights", params)
    nodes = {", ".join(_result(v.name) for v in n.outputs): print_call(n) for n in graph.nodes}
    yield from _section("nodes", nodes)
    yield from _section("outputs", {o.name: o.value.name for o in graph.outputs})


def _section(name: str, entries: Mapping[str, str], *, quote: bool = True) -> Iterator[str]:
    """A mapping with a line an entry; the sections that a model file must have may be empty."""
    if entries:
        yield f"{name}:"
        for key, text in entries.items():
            yield f"  {_key(key)}: {_scalar(text) if quote else text}"
    elif name in ("inputs", "nodes", "outputs"):
        yield f"{name}: {{}}"


def _symbol(symbol: Symbol) -> str:
    example = "" if symbol.example is None else f", example: {symbol.example}"
    return f"{{min: {symbol.low}, max: {symbol.high}{example}}}"


def _input(given: Input) -> str:
    type_ = given.value.type
    return str(type_) if given.fill is None else f"{type_} = {given.fill}"


def _result(name: str) -> str:
    """A node's result in its key, where commas separate several. Numbers need no quotes there."""
    return name if name.isdigit() and name.isascii() else bare_name(name)


def _key(text: str) -> str:
    """A mapping's key. Digits alone are an integer, whose text is the name again."""
    names = text.split(", ")
    plain = all(_PLAIN.fullmatch(name) or name.isdigit() for name in names)
    return text if plain and text.isascii() and text.lower() not in _KEYWORDS else _quoted(text)


def _scalar(text: str) -> str:
    """A text: as it stands where YAML reads that as a text, else in quotes."""
    plain = _TEXT.fullmatch(text) and ": " not in text and " #" not in text
    return text if plain and text.lower() not in _KEYWORDS else _quoted(text)


def _quoted(text: str) -> str:
    """In double quotes with YAML's escapes, which unlike JSON's never split a character in two."""
    escaped = (f"\\{c}" if c in '"\\' else c if c.isprintable() else _escape(c) for c in text)
    return f'"{"".join(escaped)}"'


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
