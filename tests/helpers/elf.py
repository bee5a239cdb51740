"""The symbols that an object file needs and has: a reader of that part of little-endian ELF64."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_SYMBOL_TABLE = 2  # section type SHT_SYMTAB
_WEAK_OBJECT = (2, 1)  # binding STB_WEAK, type STT_OBJECT


def needed_symbols(elf: bytes) -> set[str]:
    """The names that the object file `elf` expects from outside.

    That is what it leaves undefined, and its weak variables: in those the loader puts the addresses
    of functions of TVM's runtime.
    """
    return {
        name
        for name, info, section in _symbols(elf)
        if section == 0 or (info >> 4, info & 15) == _WEAK_OBJECT
    }


def defined_symbols(elf: bytes) -> set[str]:
    """The names that the object file `elf` gives something."""
    return {name for name, _, section in _symbols(elf) if section != 0}


def _symbols(elf: bytes) -> Iterator[tuple[str, int, int]]:
    """Of each named symbol its name, its binding and type, and its section (0: undefined)."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a little-endian ELF64 file")
    (section_headers,) = struct.unpack_from("<Q", elf, 40)
    header_size, count = struct.unpack_from("<HH", elf, 58)
    # Of each section: type, offset, size, link (for a symbol table, the section of its names).
    sections = [
        struct.unpack_from("<4xI16xQQI", elf, section_headers + i * header_size)
        for i in range(count)
    ]
    for kind, offset, size, link in sections:
        if kind != _SYMBOL_TABLE:
            continue
        strings = sections[link][1]
        for start in range(offset, offset + size, 24):
            name, info, section = struct.unpack_from("<IBxH", elf, start)
            if name:
                end = elf.index(b"\0", strings + name)
                yield elf[strings + name : end].decode(), info, section
