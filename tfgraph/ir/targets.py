"""What the names mean at which one intervenes in a graph: heads, hidden units, rows of weights.

    layers.3.heads.5                       what head 5 of the attention of layer 3 gives
    decoder.layers.3.cross_attention.heads.5
    layers.2.ffn.17                        hidden unit 17
    layers.1.ffn.w1[17]                    the weights into that unit: up.weight[:,17]
    layers.1.ffn.w2[17]                    the weights out of it: down.weight[17]
    layers.1.attention.q.bias[3]           an element of a vector

May import: graph, errors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError, nearest

if TYPE_CHECKING:
    from tfgraph.ir.graph import Graph, Value

_INDEXED = re.compile(r"(?P<name>.+)\[(?P<index>[^\[\]]*)\]")
_ALIASES = {"w1": ("up.weight", 1), "w2": ("down.weight", 0)}  # with the axis of a unit


@dataclass(frozen=True)
class Part:
    """Elements `start` <= i < `stop` of the last axis of a value: a head's, or a hidden unit's."""

    value: Value
    start: int
    stop: int


@dataclass(frozen=True)
class Row:
    """Row `index` along `axis` of a parameter, of `length` elements."""

    value: Value
    axis: int
    index: int
    length: int


def find_target(graph: Graph, name: str) -> Part | Row:
    """What an edit is of. Raises TfgraphError that names the nearest, or what there is."""
    indexed = _INDEXED.fullmatch(name)
    if indexed is not None:
        return _row(graph, name, indexed["name"], indexed["index"])
    block, _, last = name.rpartition(".")
    if block.rpartition(".")[2] == "heads":
        return _head(graph, name, block.rpartition(".")[0], last)
    values = {value.name: value for value in graph.values()}
    hidden = values.get(f"{block}.hidden")
    if hidden is None:
        raise _unknown(graph, name)
    width = int(hidden.type.shape[-1])
    unit = _number(name, last, width, f"{block} has hidden units 0..{width - 1}")
    return Part(hidden, unit, unit + 1)


def _head(graph: Graph, name: str, layer: str, number: str) -> Part:
    values = {value.name: value for value in graph.values()}
    named = (f"{layer}.attention.context", f"{layer}.context", layer)
    for context in (values[n] for n in named if n in values):
        heads = _heads_of(graph, context)
        if heads is not None:
            head = _number(name, number, heads, f"{layer} has heads 0..{heads - 1}")
            size = int(context.type.shape[-1]) // heads
            return Part(context, head * size, (head + 1) * size)
    raise _unknown(graph, name)


def _heads_of(graph: Graph, context: Value) -> int | None:
    """How many query heads stand side by side in the result of an attention, fused or not; None of
    another value."""
    maker = graph.producer.get(context)
    while maker is not None and maker.op in ("where", "mul"):  # an intervention before this one
        before = next((v for v in maker.inputs if v.type == context.type), None)
        maker = None if before is None else graph.producer.get(before)
    if maker is not None and maker.op == "attention":
        return int(str(maker.attrs["heads"]))
    maps = f"{context.name.removesuffix('.context')}.probabilities"
    found = next((v for v in graph.values() if v.name == maps), None)
    return None if found is None else int(found.type.shape[1])


def _row(graph: Graph, name: str, param: str, index: str) -> Row:
    params = {item.value.name: item.value for item in graph.params}
    axis = 0
    if param not in params:
        block, _, alias = param.rpartition(".")
        full, axis = _ALIASES.get(alias, ("", 0))
        if f"{block}.gate.weight" in params and full:
            raise TfgraphError(
                f"{name}: {block} is gated: it has two matrices into its hidden units",
                hint=f"name one: {block}.gate.weight[:,{index}], {block}.up.weight[:,{index}]; or "
                f"those out of them: {block}.down.weight[{index}]",
            )
        param = f"{block}.{full}"
    if param not in params:
        raise _unknown(graph, name)
    value = params[param]
    shape = [int(size) for size in value.type.shape]
    if len(shape) not in (1, 2):
        raise TfgraphError(f"{name}: {param} is {value.type}: matrices and vectors have rows")
    column = re.fullmatch(r"\s*:\s*,(.*)", index)
    if column is not None and len(shape) == 2 and axis == 0:
        axis, index = 1, column[1]
    what = ("columns" if axis else "rows") if len(shape) == 2 else "elements"
    of = f"{param}, {value.type}, has {what} 0..{shape[axis] - 1}"
    length = 1 if len(shape) == 1 else shape[1 - axis]
    return Row(value, axis, _number(name, index.strip(), shape[axis], of), length)


def _number(name: str, text: str, count: int, there_are: str) -> int:
    if not text.isdecimal() or int(text) >= count:
        raise TfgraphError(f"cannot intervene at {name}: {there_are}")
    return int(text)


def _unknown(graph: Graph, name: str) -> TfgraphError:
    """The error for a name that means nothing, with the nearest that does."""
    known: list[str] = []
    number = (re.findall(r"\d+", name) or ["0"])[-1]
    for value in graph.values():
        block, _, last = value.name.rpartition(".")
        if last == "context":
            known.append(f"{block.removesuffix('.attention')}.heads.{number}")
        elif last == "hidden":
            known.append(f"{block}.{number}")
    params = [item.value.name for item in graph.params]
    for alias, (end, _) in _ALIASES.items():
        blocks = [p.removesuffix(f".{end}") for p in params if p.endswith(f".{end}")]
        plain = [block for block in blocks if f"{block}.gate.weight" not in params]
        known += [f"{block}.{alias}[{number}]" for block in plain]
    known += [f"{param}[{number}]" for param in params]
    message = f"cannot intervene at {name}: {graph.name} has no such head, hidden unit or weight"
    if "[" in name:
        known = [other for other in known if "[" in other]
    some = ", ".join([*known[:3], *known[-1:]])
    return TfgraphError(message, hint=nearest(name, known) or f"it has such as {some}")
