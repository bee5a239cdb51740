"""Mutants of patterns: whatever one asks for is asked for no more."""

from __future__ import annotations

import ast
import copy
import inspect
from typing import TYPE_CHECKING

from mutants.tree import Site
from tfgraph.ops import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mutants.edit import Mutant
    from mutants.tree import File

# An op that a pattern could take for another one, with as many operands and the same attributes.
_KIN = {
    "add": "sub", "sub": "add", "mul": "div", "div": "mul", "layer_norm": "rms_norm",
    "rms_norm": "layer_norm", "tanh": "sigmoid", "sigmoid": "tanh", "erf": "tanh", "sqrt": "abs",
    "neg": "abs", "mean": "sum", "pow": "sub",
}  # fmt: skip
_DROPPED = {"shared", "attrs", "reads", "near"}


def patterns(file: File, site: Site) -> Iterator[Mutant]:
    """What may be changed about the part of a pattern that a node is."""
    node = site.node
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return
    match node.func.id:
        case "call" if node.args:
            yield from _call(file, site, node)
        case "either":
            for inner in site.children():
                if inner.field == "args":
                    yield file.mutant(inner, None)
        case "var" | "const" | "opt" if id(node) in file.again:
            new = copy.deepcopy(node)
            first = new.args[0]
            assert isinstance(first, ast.Constant)
            first.value = f"other_{first.value}"
            yield file.mutant(site, new)
        case _:
            pass
    if node.func.id == "const" and len(node.args) > 1:
        yield file.mutant(site, ast.Call(node.func, node.args[:1], []))
    if node.func.id == "opt":
        yield file.mutant(site, ast.Call(_name("var"), copy.deepcopy(node.args), []))
    if node.func.id == "rule":
        yield from _keywords(file, site, node)


def _call(file: File, site: Site, node: ast.Call) -> Iterator[Mutant]:
    ops = _ops(node.args[0])
    yield from _keywords(file, site, node)
    if isinstance(node.args[0], ast.Tuple):
        for i in range(len(ops) if len(ops) > 1 else 0):
            yield _with_ops(file, site, node, ops[:i] + ops[i + 1 :])
    for op in ops:
        if op in _KIN and _KIN[op] not in [*ops, *_beside(site)]:
            yield _with_ops(file, site, node, [*ops, _KIN[op]])
    args = node.args[1:]
    if not any(REGISTRY[op].commutative for op in ops):
        for i in range(1, len(args)):
            new = copy.deepcopy(node)
            new.args[i], new.args[i + 1] = new.args[i + 1], new.args[i]
            yield file.mutant(site, new)
    if any(_takes_more(op, len(args)) for op in ops):
        new = copy.deepcopy(node)
        new.args.append(ast.Call(_name("opt"), [ast.Constant("one_more")], []))
        yield file.mutant(site, new)
    for inner in site.children():
        if inner.field == "args" and inner.index and _is_asked(file, inner.node):
            kind = "const" if isinstance(inner.node, ast.Constant) else "var"
            yield file.mutant(inner, ast.Call(_name(kind), [ast.Constant("anything")], []))


def _beside(site: Site) -> list[str]:
    """The ops that other alternatives take."""
    around = site.parent.node if site.parent is not None else None
    if not (isinstance(around, ast.Call) and ast.unparse(around.func) == "either"):
        return []
    calls = [a for a in around.args if isinstance(a, ast.Call) and a is not site.node]
    return [op for a in calls if ast.unparse(a.func) == "call" for op in _ops(a.args[0])]


def _keywords(file: File, site: Site, node: ast.Call) -> Iterator[Mutant]:
    for inner in site.children():
        if inner.keyword in _DROPPED:
            yield file.mutant(inner, None)


def _with_ops(file: File, site: Site, node: ast.Call, ops: list[str]) -> Mutant:
    first = next(s for s in site.children() if s.field == "args" and s.index == 0)
    return file.mutant(first, ast.Tuple([ast.Constant(op) for op in ops], ast.Load()))


def _ops(node: ast.AST) -> list[str]:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return [p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]


def _takes_more(op: str, count: int) -> bool:
    """Whether an op may have more operands than the pattern names."""
    operands = REGISTRY[op].operands
    several = any(p.kind == inspect.Parameter.VAR_POSITIONAL for p in operands)
    return several or len(operands) > count


def _is_asked(file: File, node: ast.AST) -> bool:
    """Whether a part of a pattern asks for something: not any value, which `var` takes."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in ("call", "either")
    if isinstance(node, ast.Name):
        known = file.definitions.get(node.id)
        plain = isinstance(known, ast.Assign) and ast.unparse(known.value).startswith("var(")
        return known is not None and not plain
    return isinstance(node, ast.Constant)


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())
