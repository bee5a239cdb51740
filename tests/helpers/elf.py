"""Which symbols an object file needs: a reader of just that part of ELF64, little-endian."""

from __future__ import annotations

import struct

_SYMBOL_TABLE = 2  # section type SHT_SYMTAB
_WEAK_OBJECT = (2, 1)  # binding STB_WEAK, type STT_OBJECT


def needed_symbols(elf: bytes) -> set[str]:
    """The names that the object file `elf` expects from outside.

    That is what it leaves undefined, and its weak variables: in those the loader puts the addresses
    of functions of TVM's runtime.
    """
    if elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a little-endian ELF64 file")
    (section_headers,) = struct.unpack_from("<Q", elf, 40)
    header_size, count = struct.unpack_from("<HH", elf, 58)
    # Of each section: type, offset, size, link (for a symbol table, the section of its names).
    sections = [
        struct.unpack_from("<4xI16xQQI", elf, section_headers + i * header_size)
        for i in range(count)
    ]
    needed: set[str] = set()
    for kind, offset, size, link in sections:
        if kind != _SYMBOL_TABLE:
            continue
        strings = sections[link][1]
        for start in range(offset, offset + size, 24):
            name, info, section = struct.unpack_from("<IBxH", elf, start)
            if name and (section == 0 or (info >> 4, info & 15) == _WEAK_OBJECT):
                end = elf.index(b"\0", strings + name)
                needed.add(elf[strings + name : end].decode())
    return needed
