"""Graphs as text. May import: define, ir."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from tfgraph.ir import DType, Exact, Mask
from tfgraph.ir.mask import render_mask
from tfgraph.ops.define import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from inspect import Parameter

    from tfgraph.ir import Attr, Graph, Input, Node, Operand, Output, Symbol, Value

_PLAIN_VALUE = re.compile(r"[A-Za-z0-9_.~]+")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*")


def print_graph(graph: Graph) -> str:
    """The graph in the textual IR, which `parse_graph` reads back.

    All attributes are written, defaults included, except those that are None by default; so is
    every weight's generator, and an input's where it was given.
    """
    inputs = ", ".join(map(_input, graph.inputs))
    lines = [f"graph {_name(graph.name)}({inputs}) {{"]
    lines += [f"  {_symbol(symbol)}" for symbol in graph.symbols]
    lines += [f"  constraint {constraint}" for constraint in graph.constraints]
    lines += [f"  {print_node(node)}" for node in graph.nodes]
    lines += [f"  return {', '.join(map(_output, graph.outputs))}".rstrip(), "}"]
    if graph.params:
        lines.append("weights {")
        lines += [f"  {_value(p.value)} : {p.value.type} = {p.fill}" for p in graph.params]
        lines.append("}")
    return "\n".join(lines) + "\n"


def print_node(node: Node) -> str:
    """One node: `%2 = add(%0, %1) : f32[8]`."""
    results = ", ".join(map(_value, node.outputs))
    types = ", ".join(str(value.type) for value in node.outputs)
    return f"{results} = {_call(node, _value)} : {types}"


def print_call(node: Node) -> str:
    """A node without its results, and values without their %: what `parse_call` reads."""
    return _call(node, lambda value: bare_name(value.name))


def bare_name(name: str) -> str:
    """A value's name as `parse_call` reads it: in quotes where it is not a plain word."""
    return _quoted(name) if name == "_" else _name(name)


def _input(given: Input) -> str:
    text = f"{_value(given.value)}: {given.value.type}"
    return text if given.fill is None else f"{text} = {given.fill}"


def _symbol(symbol: Symbol) -> str:
    example = "" if symbol.example is None else f", example {symbol.example}"
    return f"symbol {symbol.name}: {symbol.low}..{symbol.high}{example}"


def _output(output: Output) -> str:
    value = _value(output.value)
    return value if output.name == output.value.name else f"{_name(output.name)}={value}"


def _call(node: Node, show: Callable[[Value], str]) -> str:
    operands = ", ".join(_operand(operand, show) for operand in node.operands)
    attrs = _attrs(node)
    return f"{node.op}({operands}){f' {{{attrs}}}' if attrs else ''}"


def _operand(operand: Operand, show: Callable[[Value], str]) -> str:
    if operand is None:
        return "_"
    if isinstance(operand, Mask):
        return render_mask(operand, show)
    return str(operand) if isinstance(operand, Exact) else show(operand)


def _attrs(node: Node) -> str:
    """The attributes in the order of the op's signature, without those that are None by default."""
    definition = REGISTRY.get(node.op)
    declared: Mapping[str, Parameter] = definition.attributes if definition else {}
    names = [name for name in declared if name in node.attrs]
    names += [name for name in node.attrs if name not in declared]
    shown: list[str] = []
    for name in names:
        value = node.attrs[name]
        by_default = name not in declared or declared[name].default is None
        if value is not None or not by_default:
            shown.append(f"{name}={_attr(value)}")
    return ", ".join(shown)


def _attr(value: Attr) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_attr, value))}]"
    if isinstance(value, DType):
        return value.short
    return _quoted(value) if isinstance(value, str) else str(value)


def _value(value: Value) -> str:
    return f"%{value.name if _PLAIN_VALUE.fullmatch(value.name) else _quoted(value.name)}"


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    """A JSON string; what does not print (control characters, surrogates) is escaped."""
    return json.dumps(text, ensure_ascii=not text.isprintable())
