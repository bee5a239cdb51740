"""A rule file as a tree: where a node stands, and which rules read it."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from mutants.edit import Mutant, text

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Site:
    """A node, and the field of its parent that holds it."""

    node: ast.AST
    parent: Site | None = None
    field: str = ""
    index: int | None = None

    def children(self) -> Iterator[Site]:
        for name, value in ast.iter_fields(self.node):
            items = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
            for index, item in items:
                if isinstance(item, ast.AST):
                    yield Site(item, self, name, index)

    def up(self) -> Iterator[Site]:
        """It, its parent and so on."""
        site: Site | None = self
        while site is not None:
            yield site
            site = site.parent

    @property
    def keyword(self) -> str:
        """The name of the keyword argument that it is, if it is one."""
        return (self.node.arg or "") if isinstance(self.node, ast.keyword) else ""

    @property
    def in_function(self) -> bool:
        """Whether it stands in the body of a function, not in its decorator."""
        return any(
            isinstance(s.parent.node, ast.FunctionDef) and s.field == "body"
            for s in self.up()
            if s.parent is not None
        )


@dataclass(frozen=True)
class File:
    """A module of rules."""

    name: str
    tree: ast.Module
    definitions: dict[str, ast.AST] = field(init=False)
    """What stands in the module under each name."""

    def __post_init__(self) -> None:
        found: dict[str, ast.AST] = {}
        for top in self.tree.body:
            found |= dict.fromkeys(_names(top), top)
        object.__setattr__(self, "definitions", found)

    @cached_property
    def ops(self) -> frozenset[str]:
        """Names that are imported from `tfgraph.ops`."""
        found = (n for n in self.tree.body if isinstance(n, ast.ImportFrom))
        return frozenset(a.name for n in found if n.module == "tfgraph.ops" for a in n.names)

    @cached_property
    def rules(self) -> dict[str, frozenset[int]]:
        """The rules by the name of what defines them, with all nodes that they read."""
        return {
            name: frozenset(id(node) for top in self._closure(name) for node in ast.walk(top))
            for name, top in self.definitions.items()
            if any(_is_rule(node) for node in ast.walk(top))
        }

    @cached_property
    def again(self) -> frozenset[int]:
        """The `var("x")` of a name that the same rule has at another place too."""
        found: set[int] = set()
        for name in self.rules:
            calls = [
                (node, node.args[0].value)
                for top in self._closure(name)
                for node in ast.walk(top)
                if isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("var", "const", "opt")
                and isinstance(node.args[0], ast.Constant)
            ]
            count = Counter(bound for _, bound in calls)
            found |= {id(node) for node, bound in calls if count[bound] > 1}
        return frozenset(found)

    def function(self, name: str) -> ast.FunctionDef | None:
        """A function of the module."""
        found = self.definitions.get(name)
        return found if isinstance(found, ast.FunctionDef) else None

    def _closure(self, name: str) -> list[ast.AST]:
        """The definition of a name, and of those of the module that it uses."""
        names, todo = {name}, [name]
        while todo:
            for node in ast.walk(self.definitions[todo.pop()]):
                name = node.id if isinstance(node, ast.Name) else ""
                if name in self.definitions and name not in names:
                    names.add(name)
                    todo.append(name)
        return list({id(top): top for top in map(self.definitions.get, names) if top}.values())

    def mutant(self, site: Site, new: ast.AST | None, shown: str | None = None) -> Mutant:
        """`site` replaced by `new`, or taken away; `shown` names what else stands for it."""
        assert site.parent is not None
        if new is not None:
            ast.copy_location(new, site.node)
            ast.fix_missing_locations(new)
        texts = (shown or text(site.node), text(new))
        rules = frozenset(name for name, nodes in self.rules.items() if self._reads(nodes, site))
        owner = site.parent.node
        where = _qualified(site)
        return Mutant(self.name, where, owner, site.field, site.index, new, texts, rules)

    def _reads(self, nodes: frozenset[int], site: Site) -> bool:
        """A rule reads what stands in its definitions, and its place in the list of a pass."""
        if id(site.node) in nodes:
            return True
        return isinstance(site.node, ast.Name) and self.rules.get(site.node.id) == nodes


def _names(top: ast.AST) -> list[str]:
    if isinstance(top, ast.FunctionDef | ast.ClassDef):
        return [top.name]
    targets = top.targets if isinstance(top, ast.Assign) else []
    if isinstance(top, ast.AnnAssign):
        targets = [top.target]
    return [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]


def _is_rule(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "rule"


def _qualified(site: Site) -> str:
    """The classes and functions around a node, or the names that its statement gives."""
    top = list(site.up())
    around = [s.node.name for s in top if isinstance(s.node, ast.FunctionDef | ast.ClassDef)]
    return ".".join(around[::-1]) or ",".join(_names(top[-1].node)) or "module"
