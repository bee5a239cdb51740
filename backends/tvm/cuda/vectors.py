"""Sixteen bytes of memory at a time, to and from float32 numbers in a thread's registers.

May import: tvm.
"""

from __future__ import annotations

from typing import Any

from tfgraph.backends.tvm.cuda.gemm_tile import SHORT
from tfgraph.backends.tvm.cuda.kernel import address, call, load, local, store
from tfgraph.backends.tvm.cuda.slices import chunk_of


def vector_of(dtype: str, *sizes: int) -> int:
    """How many numbers a thread takes at once where runs of them begin and end at multiples of all
    these sizes: those of 16 bytes, or 1."""
    chunk = chunk_of(dtype)
    return 1 if any(size % chunk for size in sizes) else chunk


def load_vector(name: str, count: int, buffer: Any, *indices: Any) -> Any:
    """A register array with the `count` neighbours from buffer[indices] on; `count` is 1 or 16
    bytes, then the address is a multiple of that."""
    numbers = local(name, (count,))
    if count == 1:
        store(numbers, [0], load(buffer, *indices))
    else:
        name = f"load_16_{SHORT[str(buffer.dtype)]}"
        call(name, address(numbers, 0), address(buffer, *indices))
    return numbers


def store_vector(
    buffer: Any, indices: tuple[Any, ...], numbers: Any, count: int, at: Any = 0
) -> None:
    """The reverse, of numbers[at:]: each is rounded to the buffer's type."""
    if count == 1:
        store(buffer, indices, numbers[at])
    else:
        name = f"store_16_{SHORT[str(buffer.dtype)]}"
        call(name, address(buffer, *indices), address(numbers, at))


def copy_vector(
    to: Any, place: tuple[Any, ...], source: Any, origin: tuple[Any, ...], count: int
) -> None:
    """`count` neighbours as they are, bit by bit; of one type, at addresses as above."""
    if count == 1:
        store(to, place, source[origin])
    else:
        call("copy_16", address(to, *place), address(source, *origin))
