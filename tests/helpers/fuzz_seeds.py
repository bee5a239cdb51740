"""Which seeds the fuzz tests of a run had, read from the names of the tests."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_ID = re.compile(r"::test_(\w+)\[seeds (\d+)-(\d+)\]$")


def seeds_that_ran(tests: Iterable[str]) -> list[str]:
    """A line for each kind of graphs, such as `blocks: 250 graphs, seeds 0 to 249`."""
    batches: dict[str, set[tuple[int, int]]] = {}
    for test in tests:
        match = _ID.search(test)
        if match:
            batches.setdefault(match[1], set()).add((int(match[2]), int(match[3])))
    lines: list[str] = []
    for kind, found in sorted(batches.items()):
        count = sum(last - first + 1 for first, last in found)
        spans: list[list[int]] = []
        for first, last in sorted(found):
            if spans and first == spans[-1][1] + 1:
                spans[-1][1] = last
            else:
                spans.append([first, last])
        shown = ", ".join(f"{first} to {last}" for first, last in spans)
        lines.append(f"{kind}: {count} graphs, seeds {shown}")
    return lines
