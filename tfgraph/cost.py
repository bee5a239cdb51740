"""What a graph costs: parameters, floating point operations and bytes, by part and by op.

Costs are those of the graph as it stands, one kernel a node: a fused graph reads and writes less.
What is computed from weights alone happens once, at compile time, and costs nothing here.
Imports ops, ir and errors.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError, nearest
from tfgraph.ir import Dim, as_dim, product
from tfgraph.ops.cache import APPENDS
from tfgraph.ops.define import find_op
from tfgraph.ops.embedding_sum import terms
from tfgraph.ops.trace import map_traced
from tfgraph.runtime.columns import columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfgraph.ir import Graph, Node, TensorType, Value

Amount = int | Dim
# Ops that read no more of their first operand than they return.
_READS_ROWS = ("take", "take_at", "slice")
_ZERO = as_dim(0)


@dataclass(frozen=True)
class Line:
    """The cost of one part, or of all nodes of one op: numbers, or sizes in the graph's symbols.

    A tied weight counts once, where it is read first. Bytes read and written are those of
    activations.
    """

    name: str
    parameters: Amount = _ZERO
    weight_bytes: Amount = _ZERO
    flops: Amount = _ZERO
    read_bytes: Amount = _ZERO
    written_bytes: Amount = _ZERO

    def __add__(self, other: Line) -> Line:
        sums = {name: getattr(self, name) + getattr(other, name) for name in AMOUNTS}
        return Line(self.name, **sums)


AMOUNTS = tuple(item.name for item in fields(Line) if item.name != "name")


@dataclass(frozen=True)
class Cost:
    """The cost of a graph. `sizes` are those of the symbols; None where amounts are symbolic."""

    total: Line
    parts: tuple[Line, ...]
    ops: tuple[Line, ...]
    sizes: Mapping[str, int] | None

    def to_json(self) -> dict[str, object]:
        """Plain data; amounts with symbols are text."""

        def plain(line: Line) -> dict[str, object]:
            amounts = {name: as_dim(getattr(line, name)) for name in AMOUNTS}
            shown = {k: int(v) if v.is_const else str(v) for k, v in amounts.items()}
            return {"name": line.name, **shown}

        return {
            "sizes": None if self.sizes is None else dict(self.sizes),
            "total": plain(self.total),
            "parts": [plain(line) for line in self.parts],
            "ops": [plain(line) for line in self.ops],
        }

    def __str__(self) -> str:
        at = ", ".join(f"{name}={size}" for name, size in (self.sizes or {}).items())
        return "\n".join(
            [
                *_table(f"part{f' ({at})' if at else ''}", self.parts),
                "",
                *_table("op", (*self.ops, self.total)),
            ]
        )


def cost(graph: Graph, sizes: Mapping[str, int] | None = None) -> Cost:
    """Count. Amounts are sizes in the graph's symbols, or numbers where `sizes` is given; symbols
    that it leaves out take their example. Raises TfgraphError for a symbol the graph hasn't, and
    for a size beyond its range.

    Operations are those that each op declares, with a multiply-add as two.
    """
    part_of = parts(graph)
    by_part: dict[str, Line] = {}
    by_op: dict[str, Line] = {}
    for node in graph.nodes:
        if not graph.weight_values.issuperset(node.outputs):
            _count(by_part, part_of[node.outputs[0].name], _running(graph, node))
            _count(by_op, node.op, _running(graph, node))
    for param in graph.params:
        users = graph.users.get(param.value, ())
        stored = Line("", product(param.value.type.shape), _bytes(param.value.type))
        _count(by_part, part_of[param.value.name], stored)
        _count(by_op, _reader(graph, users), stored)
    used = None if sizes is None else _all_sizes(graph, sizes)
    total = sum(by_op.values(), start=Line("total"))
    return Cost(
        _numbers(total, used),
        tuple(_numbers(line, used) for line in by_part.values()),
        tuple(_numbers(line, used) for line in by_op.values()),
        used,
    )


def parts(graph: Graph) -> dict[str, str]:
    """The part of the model that each value belongs to, by the value's name.

    The part is a prefix of the name: `layers.0.attention` of `layers.0.attention.q.weight`,
    `embeddings` of `embeddings.tokens`. A result without such a name belongs where its weights do,
    else where the latest of its operands does; a weight without, where it is read first.
    """
    found: dict[str, str] = {}
    order = {value.name: i for i, value in enumerate(graph.values())}
    for value in (*(i.value for i in graph.inputs), *(p.value for p in graph.params)):
        found[value.name] = _prefix(value.name)
    for node in graph.nodes:
        weights = [v for v in node.inputs if v in graph.weight_values]
        others = sorted(
            (v for v in node.inputs if v not in graph.weight_values), key=lambda v: -order[v.name]
        )
        named = [_prefix(value.name) for value in node.outputs]
        given = [found[value.name] for value in (*weights, *others)]
        part = next((name for name in (*named, *given) if name), "")
        found.update((value.name, part) for value in node.outputs)
        for value in weights:
            found[value.name] = found[value.name] or part
    return found


def _prefix(name: str) -> str:
    """`layers.0.ffn` of `layers.0.ffn.up`; the first component where none is a number; "" where
    the name says too little."""
    components = name.split(".")
    number = next((i for i, c in enumerate(components) if c.isdigit()), None)
    if number is None:
        return components[0] if len(components) > 1 else ""
    inside = components[number + 1] if number + 1 < len(components) else ""
    if number == 0 or not inside or inside.isdigit():
        return ""
    return ".".join(components[: number + 2])


def node_cost(graph: Graph, node: Node) -> Line:
    """What one node costs when it runs. Its weights count whole here, whoever reads them besides,
    but of a table only the rows that are read; a state that is appended to stays where it is."""
    line = _running(graph, node)
    weights = [v for v in dict.fromkeys(node.inputs) if v in graph.weight_values]
    rows = _rows_read(node)
    return replace(line, weight_bytes=_sum(rows.get(v, _bytes(v.type)) for v in weights))


def _running(graph: Graph, node: Node) -> Line:
    """What one node costs when it runs, weights aside."""
    definition = find_op(node.op)
    types = [map_traced(operand, _type) for operand in node.operands]
    flops = definition.flops(types, node.attrs)
    appends = APPENDS.get(node.op, {})
    if appends and {item.value for item in graph.inputs}.issuperset(
        node.inputs[i] for i in appends
    ):
        read = _sum(_bytes(v.type) for v in node.inputs[len(appends) :])
        made = (*node.outputs[: -len(appends)], *(node.inputs[i] for i in appends.values()))
        written = _sum(_bytes(v.type) for v in made)
        return Line(node.op, flops=flops, read_bytes=read, written_bytes=written)
    written = _sum(_bytes(value.type) for value in node.outputs)
    rows = _rows_read(node)
    given = (v for v in dict.fromkeys(node.inputs) if v not in graph.weight_values)
    read = _sum(rows.get(v, _bytes(v.type)) for v in given)
    return Line(node.op, flops=flops, read_bytes=read, written_bytes=written)


def _rows_read(node: Node) -> dict[Value, Dim]:
    """The operands of which only some rows are read, and the bytes of those."""
    if node.op in _READS_ROWS:
        return {node.inputs[0]: _bytes(node.output.type)}
    found: dict[Value, Dim] = {}
    for ids, table in terms(node.inputs) if node.op in ("embedding", "embedding_sum") else ():
        if ids is not None:
            rows = table.type.with_shape((*ids.type.shape, table.type.shape[1]))
            found[table] = found.get(table, _ZERO) + _bytes(rows)
    return found


def _reader(graph: Graph, users: Iterable[Node]) -> str:
    """The op that reads a weight first, past what is computed at compile time."""
    for node in users:
        if not graph.weight_values.issuperset(node.outputs):
            return node.op
        inner = _reader(graph, (u for value in node.outputs for u in graph.users.get(value, ())))
        if inner:
            return inner
    return ""


def _count(table: dict[str, Line], name: str, line: Line) -> None:
    table[name] = table.get(name, Line(name)) + line


def _type(value: Value) -> TensorType:
    return value.type


def _bytes(type_: TensorType) -> Dim:
    bits = product(type_.shape) * type_.dtype.bits
    return bits // 8 if type_.dtype.bits % 8 == 0 else (bits + 7) // 8


def _sum(amounts: Iterable[Dim]) -> Dim:
    return sum(amounts, start=_ZERO)


def _all_sizes(graph: Graph, sizes: Mapping[str, int]) -> dict[str, int]:
    names = dict.fromkeys(symbol.name for symbol in graph.symbols)
    for value in graph.values():
        names.update(dict.fromkeys(sorted(name for d in value.type.shape for name in d.symbols)))
    for name, size in sizes.items():
        if name not in names:
            raise TfgraphError(f"the graph has no symbol '{name}'", hint=nearest(name, names))
        symbol = graph.symbol(name)
        if not symbol.low <= size <= symbol.high:
            expected = f"expected {symbol.low} to {symbol.high}"
            raise TfgraphError(f"the size of {name} is {size}, {expected}")
    return {name: sizes.get(name, graph.symbol(name).default) for name in names}


def _numbers(line: Line, sizes: Mapping[str, int] | None) -> Line:
    if sizes is None:
        return line
    amounts = {name: as_dim(getattr(line, name)).evaluate(sizes) for name in AMOUNTS}
    return Line(line.name, **amounts)


def _table(head: str, lines: Iterable[Line]) -> list[str]:
    """Aligned columns; counts with decimal prefixes, bytes with binary ones."""
    rows = [[head, "parameters", "weights", "FLOPs", "read", "written"]]
    for line in lines:
        counts = _shown(line.parameters, 1000, ""), _shown(line.flops, 1000, "")
        weights, read, written = (
            _shown(amount, 1024, "B")
            for amount in (line.weight_bytes, line.read_bytes, line.written_bytes)
        )
        rows.append([line.name or "other", counts[0], weights, counts[1], read, written])
    return columns(rows, right=range(1, len(rows[0])), indent=0)


def _shown(amount: Amount, base: int, unit: str) -> str:
    if isinstance(amount, Dim):
        return str(amount)
    scaled, power = float(amount), 0
    while scaled >= base and power < 5:
        scaled, power = scaled / base, power + 1
    prefix = ("", "k", "M", "G", "T", "P")[power]
    if base == 1024 and prefix:
        prefix = f"{prefix.upper()}i"
    number = f"{amount}" if power == 0 else f"{scaled:.3g}" if scaled < 999.5 else f"{scaled:.0f}"
    return f"{number} {prefix}{unit}".rstrip()
