"""What is known of integers in a graph: how low and how high they are.

Rows that are read at positions limit the length of what has positions; indices that are never
negative need no turning round. May import: dims, ops, ir.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfgraph.ir import Constraint, Dim, DType, Exact, Symbol, Value, as_dim
from tfgraph.onnx.dims import HIGHEST
from tfgraph.ops.limits import implied_constraints

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgraph.ir import Graph, Node, Operand
    from tfgraph.onnx.dims import Sizes
    from tfgraph.onnx.notes import Notes

Range = tuple[int | None, Dim | None]
"""The least number, and the largest; None where it is not known."""

_UNKNOWN: Range = (None, None)
_ORDERED = ("maximum", "minimum", "abs", "where", "concat", "full")
"""Of floats, what is as great or small when all is rounded towards 0, as a cast does."""
_MOVES = ("reshape", "transpose", "broadcast_to", "slice", "cast", "take_at")


def range_of(
    value: Operand,
    producer: Mapping[Value, Node],
    leaves: Mapping[Value, Range] | None = None,
    depth: int = 40,
) -> Range:
    """The range of an integer value's elements, or of a float's rounded towards 0; `leaves` are
    those of inputs and parameters."""
    if isinstance(value, Exact):
        if value.calls:
            return _UNKNOWN
        number = int(value.factor)
        return number, as_dim(number)
    if not isinstance(value, Value):
        return _UNKNOWN
    node = producer.get(value)
    if node is None or depth == 0:
        return (leaves or {}).get(value, _UNKNOWN)
    if value.type.dtype.is_float and node.op not in (*_MOVES, *_ORDERED):
        return _UNKNOWN

    def of(i: int) -> Range:
        return range_of(node.operands[i], producer, leaves, depth - 1)

    if node.op in _MOVES:
        if node.op == "cast" and node.inputs[0].type.dtype == DType.bool_:
            return 0, as_dim(1)
        return of(0)
    match node.op:
        case "iota":
            return 0, node.output.type.shape[0] - 1
        case "full":
            return range_of(node.attrs["value"], producer)  # type: ignore[arg-type]
        case "take":
            return of(0)
        case "concat" | "where":
            return _join([of(i) for i in range(node.op == "where", len(node.operands))])
        case "topk" if value == node.outputs[1]:
            return 0, node.inputs[0].type.shape[-1] - 1
        case "add":
            (a, b), (c, d) = of(0), of(1)
            low = None if a is None or c is None else a + c
            return low, None if b is None or d is None else b + d
        case "sub":
            (a, b), (c, d) = of(0), of(1)
            low = None if a is None or d is None or not d.is_const else a - int(d)
            return low, None if b is None or c is None else b - c
        case "mul":
            (a, b), (c, d) = of(0), of(1)
            if a is None or c is None or a < 0 or c < 0:
                return _UNKNOWN
            return a * c, None if b is None or d is None else b * d
        case "minimum":
            (a, b), (c, d) = of(0), of(1)
            low = None if a is None or c is None else min(a, c)
            return low, b if b is not None and (b.is_const or d is None) else d
        case "maximum":
            (a, _), (c, _) = of(0), of(1)
            return max([n for n in (a, c) if n is not None], default=None), None
        case "abs":
            return 0, None
        case "cumsum" | "sum":
            low, high = of(0)
            count = node.inputs[0].type.shape[axis_of(node)]
            if low is None or low < 0:
                return _UNKNOWN
            return 0, None if high is None else high * count
        case _:
            return _UNKNOWN


def axis_of(node: Node) -> int:
    """The axis that a node works along."""
    axis = node.attrs["axis"]
    assert isinstance(axis, int)
    return axis


def _join(ranges: list[Range]) -> Range:
    lows = [low for low, _ in ranges if low is not None]
    highs = [high for _, high in ranges if high is not None]
    low = min(lows) if len(lows) == len(ranges) else None
    same = len(highs) == len(ranges) and len(set(highs)) == 1
    if len(highs) == len(ranges) and all(h.is_const for h in highs):
        return low, as_dim(max(map(int, highs)))
    return low, highs[0] if same else None


def limited(graph: Graph, sizes: Sizes, notes: Notes | None = None) -> Graph:
    """The graph with its symbols declared, their ranges as high as windows and tables allow; or as
    the file's notes say."""
    used = {s for value in graph.values() for d in value.type.shape for s in d.symbols}
    names = [name for name in sizes.order if name in used]
    if notes is not None:
        symbols = tuple(s for s in notes.symbols if s.name in used)
        constraints = (c for c in notes.constraints if (c.left.symbols | c.right.symbols) <= used)
        return replace(graph, symbols=symbols, constraints=tuple(constraints))
    found = [*_of_tables(graph), *implied_constraints(graph)]
    highs = {name: sizes.high.get(name, HIGHEST) for name in names}
    rest: list[Constraint] = []
    for constraint in dict.fromkeys(found):
        name, high = _limit(constraint)
        if name in highs and high is not None:
            highs[name] = max(1, min(highs[name], high))
        else:
            rest.append(constraint)
    symbols = tuple(Symbol(name, 1, highs[name]) for name in names)
    known = replace(graph, symbols=symbols)
    still = set(implied_constraints(known))
    tables = set(_of_tables(graph))
    return replace(known, constraints=tuple(c for c in rest if c in still or c in tables))


def _limit(constraint: Constraint) -> tuple[str, int | None]:
    """The symbol that `n + c <= m` limits, and its largest size."""
    difference = constraint.right - constraint.left
    terms = dict(difference.terms)
    constant = terms.pop((), 0)
    if len(terms) == 1:
        (monomial, coefficient), *_ = terms.items()
        match monomial:
            case ((str(name), 1),) if coefficient < 0 <= constant:
                return name, constant // -coefficient
            case _:
                pass
    return "", None


def _of_tables(graph: Graph) -> list[Constraint]:
    """That positions stay within the tables whose rows they are; masks are of 0 and 1."""
    ones: Range = (0, as_dim(1))
    masks = {i.value: ones for i in graph.inputs if i.fill is not None and i.fill.kind == "prefix"}
    found: list[Constraint] = []
    for node in graph.nodes:
        for ids, rows in _lookups(node):
            _, high = range_of(ids, graph.producer, masks)
            if high is not None and not high.is_const and rows.is_const:
                found.append(Constraint(high + 1, "<=", rows, node.location))
    return found


def _lookups(node: Node) -> list[tuple[Operand, Dim]]:
    """The indices that a node reads rows by, with how many rows there are."""
    match node.op, node.operands:
        case "embedding", (ids, Value() as table, *_):
            return [(ids, table.type.shape[0])]
        case "take", (Value() as table, ids):
            return [(ids, table.type.shape[axis_of(node)])]
        case "take_at", (Value() as table, *places):
            return list(zip(places, table.type.shape, strict=False))
        case _:
            return []


def pruned(graph: Graph) -> Graph:
    """The graph without nodes and parameters that no output depends on."""
    needed = set(graph.output_values)
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            needed.update(node.inputs)
            nodes.insert(0, node)
    params = tuple(p for p in graph.params if p.value in needed)
    return replace(graph, nodes=tuple(nodes), params=params)
