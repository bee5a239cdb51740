"""What of int64 fits in 32 bits, for a language that has no wider integers.

Sizes and indices do: a host makes no array of 2^30 elements, four GiB, where WebGPU grants an
eighth of one GiB unless a device says more. Of values in int64 tensors the range is followed
through the graph, from ids and counts on; one whose range is not known to fit is refused at its
place. What a caller gives in an int64 input has to fit, which the host checks as it hands it over.
May import: base, ops, ir, errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tfgraph.backends.base import CompiledWeight, NDArray
from tfgraph.errors import TfgraphError
from tfgraph.ir import Dim, DType, Exact, Graph, Node, Value, dims_of
from tfgraph.ir.dim import Extremum, FloorDiv
from tfgraph.ops.indices import index_ranges

Interval = tuple[int, int]
"""Integers from the first to the second, both included."""

_INT32: Interval = (-(2**31), 2**31 - 1)
_MOST_ELEMENTS = 2**30
_KEEPS = frozenset(
    {"reshape", "transpose", "broadcast_to", "slice", "concat", "take_at", "where", "max", "topk"}
    | {"maximum", "minimum"}
)
"""Ops whose integers are among those that they read."""


def check_32_bits(graph: Graph, title: str) -> None:
    """Raise TfgraphError at the first node that may make an integer of more than 32 bits."""
    sizes = {s: (graph.symbol(s).low, graph.symbol(s).high) for s in _symbols(graph)}
    held = index_ranges(graph)
    known: dict[Value, Interval | None] = {}
    for item in graph.inputs:
        asked, low, high = held.get(item.value), *_INT32
        if asked is not None and asked.least is not None and asked.limit is not None:
            low, high = bounds(asked.least, sizes)[0], bounds(asked.limit, sizes)[1] - 1
        known[item.value] = low, high
    for node in graph.nodes:
        for dim in (d for part in (*node.attrs.values(), *node.operands) for d in dims_of(part)):
            if not _fits(bounds(dim, sizes)):
                raise _refusal(node, f"{dim} may be {bounds(dim, sizes)[1]}", title)
        for value in node.outputs:
            if value.type.dtype != DType.int64 or value in graph.weight_values:
                continue
            known[value] = found = _range(node, value, known, sizes)
            if found is None:
                raise _refusal(node, f"nothing is known of how large {value} may be", title)
            if not _fits(found):
                raise _refusal(node, f"{value} may be from {found[0]} to {found[1]}", title)


def bounds(dim: Dim, sizes: Mapping[str, Interval]) -> Interval:
    """The least and the greatest that a dimension may be, or more than these."""
    low = high = 0
    for monomial, coefficient in dim.terms:
        factor: Interval = (coefficient, coefficient)
        for atom, power in monomial:
            for _ in range(power):
                factor = _product(factor, _atom(atom, sizes))
        low, high = low + factor[0], high + factor[1]
    return low, high


def _atom(atom: str | FloorDiv | Extremum, sizes: Mapping[str, Interval]) -> Interval:
    if isinstance(atom, str):
        return sizes[atom]
    parts = [bounds(part, sizes) for part in atom.parts]
    if isinstance(atom, Extremum):
        pick = min if atom.kind == "min" else max
        return pick(p[0] for p in parts), pick(p[1] for p in parts)
    (a, b), divisors = parts[0], [d for d in parts[1] if d > 0] or [1]
    ends = [n // d for n in (a, b) for d in divisors]
    return min(ends), max(ends)


def _range(
    node: Node,
    value: Value,
    known: Mapping[Value, Interval | None],
    sizes: Mapping[str, Interval],
) -> Interval | None:
    """The integers that a result may hold; None where nothing says."""
    read = [_operand(o, known) for o in node.operands if isinstance(o, Value | Exact)]
    if node.op == "iota" or (node.op == "topk" and value == node.outputs[1]):
        return 0, _MOST_ELEMENTS
    if node.op == "full":
        held = node.attrs["value"]
        return _operand(held, known) if isinstance(held, Exact) else None
    if node.op == "cast":
        given = node.inputs[0].type.dtype
        return None if given.is_float else (0, 1) if given == DType.bool_ else read[0]
    if node.op in ("take", "embedding"):
        return _operand(node.inputs[0 if node.op == "take" else 1], known)
    if node.op in _KEEPS:
        return _union(read)
    return _computed(node, read, sizes)


def _computed(
    node: Node, read: Sequence[Interval | None], sizes: Mapping[str, Interval]
) -> Interval | None:
    """What arithmetic makes of the integers that a node reads."""
    if not read or read[0] is None or read[-1] is None:
        return None
    a, b = read[0], read[-1]
    if node.op in ("sum", "cumsum"):
        axis = int(node.attrs["axis"])  # type: ignore[arg-type]
        return _product((0, bounds(node.inputs[0].type.shape[axis], sizes)[1]), a)
    found: dict[str, Interval] = {
        "add": (a[0] + b[0], a[1] + b[1]),
        "sub": (a[0] - b[1], a[1] - b[0]),
        "mul": _product(a, b),
        "neg": (-a[1], -a[0]),
        "abs": (0, max(abs(a[0]), abs(a[1]))),
    }
    return found.get(node.op)


def _operand(operand: Value | Exact, known: Mapping[Value, Interval | None]) -> Interval | None:
    if isinstance(operand, Value):
        return known.get(operand, _INT32)  # of other types, and of weights, which are checked
    number = int(operand.factor) if operand.is_integer else int(float(operand))
    return number, number


def _union(parts: Sequence[Interval | None]) -> Interval | None:
    kept = [p for p in parts if p is not None]
    if len(kept) < len(parts) or not kept:
        return None
    return min(p[0] for p in kept), max(p[1] for p in kept)


def _product(a: Interval, b: Interval) -> Interval:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


def _fits(found: Interval) -> bool:
    return _INT32[0] <= found[0] and found[1] <= _INT32[1]


def _symbols(graph: Graph) -> set[str]:
    found = {s for v in graph.values() for d in v.type.shape for s in d.symbols}
    parts = (p for n in graph.nodes for p in (*n.attrs.values(), *n.operands))
    return found | {s for part in parts for d in dims_of(part) for s in d.symbols}


def _refusal(node: Node, reason: str, title: str) -> TfgraphError:
    return TfgraphError(
        f"{reason}, and {title} has integers of 32 bits alone",
        node.location,
        "--target opencl has wider ones",
    )


def stored_weight(weight: CompiledWeight, dtype: str) -> CompiledWeight:
    """A weight as it stands in the device's memory. Raises TfgraphError when it is made and an
    integer of it does not fit."""
    if dtype == weight.dtype:
        return weight

    def make() -> NDArray:
        given = weight.make()
        stored = given.astype(dtype)
        if not np.array_equal(stored, given):
            raise TfgraphError(f"weight {weight.name} has integers of more than 32 bits")
        return stored

    return replace(weight, dtype=dtype, make=make)
