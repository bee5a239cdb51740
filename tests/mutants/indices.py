"""Mutants of indices, of the order of operands, of numbers, and of what an op is given."""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING

from mutants.tree import Site
from tfgraph.ops import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mutants.edit import Mutant
    from mutants.tree import File

# Whose operands may stand in any order, and what the mutants of patterns are about.
_SYMMETRIC = {name for name, op in REGISTRY.items() if op.commutative}
_PATTERNS = {"call", "either", "var", "opt", "const", "masked", "rule"}
_PLAIN = {"zip", "isinstance", "getattr", "hasattr", "dict", "field", "cast", "replace"}


def indices(file: File, site: Site) -> Iterator[Mutant]:
    """What may be changed about a node that picks, orders or counts."""
    node = site.node
    match node:
        case ast.Subscript(slice=index) if _number(index) is not None:
            yield file.mutant(Site(node, site.parent, site.field, site.index), _moved(node))
        case ast.Subscript(slice=ast.Slice() as window):
            for bound in ("lower", "upper", "step"):
                if getattr(window, bound) is not None:
                    new = copy.deepcopy(node)
                    setattr(new.slice, bound, None)
                    yield file.mutant(site, new)
        case ast.Tuple(ctx=ast.Load()) if _ordered(site):
            for i in range(len(node.elts) - 1):
                if ast.dump(node.elts[i]) != ast.dump(node.elts[i + 1]):
                    new = copy.deepcopy(node)
                    new.elts[i], new.elts[i + 1] = new.elts[i + 1], new.elts[i]
                    yield file.mutant(site, new)
        case ast.Call() if not (isinstance(node.func, ast.Name) and node.func.id in _PATTERNS):
            yield from _given(file, site, node)
        case ast.BinOp() if site.in_function:
            yield from _calculated(file, site, node)
        case ast.UnaryOp(op=ast.USub(), operand=inner) if not isinstance(inner, ast.Constant):
            yield file.mutant(site, copy.deepcopy(inner))
        case ast.List() if _is_list_of_rules(site):
            for inner in site.children():
                if isinstance(inner.node, ast.expr):
                    yield file.mutant(inner, None)
        case ast.Constant(value=float() as value):
            yield file.mutant(site, ast.Constant(value * 2))
        case _:
            pass


def _number(node: ast.AST) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return None if inner is None else -inner
    value = node.value if isinstance(node, ast.Constant) else None
    return value if type(value) is int else None


def _moved(node: ast.Subscript) -> ast.Subscript:
    """The neighbour: [0] -> [1], [-1] -> [-2]."""
    new = copy.deepcopy(node)
    number = _number(node.slice)
    assert number is not None
    new.slice = ast.Constant(number + 1) if number >= 0 else ast.Constant(number - 1)
    return new


def _ordered(site: Site) -> bool:
    """Whether the order of a tuple says something: of one that is gone through, or asked for its
    members, it does not."""
    parent = site.parent
    if parent is None or not site.in_function or len(getattr(site.node, "elts", ())) < 2:
        return False
    if isinstance(parent.node, ast.For | ast.comprehension | ast.Subscript | ast.Match):
        return False
    if isinstance(parent.node, ast.Call) and ast.unparse(parent.node.func) == "call":
        return False  # ops, any of which a pattern takes
    if isinstance(parent.node, ast.Compare):
        return not any(isinstance(op, ast.In | ast.NotIn) for op in parent.node.ops)
    return True


def _given(file: File, site: Site, node: ast.Call) -> Iterator[Mutant]:
    """Of calls of ops and of the file's own functions: neighbours swapped, keywords left out."""
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if not site.in_function or name in _PLAIN:
        return
    own = file.function(name)
    if (name in file.ops and name not in _SYMMETRIC) or own is not None:
        plain = [a for a in node.args if not isinstance(a, ast.Starred)]
        if own is not None and own.args.vararg is not None:
            for inner in site.children():
                if inner.field == "args" and len(node.args) > 1:
                    yield file.mutant(inner, None)
        elif len(plain) == len(node.args):
            for i in range(len(plain) - 1):
                if ast.dump(plain[i]) != ast.dump(plain[i + 1]):
                    new = copy.deepcopy(node)
                    new.args[i], new.args[i + 1] = new.args[i + 1], new.args[i]
                    yield file.mutant(site, new)
    for i, keyword in enumerate(node.keywords):
        new = copy.deepcopy(node)
        if isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, bool):
            new.keywords[i].value = ast.Constant(not keyword.value.value)
        elif keyword.arg == "axis" and _number(keyword.value) is not None:
            axis = _number(keyword.value)
            assert axis is not None
            new.keywords[i].value = ast.Constant({0: 1, 1: 0}.get(axis, axis - 1))
        else:
            del new.keywords[i]
        yield file.mutant(site, new)


def _calculated(file: File, site: Site, node: ast.BinOp) -> Iterator[Mutant]:
    """+ for - and - for +; of products and quotients, one operand."""
    if isinstance(node.op, ast.Add | ast.Sub):
        other = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        yield file.mutant(
            site, ast.BinOp(copy.deepcopy(node.left), other, copy.deepcopy(node.right))
        )
    elif isinstance(node.op, ast.Mult | ast.FloorDiv | ast.Div):
        yield file.mutant(site, copy.deepcopy(node.left))
        yield file.mutant(site, copy.deepcopy(node.right))


def _is_list_of_rules(site: Site) -> bool:
    parent = site.parent.node if site.parent is not None else None
    return (
        isinstance(parent, ast.AnnAssign)
        and isinstance(parent.target, ast.Name)
        and parent.target.id in ("rules", "cleanups")
    )
