"""Taps: intermediate values as further outputs, without undoing what the passes did.

The passes run on the graph without taps. A value that they keep has its name afterwards and is
given out as it is; one that fusion swallowed is computed again, by the nodes that made it, from the
nearest values that are still there (the windows of a merged projection, say). Such nodes only read:
the model's own nodes stay as they are. A value that is there under another name is not computed
twice. May import: cleanup, ops, ir, errors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError
from tfgraph.ir import Output, Value
from tfgraph.passes.cleanup import same_result
from tfgraph.passes.draft import renamed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tfgraph.ir import Graph, Node

_OF_SCORES = {"add", "cast", "div", "mask", "mul", "tanh", "where"}
"""What may stand between the product of Q and K and the softmax."""
_LAYER = re.compile(r"(.*\.)?layers\.\d+(_\d+)?")


@dataclass(frozen=True)
class Tap:
    """A value that is given out, as the output of that name; `added` unless it was an output
    before, `recomputed` where no pass kept it."""

    value: Value
    output: str
    added: bool
    recomputed: bool = False

    def to_json(self) -> dict[str, object]:
        """The object in the list `taps` of `compile --json`."""
        told = {"added": self.added, "recomputed": self.recomputed}
        return {"value": self.value.name, "output": self.output, **told}


def find_taps(graph: Graph, patterns: str | Sequence[str]) -> tuple[Tap, ...]:
    """The values that the patterns name, in the order of the graph.

    A pattern is the name of a value that a node makes, with or without `%`, in which `*`, `?` and
    `[...]` stand for others as in a shell; or `attention`, the weights of every attention, or
    `hidden`, the output of every layer. Raises TfgraphError for one that names nothing, with the
    nearest names, and where another output has the name.
    """
    made = [value for node in graph.nodes for value in node.outputs]
    wanted: set[Value] = set()
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        wanted.update(_named(graph, made, pattern))
    outputs = {o.name: o.value for o in graph.outputs}
    names = {value: name for name, value in reversed(outputs.items())}
    taps = tuple(Tap(v, names.get(v, v.name), v not in names) for v in made if v in wanted)
    for tap in taps:
        if tap.added and tap.output in outputs:
            raise TfgraphError(
                f"tap: the output '{tap.output}' is {outputs[tap.output]}, not {tap.value}",
                hint="give the output another name",
            )
    return taps


def with_taps(graph: Graph, taps: Sequence[Tap]) -> Graph:
    """The graph before the passes with the tapped values as outputs."""
    more = tuple(Output(tap.output, tap.value) for tap in taps if tap.added)
    return replace(graph, outputs=(*graph.outputs, *more)) if more else graph


def tap_fused(before: Graph, after: Graph, taps: Sequence[Tap]) -> tuple[Graph, tuple[Tap, ...]]:
    """`after`, what the passes made of `before`, with the tapped values as outputs; and the taps,
    which know now what was recomputed."""
    there = {v: v for v in after.values() if "~" not in v.name}  # passes make names with ~ anew

    def now(value: Value) -> Value:
        return there.get(value, value)

    again = _missing(before, there, [tap.value for tap in taps if tap.added])
    known = {same_result(node): node for node in reversed(after.nodes)}
    free = _free_names(after)
    added: list[Node] = []
    for node in again:
        moved = node.map_values(now)
        same = known.get(same_result(moved))
        if same is None:
            same = renamed(moved, {v: Value(free(v.name), v.type) for v in node.outputs})
            known[same_result(moved)] = same
            added.append(same)
        there |= {v: w for v, w in zip(node.outputs, same.outputs, strict=True) if v not in there}
    read = {value for node in added for value in node.inputs} - after.param_values
    graph = replace(
        after,
        nodes=tuple(_inserted(after.nodes, added)),
        params=(*after.params, *(p for p in before.params if p.value in read)),
        outputs=(*after.outputs, *(Output(t.output, now(t.value)) for t in taps if t.added)),
    )
    made = {value for node in added for value in node.outputs}
    return graph, tuple(replace(t, recomputed=now(t.value) in made) for t in taps)


def is_attention(graph: Graph, value: Value) -> bool:
    """Whether it holds attention weights [batch, heads, query, key]: a softmax over the keys of
    scores, which are a product of Q and K."""
    node = graph.producer.get(value)
    if node is None or node.op != "softmax" or value.type.rank != 4:
        return False
    while node is not None and (node.op == "softmax" or node.op in _OF_SCORES):
        node = next((p for p in map(graph.producer.get, node.inputs) if _is_scores(p, value)), None)
    return node is not None


def _is_scores(node: Node | None, weights: Value) -> bool:
    """Whether a node makes scores of the shape of the weights, or goes on with such."""
    if node is None or node.outputs[0].type.shape != weights.type.shape:
        return False
    return node.op == "matmul" or node.op in _OF_SCORES


def _named(graph: Graph, made: Sequence[Value], pattern: str) -> list[Value]:
    """The values that one pattern names, at least one."""
    if pattern == "attention":
        found = [v for v in made if is_attention(graph, v)]
    elif pattern == "hidden":
        found = [v for v in made if _LAYER.fullmatch(v.name)]
    else:
        glob = pattern.removeprefix("%")
        found = [v for v in made if v.name == glob or fnmatchcase(v.name, glob)]
    if not found:
        what = f"named '{pattern}'" if pattern not in ("attention", "hidden") else pattern
        raise TfgraphError(f"tap: no value is {what}", hint=_advice(graph, made, pattern))
    return found


def _advice(graph: Graph, made: Sequence[Value], pattern: str) -> str:
    """What else to tap where a pattern names nothing."""
    name = pattern.removeprefix("%")
    if pattern == "attention":
        fused = any(node.op == "attention" for node in graph.nodes)
        return "the graph is fused already" if fused else "no softmax is over scores Q K^T"
    if pattern == "hidden":
        return "no value is named layers.0, and so on"
    if any(name == v.name for v in graph.values()):
        return "it is an input or a parameter; taps are of what nodes make"
    names = ["attention", "hidden", *(v.name for v in made)]
    close = sorted(set(get_close_matches(name, names, n=3, cutoff=0.5)))
    near = f"the nearest are {', '.join(close)}; " if close else ""
    return f"{near}`tfgraph inspect` prints all names"


def _missing(before: Graph, there: Mapping[Value, Value], wanted: Sequence[Value]) -> list[Node]:
    """The nodes of `before` that make the wanted values of those that are there, in order."""
    needed = {value for value in wanted if value not in there}
    found: list[Node] = []
    for node in reversed(before.nodes):
        if not needed.isdisjoint(node.outputs):
            found.append(node)
            needed.update(v for v in node.inputs if v not in there)
    return found[::-1]


def _inserted(nodes: Sequence[Node], added: Sequence[Node]) -> Iterator[Node]:
    """The nodes, and each added one as soon as there is what it reads, which then need not be kept
    for longer."""
    place = {value: i for i, node in enumerate(nodes) for value in node.outputs}
    behind: dict[int, list[Node]] = {}
    for node in added:
        at = max((place.get(value, -1) for value in node.inputs), default=-1)
        place |= dict.fromkeys(node.outputs, at)
        behind.setdefault(at, []).append(node)
    yield from behind.get(-1, ())
    for i, node in enumerate(nodes):
        yield from (node, *behind.get(i, ()))


def _free_names(graph: Graph) -> Callable[[str], str]:
    """Gives names that no value has: the wanted one, else with a number behind `~`."""
    taken = {value.name for value in graph.values()}

    def candidates(name: str) -> Iterator[str]:
        yield name
        number = 0
        while True:
            yield f"{name.partition('~')[0]}~{number}"
            number += 1

    def free(name: str) -> str:
        found = next(n for n in candidates(name) if n not in taken)
        taken.add(found)
        return found

    return free
