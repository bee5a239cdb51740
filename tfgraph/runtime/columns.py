"""Rows of text as aligned lines: what every table that is printed is made by. Imports nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Sequence


def columns(
    rows: Sequence[Sequence[str]], right: Container[int] = (), indent: int = 2
) -> list[str]:
    """Rows as aligned lines, the columns in `right` to the right, two spaces between columns; the
    last column is not padded, and rows may be short."""
    if not rows:
        return []
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(max(map(len, rows)))]
    lines: list[str] = []
    for row in rows:
        cells = [
            cell.rjust(widths[i]) if i in right else cell.ljust(widths[i])
            for i, cell in enumerate(row)
        ]
        lines.append((" " * indent + "  ".join(cells)).rstrip())
    return lines
