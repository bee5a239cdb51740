"""Runs CUDA kernels on the CPU from Python; no GPU, no driver, no nvcc.

run = Emulated(source, folder)
run("scale_kernel", [out, x, np.int64(5)], grid=(5,), block=(128,))   # changes `out`
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from cuda_emulator.build import host_library

MARGIN = 256  # bytes on each side of an array
Order = Literal["ascending", "descending"] | int
"""Of threads and warps; a number is the seed of a random order."""


class KernelFault(AssertionError):
    """A kernel broke a rule: a race, an access out of bounds, and so on; see `runtime/`."""


class Emulated:
    """The kernels of a .cu file."""

    def __init__(self, source: str, folder: Path, *, checked: bool = True) -> None:
        self.source = source
        library = ctypes.CDLL(str(host_library(source, folder, checked=checked)))
        library.cuda_emulator_error.restype = ctypes.c_char_p
        library.cuda_emulator_barriers.restype = ctypes.c_int64
        library.cuda_emulator_set_order.argtypes = [ctypes.c_int, ctypes.c_uint64]
        library.cuda_emulator_set_order.restype = None
        library.cuda_emulator_add_memory.argtypes = [
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_size_t,
            ctypes.c_char_p,
        ]
        library.cuda_emulator_add_memory.restype = None
        library.cuda_emulator_remove_memory.argtypes = [ctypes.c_void_p]
        library.cuda_emulator_remove_memory.restype = None
        self._library = library

    @property
    def barriers(self) -> int:
        """How many barriers all blocks of the last launch passed, each counted once a block."""
        return int(self._library.cuda_emulator_barriers())

    def leave_out(self, step: int) -> None:
        """Launches that follow pass over the step that stands behind `kept(step)` in the source."""
        self._library.cuda_emulator_leave_out(step)

    def __call__(
        self,
        name: str,
        arguments: Sequence[np.ndarray | np.generic],
        *,
        grid: Sequence[int],
        block: Sequence[int],
        dynamic_shared: int = 0,
        order: Order = "ascending",
        names: Sequence[str] = (),
    ) -> None:
        """Launch a kernel. Arrays, dense, are changed in place, and one that is given twice is one;
        numbers are of the parameters' types. `names` are those of the arguments, for messages.
        Raises KernelFault.
        """
        values: list[ctypes.Array[ctypes.c_char]] = []
        memories: dict[int, _Memory] = {}
        named = [*names, *(f"argument {i}" for i in range(len(names), len(arguments)))]
        for argument, label in zip(arguments, named, strict=True):
            if isinstance(argument, np.ndarray):
                memory = memories.setdefault(id(argument), _Memory(argument, label))
                values.append(_bytes(np.uint64(memory.address)))
            else:
                values.append(_bytes(argument))
        pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        orders = {"ascending": (0, 0), "descending": (1, 0)}
        how = (2, order) if isinstance(order, int) else orders[order]
        self._library.cuda_emulator_set_order(*how)
        for memory in memories.values():
            self._library.cuda_emulator_add_memory(*memory.described)
        launch = getattr(self._library, f"cuda_emulator_launch_{name}")
        failed = launch(_three(grid), _three(block), ctypes.c_uint(dynamic_shared), pointers)
        for memory in memories.values():
            self._library.cuda_emulator_remove_memory(memory.address)
        if failed:
            raise KernelFault(f"{name}: {self._library.cuda_emulator_error().decode()}")
        for memory in memories.values():
            memory.copy_back(name)


class _Memory:
    """A copy of an array between margins of NaN, at an address that is a multiple of 256."""

    def __init__(self, array: np.ndarray, name: str) -> None:
        self._array = array
        room = np.full(array.nbytes + 2 * MARGIN + 256, 0xFF, np.uint8)
        start = -room.ctypes.data % 256
        self._margined = room[start : start + array.nbytes + 2 * MARGIN]
        self._data = self._margined[MARGIN : MARGIN + array.nbytes]
        self._data[:] = np.frombuffer(array.tobytes(), np.uint8)
        self._name = name
        self.address = self._data.ctypes.data

    @property
    def described(self) -> tuple[int, int, int, bytes]:
        """Arguments of cuda_emulator_add_memory."""
        return self.address, self._array.nbytes, self._array.itemsize, self._name.encode()

    def copy_back(self, kernel: str) -> None:
        """The array gets what the kernel left."""
        for margin in (self._margined[:MARGIN], self._margined[MARGIN + self._array.nbytes :]):
            if (margin != 0xFF).any():
                raise KernelFault(f"{kernel} wrote outside of {self._name}")
        self._array[...] = self._data.view(self._array.dtype).reshape(self._array.shape)


def _bytes(value: np.generic) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(value.tobytes(), 16)


def _three(sizes: Sequence[int]) -> ctypes.Array[ctypes.c_uint]:
    return (ctypes.c_uint * 3)(*[*sizes, 1, 1][:3])
