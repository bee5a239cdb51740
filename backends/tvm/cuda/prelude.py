"""The functions of `ptx.cuh` that a text calls, and those that these call.

May import: the standard library.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_TEXT = Path(__file__).parent / "ptx.cuh"
_NAME = re.compile(r"^DEVICE \w+ (\w+)\(", re.MULTILINE)
_OTHER = re.compile(r"(?:#define|enum) (\w+)|\b(\w+) = 0x")


def prelude(code: str) -> str:
    """What has to stand before `code`; "" if it calls nothing of ours."""
    head, *parts = _parts()
    needed: list[str] = []
    text = code
    for part in reversed(parts):  # a function calls only what stands before it
        if any(re.search(rf"\b{name}\b", text) for name in _NAME.findall(part)):
            needed.insert(0, part)
            text += part
    return "\n\n".join([head, *needed]) if needed else ""


@cache
def prelude_names() -> frozenset[str]:
    """What it calls its functions, constants and types, and sizes must not be called."""
    text = _TEXT.read_text()
    others = (name for pair in _OTHER.findall(text) for name in pair if name)
    return frozenset((*_NAME.findall(text), *others))


@cache
def _parts() -> tuple[str, ...]:
    """The file at its empty lines: what it says at its head, then a function or two each."""
    return tuple(_TEXT.read_text().strip().split("\n\n"))
