"""Arrays in the memory of a GPU: other libraries' by DLPack, and what a model gives back for those.

May import: numpy, tvm_ffi, errors.
"""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.errors import TfgraphError
from tfgraph.runtime.ffi import tvm_ffi

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]

CUDA = 2
"""The device type of DLPack."""
_LEGACY_STREAM = 1
ALIGNMENT = 16
"""Kernels read so many bytes at a time."""


class CudaArray:
    """An array on a GPU. Any library that knows DLPack reads it there (`torch.from_dlpack`), and
    `numpy()` copies it."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.shape: tuple[int, ...] = tuple(map(int, tensor.shape))
        self.dtype = str(tensor.dtype)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def address(self) -> int:
        """Where it starts on the device."""
        return int(self.tensor.data_ptr())

    def numpy(self) -> Array:
        """A copy in the CPU's memory."""
        return download(self.tensor)

    def __dlpack__(self, **options: Any) -> Any:
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, number = self.tensor.__dlpack_device__()
        return int(kind), int(number)

    def __repr__(self) -> str:
        return f"<{self.dtype}{list(self.shape)} on GPU {self.__dlpack_device__()[1]}>"


def is_on_gpu(given: Any) -> bool:
    """Whether it is an array in the memory of a GPU."""
    if isinstance(given, np.ndarray | np.generic | type) or not hasattr(given, "__dlpack_device__"):
        return False
    return int(given.__dlpack_device__()[0]) == CUDA


def from_dlpack(
    given: Any, what: str, dtype: str, number: int, hint: str | None = None
) -> CudaArray:
    """Another library's array on GPU `number`, in the same memory. Raises TfgraphError where it is
    on another, of another dtype, not aligned, or not contiguous; `hint` is what to do about the
    dtype and the strides."""
    if isinstance(given, CudaArray):
        found = given
    else:
        # What its library has still to do is awaited on the stream that kernels run on.
        try:
            capsule = given.__dlpack__(stream=_LEGACY_STREAM)
        except TypeError:  # it takes no streams
            capsule = given.__dlpack__()
        try:
            found = CudaArray(tvm_ffi.from_dlpack(_Given(capsule, given.__dlpack_device__())))
        except (RuntimeError, ValueError, BufferError) as cause:
            raise TfgraphError(f"{what} cannot be read as an array: {cause}") from cause
    at = found.__dlpack_device__()[1]
    if at != number:
        raise TfgraphError(
            f"{what} is on GPU {at}, expected GPU {number}, which the model runs on",
            hint="move it there, or give a NumPy array",
        )
    if found.dtype != dtype:
        raise TfgraphError(
            f"{what} is {found.dtype}, expected {dtype}", hint=hint or f"convert it to {dtype}"
        )
    if found.address % ALIGNMENT:
        raise TfgraphError(
            f"{what} starts at an address that is no multiple of {ALIGNMENT} bytes",
            hint="copy it, in PyTorch by .clone()",
        )
    if not found.tensor.is_contiguous():
        hint = hint or "copy it, in PyTorch by .contiguous()"
        raise TfgraphError(f"{what} is not contiguous", hint=hint)
    return found


class _Given:
    """A capsule, for a function that asks for who makes one."""

    def __init__(self, capsule: Any, device: Any) -> None:
        self._capsule, self._device = capsule, device

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> Any:
        return self._device


def new_tensor(shape: tuple[int, ...], dtype: str, device: Any) -> Any:
    """A tensor on a device; what it holds is undefined."""
    make = tvm_ffi.get_global_func("runtime.TVMTensorAllocWithScope")
    return make(tvm_ffi.Shape(shape), tvm_ffi.dtype(dtype), device, None)


def upload(array: Array, device: Any) -> Any:
    """A copy of an array on a device, as a tensor."""
    array = np.ascontiguousarray(array)
    tensor = new_tensor(array.shape, str(array.dtype), device)
    if array.nbytes:
        _copy("runtime.TVMTensorCopyFromBytes", tensor, array)
    return tensor


def download(tensor: Any) -> Array:
    """A copy of a tensor in the CPU's memory."""
    array: Array = np.empty(tuple(map(int, tensor.shape)), str(tensor.dtype))
    if array.nbytes:
        _copy("runtime.TVMTensorCopyToBytes", tensor, array)
    return array


def view(tensor: Any, shape: tuple[int, ...], offset: int) -> Any:
    """A part of a tensor, from so many bytes on."""
    make = tvm_ffi.get_global_func("runtime.TVMTensorCreateView")
    return make(tensor, tvm_ffi.Shape(shape), tensor.dtype, offset)


def copy(source: Any, target: Any) -> None:
    """Copy one tensor of a device to another of its shape."""
    tvm_ffi.get_global_func("runtime.TVMTensorCopyFromTo")(source, target)


def _copy(function: str, tensor: Any, array: Array) -> None:
    address = ctypes.c_void_p(array.ctypes.data)
    tvm_ffi.get_global_func(function)(tensor, address, array.nbytes)
