"""The memory of a GPU as the place of a function's arrays, and the code that runs there.

May import: numpy, tvm_ffi, the files of this folder, jit, memory, overlap, errors.
"""

from __future__ import annotations

import hashlib
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.errors import TfgraphError
from tfgraph.runtime.cuda.array import (
    CUDA,
    CudaArray,
    copy,
    download,
    from_dlpack,
    is_on_gpu,
    new_tensor,
    upload,
    view,
)
from tfgraph.runtime.ffi import tvm_ffi
from tfgraph.runtime.jit import CodePlace
from tfgraph.runtime.memory import shown
from tfgraph.runtime.overlap import check_states

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from tfgraph.runtime.cuda.driver import Device

    Array = np.ndarray[Any, np.dtype[Any]]

_COMPILE = "tvm_callback_cuda_compile"
_CPU, _NAIVE, _POOLED = 1, 1, 2
"""The CPU's device type of DLPack; allocators that keep no free lists, and that keep them: to take
memory of a GPU, or give it back, waits for all that runs there."""


class CudaPlace(CodePlace):
    """The memory of a GPU. NumPy arrays are copied to it and from it; arrays that lie there are
    taken as they are."""

    def __init__(self, device: Device, image: bytes, source_sha256: str) -> None:
        """`image` is the code for the device, of the source with that hash."""
        self.device = device
        self.machine = CUDA, device.number, _POOLED, _CPU, 0, _NAIVE
        self._image, self._source = image, source_sha256
        self._place = tvm_ffi.device("cuda", device.number)

    def read(self, given: Any, what: str, dtype: str, hint: str | None = None) -> Any:
        if is_on_gpu(given):
            return from_dlpack(given, what, dtype, self.device.number, hint)
        return super().read(given, what, dtype, hint)

    def values(self, array: Any) -> Array:
        return array.numpy() if isinstance(array, CudaArray) else super().values(array)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        with self._told("an array"):
            return CudaArray(new_tensor(shape, dtype, self._place))

    def copy_rows(self, target: Any, source: Any, rows: Sequence[int], length: int) -> None:
        row = target.shape[2:]
        width = math.prod(row) * np.dtype(target.dtype).itemsize
        part = (length, *row)
        for i, chosen in enumerate(rows) if length else ():
            to = view(target.tensor, part, i * target.shape[1] * width)
            copy(view(source.tensor, part, chosen * source.shape[1] * width), to)

    def tensor(self, array: Any) -> Any:
        """An argument for compiled code."""
        if isinstance(array, CudaArray):
            return array.tensor
        with self._told("an array"):
            return upload(array, self._place)

    def look(self, array: Any) -> tuple[object, ...]:
        if isinstance(array, CudaArray):
            return array.shape, array.dtype, array.address
        return super().look(array)

    def lasting(self, array: Any) -> Any:
        """The argument for an array that lies on the device."""
        return array.tensor if isinstance(array, CudaArray) else None

    def returned(self, given: Mapping[str, Any]) -> Callable[[Any], Any]:
        """What makes arrays of results: they lie where the arguments did, on the device if one
        of them did."""
        on_device = any(isinstance(array, CudaArray) for array in given.values())
        return CudaArray if on_device else download

    def update(self, target: Any, result: Any) -> bool:
        """Copy a result to where it belongs, if it is another array; whether so."""
        if not isinstance(target, CudaArray):
            np.copyto(target, download(result))
            return True
        if target.address == CudaArray(result).address:
            return False
        if target.size:
            copy(result, target.tensor)
            self._wait()  # what reads it next may do so on any stream
        return True

    def sharing(self, one: Any, other: Any) -> str | None:
        """As on the CPU; of arrays there, which are dense, any two that overlap do."""
        there = [array for array in (one, other) if isinstance(array, CudaArray)]
        if len(there) < 2:
            return None if there else super().sharing(one, other)
        (start, end), (first, last) = map(_span, there)
        return "shares" if start < last and first < end else None

    def check_states(self, states: AbstractSet[str], arrays: Mapping[str, Any]) -> None:
        """As of the CPU; on the device, states are apart from the other arrays there."""
        there = {name: array for name, array in arrays.items() if isinstance(array, CudaArray)}
        here = {name: array for name, array in arrays.items() if name not in there}
        check_states(states & here.keys(), here)
        for name in sorted(states & there.keys()):
            for other, array in there.items():
                if other != name and self.sharing(there[name], array):
                    raise TfgraphError(
                        f"state '{name}' shares memory with '{other}'",
                        hint="pass an array of its own",
                    )

    def refuse_absurd(self, need: int, what: str, sizes: Mapping[str, int]) -> None:
        """Raise TfgraphError where the device has less memory; how much is free, tells the call."""
        if need > self.device.memory:
            raise TfgraphError(
                f"{what} needs {shown(need)} at {sizes}; {self.device} has "
                f"{shown(self.device.memory)}",
                hint="take smaller sizes",
            )

    @contextmanager
    def loading(self) -> Generator[None]:
        """Around the loading of objects: their source is compiled already."""

        def compiled(source: str) -> bytes:
            if hashlib.sha256(source.encode()).hexdigest() != self._source:
                raise RuntimeError("the source in the object files is not kernels.cu")
            return self._image

        before = tvm_ffi.get_global_func(_COMPILE, allow_missing=True)
        tvm_ffi.register_global_func(_COMPILE, compiled, override=True)
        try:
            yield
        finally:
            tvm_ffi.remove_global_func(_COMPILE)
            if before is not None:
                tvm_ffi.register_global_func(_COMPILE, before)

    @contextmanager
    def running(self, name: str) -> Generator[None]:
        """Around a call: waits for its kernels, and says what went wrong on the device."""
        with self._told(name):
            yield
            self._wait()

    def _wait(self) -> None:
        """Until the device is done with all that it was asked for."""
        tvm_ffi.get_global_func("runtime.Device_StreamSync")(self._place, 0)

    @contextmanager
    def _told(self, what: str) -> Generator[None]:
        """Says of `what` what went wrong on the device."""
        try:
            yield
        except RuntimeError as cause:
            text = str(cause).strip().partition("\n")[0]
            if "out of memory" in text or "MemoryAllocation" in text:
                raise TfgraphError(
                    f"{what}: the memory of {self.device} does not suffice",
                    hint="take smaller sizes, or end what else uses the GPU",
                ) from cause
            raise TfgraphError(f"{what}: {self.device}: {text}") from cause


def _span(array: CudaArray) -> tuple[int, int]:
    """The addresses of its first byte and behind its last."""
    return array.address, array.address + array.size * np.dtype(array.dtype).itemsize
