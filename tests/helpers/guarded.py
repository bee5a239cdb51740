"""Arrays beside pages that nobody may touch: who reads on, or before the first element, crashes."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_NO_ACCESS = 0
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_ALIGNMENT = 64
_kept: list[mmap.mmap] = []  # an unmapped page may be mapped again, by anyone


def guarded(array: Array, *, behind: bool) -> Array:
    """A copy of the array whose last byte is directly before such a page, or whose first is
    directly behind one. It starts at a multiple of 64 bytes, as kernels want it: where its size is
    no such multiple, that leaves a gap before the page."""
    pages = -(-array.nbytes // mmap.PAGESIZE)
    memory = mmap.mmap(-1, (pages + 2) * mmap.PAGESIZE)
    _kept.append(memory)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in (0, pages + 1):
        if _LIBC.mprotect(start + page * mmap.PAGESIZE, mmap.PAGESIZE, _NO_ACCESS):
            raise OSError(ctypes.get_errno(), "mprotect")
    size = -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    offset = mmap.PAGESIZE + (pages * mmap.PAGESIZE - size if behind else 0)
    copy: Array = np.ndarray(array.shape, array.dtype, memory, offset)
    copy[...] = array
    return copy
