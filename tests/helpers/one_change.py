"""Neighbours of a graph: every graph that differs from it in one place, and still fits together.

Another op, operands swapped, another tensor or constant, another attribute, a value that is read
once more. Some mean the same, most do not.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from helpers.reference import run_graph

from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import Dim, Exact, Graph, Node, Value, map_operand
from tfgraph.ops import find_op, in_float64

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfgraph.ops import Builder

Change = "Callable[[Builder, str, list[Any], dict[str, Any]], Any]"
# Ops that take the same operands; of those of one operand, two others stand for all.
_OTHERS = {
    "add": ("sub",), "sub": ("add",), "mul": ("div", "add"), "div": ("mul",), "pow": ("sub",),
    "layer_norm": ("rms_norm",), "rms_norm": ("layer_norm",), "mean": ("sum", "max"),
    "neg": ("abs",), "sqrt": ("abs",), "erf": ("tanh",), "tanh": ("erf", "sigmoid"),
    "sigmoid": ("tanh",), "softmax": ("neg",), "gelu": ("exp",), "less": ("equal",),
    "sin": ("cos",), "cos": ("sin",), "logical_and": ("logical_or",),
}  # fmt: skip


def neighbours(graph: Graph) -> Iterator[tuple[str, Graph]]:
    """What was changed, and the graph with that change."""
    for at, node in enumerate(graph.nodes):
        for what, change in _changes(node):
            try:
                changed = _rebuilt(graph, at, change)
            except (TfgraphError, ZeroDivisionError):
                continue  # no graph
            yield f"%{node.outputs[0].name} = {node.op}: {what}", changed


def values(graph: Graph) -> dict[str, Any]:
    """The outputs in float64, on inputs that follow from their names."""
    arrays: dict[str, Any] = {"no input": np.zeros(())}
    for value in [i.value for i in graph.inputs] + [p.value for p in graph.params]:
        rng = np.random.default_rng(sum(value.name.encode()))
        shape = tuple(map(int, value.type.shape))
        if value.type.dtype.is_float:
            arrays[value.name] = rng.standard_normal(shape)
        else:
            array = rng.integers(0, 2, shape)
            array[..., :1] = 1  # a mask allows a key
            arrays[value.name] = array.astype(value.type.dtype.value)
    with np.errstate(all="ignore"):
        found = run_graph(in_float64(graph), arrays)
    return {o.name: found[o.name] for o in graph.outputs}


def _rebuilt(graph: Graph, at: int, change: Any) -> Graph:
    with ops.graph(graph.name) as g:
        known: dict[Value, Any] = {}
        for i in graph.inputs:
            known[i.value] = g.input(i.value.name, i.value.type.dtype, *i.value.type.shape)
        for p in graph.params:
            known[p.value] = g.param(p.value.name, p.value.type.dtype, *p.value.type.shape)
        for i, node in enumerate(graph.nodes):
            operands = [map_operand(o, known.__getitem__) for o in node.operands]
            make = change if i == at else _same
            results = make(g, node.op, operands, dict(node.attrs))
            results = results if isinstance(results, tuple) else (results,)
            known |= zip(node.outputs, results, strict=True)
        for o in graph.outputs:
            g.output(o.name, known[o.value])
    return g.build()


def _same(g: Builder, op: str, operands: list[Any], attrs: dict[str, Any]) -> Any:
    return g.apply(op, *operands, **attrs)


def _changes(node: Node) -> Iterator[tuple[str, Any]]:
    for other in _OTHERS.get(node.op, ()):
        yield other, lambda g, _, o, a, op=other: _same(g, op, o, a if op != "neg" else {})
    if not find_op(node.op).commutative:
        for i in range(len(node.operands) - 1):
            yield f"operands {i} and {i + 1} swapped", _swapped(i)
    if node.op == "concat":
        yield "one operand more", lambda g, op, o, a: _same(g, op, [*o, _fresh(g, o[-1].type)], a)
    for i, operand in enumerate(node.operands):
        if isinstance(operand, Value):
            yield f"another operand {i}", _replaced(i, lambda g, x: _fresh(g, x.type))
            if any(isinstance(o, Value) for o in (*node.operands[:i], *node.operands[i + 1 :])):
                yield f"a constant {i}", _replaced(i, lambda g, x: Exact(Fraction(3)))
            for shape in _wider(operand):
                yield (
                    f"operand {i} is {shape}",
                    _replaced(i, lambda g, x, s=shape: _resized(g, x, s)),
                )
        elif isinstance(operand, Exact):
            for factor in (Fraction(3, 2), Fraction(100001, 100000), Fraction(-1)):
                yield (
                    f"constant {i} times {factor}",
                    _replaced(i, lambda g, c, f=factor: c * Exact(f)),
                )
        if operand is not None and i == len(node.operands) - 1 and i:
            yield f"no operand {i}", lambda g, op, o, a, i=i: _same(g, op, o[:i], a)
    for name, attr in node.attrs.items():
        for new in _attrs(attr):
            yield f"{name}={new}", lambda g, op, o, a, n=name, v=new: _same(g, op, o, {**a, n: v})
    for i, value in enumerate(node.outputs):
        yield f"result {i} is read", lambda g, op, o, a, i=i: _read(g, i, _same(g, op, o, a))
        if value.type.dtype.is_float:
            yield f"result {i} plus 1", lambda g, op, o, a, i=i: _shifted(i, _same(g, op, o, a))


def _swapped(i: int) -> Any:
    def change(g: Builder, op: str, operands: list[Any], attrs: dict[str, Any]) -> Any:
        operands[i], operands[i + 1] = operands[i + 1], operands[i]
        return _same(g, op, operands, attrs)

    return change


def _replaced(i: int, new: Callable[..., Any]) -> Any:
    def change(g: Builder, op: str, operands: list[Any], attrs: dict[str, Any]) -> Any:
        operands[i] = new(g, operands[i])
        return _same(g, op, operands, attrs)

    return change


def _fresh(g: Builder, type_: Any) -> Any:
    return g.input(g.unique("fresh"), type_.dtype, *type_.shape)


def _wider(value: Value) -> list[tuple[Any, ...]]:
    """Shapes that broadcast where this one stands."""
    shape = value.type.shape
    return [shape[1:]] if len(shape) > 1 else []


def _resized(g: Builder, x: Any, shape: tuple[Any, ...]) -> Any:
    return g.input(g.unique("fresh"), x.dtype, *shape)


def _read(g: Builder, i: int, results: Any) -> Any:
    g.output("also", results[i] if isinstance(results, tuple) else results)
    return results


def _shifted(i: int, results: Any) -> Any:
    if not isinstance(results, tuple):
        return results + 1
    return tuple(r + 1 if i == k else r for k, r in enumerate(results))


def _attrs(attr: Any) -> Iterator[Any]:
    """Others of its kind."""
    match attr:
        case bool():
            yield not attr
        case int():
            yield from (attr - 1, attr + 1)
        case Dim() if attr.is_const:
            yield from (int(attr) - 1, int(attr) + 1)
        case Exact():
            yield attr * Exact(Fraction(3, 2))
        case tuple():
            for i in range(len(attr) - 1):
                if attr[i] != attr[i + 1]:
                    yield (*attr[:i], attr[i + 1], attr[i], *attr[i + 2 :])
        case _:
            return
