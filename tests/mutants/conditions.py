"""Mutants of conditions: each is deleted, each operand of one is left out, each limit moved."""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING

from mutants.tree import Site

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mutants.edit import Mutant
    from mutants.tree import File

_JUMPS = (ast.Raise, ast.Return, ast.Continue, ast.Break)
_EDGES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt
}  # fmt: skip


def conditions(file: File, site: Site) -> Iterator[Mutant]:
    """What may be changed about the condition that a node is."""
    node = site.node
    match node:
        case ast.If():
            yield from _tested(file, site, only_false=not node.orelse and _jumps(node.body))
        case ast.IfExp():
            yield from _tested(file, site, only_false=False)
        case ast.While():
            yield from _tested(file, site, only_false=True)
        case ast.comprehension():
            for inner in site.children():
                if inner.field == "ifs":
                    yield file.mutant(inner, ast.Constant(True))
        case ast.BoolOp():
            for i in range(len(node.values)):
                kept = node.values[:i] + node.values[i + 1 :]
                new = kept[0] if len(kept) == 1 else ast.BoolOp(node.op, kept)
                yield file.mutant(site, copy.deepcopy(new))
        case ast.Compare():
            yield from _compared(file, site, node)
        case ast.Call(func=ast.Name(id="any" | "all" as name)):
            func = next(s for s in site.children() if s.field == "func")
            yield file.mutant(func, ast.Name("all" if name == "any" else "any", ast.Load()))
        case ast.match_case():
            yield from _case(file, site, node)
        case ast.MatchOr():
            for inner in site.children():
                yield file.mutant(inner, None)
        case ast.Expr(value=ast.Call()) | ast.AugAssign() if site.in_function:
            yield file.mutant(site, ast.Pass())
        case _:
            pass


def _tested(file: File, site: Site, only_false: bool) -> Iterator[Mutant]:
    test = next(s for s in site.children() if s.field == "test")
    yield file.mutant(test, ast.Constant(False))
    if only_false and isinstance(site.node, ast.If):
        yield file.mutant(test, ast.UnaryOp(ast.Not(), copy.deepcopy(test.node)))
    if not only_false:
        yield file.mutant(test, ast.Constant(True))


def _jumps(body: list[ast.stmt]) -> bool:
    return isinstance(body[-1], _JUMPS)


def _compared(file: File, site: Site, node: ast.Compare) -> Iterator[Mutant]:
    """Limits moved by one; members left out; links of a chain left out. What is not tested itself,
    but kept or returned, is also taken for true and for false."""
    for i, op in enumerate(node.ops):
        if type(op) in _EDGES:
            new = copy.deepcopy(node)
            new.ops[i] = _EDGES[type(op)]()
            yield file.mutant(site, new)
        right = node.comparators[i]
        if isinstance(op, ast.In | ast.NotIn) and isinstance(right, ast.Tuple):
            for k in range(len(right.elts)):
                new = copy.deepcopy(node)
                del new.comparators[i].elts[k]  # type: ignore[attr-defined]
                yield file.mutant(site, new)
        if isinstance(right, ast.Constant) and type(right.value) is int:
            new = copy.deepcopy(node)
            new.comparators[i] = ast.Constant(right.value + 1)
            yield file.mutant(site, new)
        if len(node.ops) > 1:
            new = copy.deepcopy(node)
            del new.ops[i], new.comparators[i]
            yield file.mutant(site, new)
    tests = (ast.If, ast.IfExp, ast.While, ast.BoolOp, ast.comprehension)
    if site.parent is not None and not isinstance(site.parent.node, tests):
        yield file.mutant(site, ast.Constant(True))
        yield file.mutant(site, ast.Constant(False))


def _case(file: File, site: Site, node: ast.match_case) -> Iterator[Mutant]:
    """A case is left out; the last one, which takes everything, stays."""
    if isinstance(node.pattern, ast.MatchAs) and node.pattern.pattern is None:
        return
    yield file.mutant(site, None, f"case {ast.unparse(node.pattern)}")
    if node.guard is not None:
        yield file.mutant(
            next(s for s in site.children() if s.field == "guard"), ast.Constant(True)
        )
