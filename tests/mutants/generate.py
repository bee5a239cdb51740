"""All mutants of a file of rules, in the order of its text."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from mutants.conditions import conditions
from mutants.indices import indices
from mutants.patterns import patterns
from mutants.tree import File, Site

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mutants.edit import Mutant


def generate(name: str, source: str) -> tuple[ast.Module, list[Mutant]]:
    """The tree of a file, and its mutants, which change that tree."""
    tree = ast.parse(source)
    file = File(name, tree)
    found: list[Mutant] = []
    for top in tree.body:
        if not isinstance(top, ast.Import | ast.ImportFrom):
            found += _walk(file, Site(top))
    seen: Counter[str] = Counter()
    for i, mutant in enumerate(found):
        seen[mutant.id] += 1
        found[i] = replace(mutant, nth=seen[mutant.id])
    return tree, found


def _walk(file: File, site: Site) -> Iterator[Mutant]:
    if _is_prose(site):
        return
    for kind in (conditions, patterns, indices):
        yield from kind(file, site)
    for inner in site.children():
        yield from _walk(file, inner)


def _is_prose(site: Site) -> bool:
    """Messages, annotations, types, docstrings: nothing that a rule decides by."""
    node = site.node
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.arguments):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return True
    return site.field in ("annotation", "returns") or site.keyword in ("why", "advice", "name")
