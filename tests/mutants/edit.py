"""One change of a syntax tree, and what says which one it is without a line number."""

from __future__ import annotations

import ast
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One change of a file: `field` of `owner` (its item `index`, where it is a list) becomes
    `new`; None takes the item away."""

    file: str
    where: str
    """The function, class or name of the module that it stands in."""
    owner: ast.AST
    field: str
    index: int | None
    new: ast.AST | None
    shown: tuple[str, str]
    """What stood there, and what does now."""
    rules: frozenset[str] = frozenset()
    """The rules that read it."""
    nth: int = 1
    """Which one of those that read alike."""

    @property
    def id(self) -> str:
        """What it is, in words that stay when other lines change."""
        before, after = self.shown
        again = f" ({self.nth})" if self.nth > 1 else ""
        return f"{self.file} {self.where}: {before} -> {after}{again}"

    @property
    def line(self) -> int:
        """Where it is now."""
        return getattr(self.old, "lineno", getattr(self.owner, "lineno", 0))

    @property
    def old(self) -> ast.AST:
        """What is replaced."""
        held = getattr(self.owner, self.field)
        return held if self.index is None else held[self.index]

    def apply(self) -> None:
        """Change the tree, for good: a child process does it in its own copy."""
        if self.index is None:
            setattr(self.owner, self.field, self.new)
        elif self.new is None:
            del getattr(self.owner, self.field)[self.index]
        else:
            getattr(self.owner, self.field)[self.index] = self.new


def text(node: ast.AST | None) -> str:
    """Source text in one line."""
    return "nothing" if node is None else " ".join(ast.unparse(node).split())
