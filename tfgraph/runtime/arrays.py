"""What a caller gives for an array, read as NumPy reads it or refused: never misread, converted or
copied. And arrays of our own, as kernels want them. May import: numpy, errors.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

Array = np.ndarray[Any, np.dtype[Any]]

ALIGNMENT = 64
"""Bytes. Kernels load whole cache lines, so every buffer they see starts at a multiple of this."""

_KNOWN: tuple[type, ...] = (np.ndarray, np.generic)

# Device types of DLPack: those whose memory the CPU reads (its own, and what CUDA and ROCm pin),
# and the names of others.
_READABLE = {1, 3, 11}
_DEVICES = {2: "CUDA", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 13: "CUDA", 14: "oneAPI"}


def as_array(given: Any, what: str, dtype: str, hint: str | None = None) -> Array:
    """The memory of a NumPy array or scalar or of a DLPack tensor, as a plain array.

    It has that dtype in this machine's byte order; its strides and alignment may be any. `what` is
    what errors call it, and `hint` what they advise where it must not be converted. Raises
    TfgraphError for anything else.
    """
    if _is_masked(given):
        raise TfgraphError(
            f"{what} is a masked array, whose mask would be lost",
            hint=hint or "fill it with .filled(VALUE), and pass the mask as an input of its own",
        )
    array = np.asarray(given) if isinstance(given, _KNOWN) else _dlpack(given, what, dtype, hint)
    if array.dtype != np.dtype(dtype):  # as is one of another byte order, '>f4'
        raise TfgraphError(
            f"{what} is {array.dtype}, expected {dtype}",
            hint=hint or f"convert it with .astype('{dtype}')",
        )
    return array


def _is_masked(given: Any) -> bool:
    """Whoever made a masked array has imported what makes them, which takes a while."""
    masked = sys.modules.get("numpy.ma")
    return masked is not None and isinstance(given, masked.MaskedArray)


def _dlpack(given: Any, what: str, dtype: str, hint: str | None) -> Array:
    if isinstance(given, type) or not hasattr(given, "__dlpack__"):
        makes = f"numpy.asarray(x, '{dtype}') makes one"
        numbers = isinstance(given, list | tuple | int | float)
        raise TfgraphError(
            f"{what} is a {type(given).__name__}, expected an array",
            hint=hint or (makes if numbers else "NumPy arrays and DLPack tensors are taken"),
        )
    try:
        # Asked here: NumPy reads the memory of a device's tensor as it were its own.
        device = int(given.__dlpack_device__()[0])
        if device not in _READABLE:
            raise TfgraphError(
                f"{what} is on a device, {_DEVICES.get(device, f'DLPack type {device}')}; "
                "expected memory of the CPU",
                hint="copy it first, in PyTorch by .cpu()",
            )
        return np.from_dlpack(given)
    except TfgraphError:
        raise
    except Exception as cause:  # whatever the other library raises
        raise TfgraphError(
            f"{what} cannot be read as an array: {_told(cause)}", hint="pass it as a NumPy array"
        ) from cause


def _told(cause: Exception) -> str:
    """What it says, with its name where that alone would say little."""
    plain = (AttributeError, BufferError, RuntimeError, TypeError, ValueError)
    return str(cause) if isinstance(cause, plain) else f"{type(cause).__name__}: {cause}"


def aligned_empty(shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """An uninitialised C-contiguous array that starts at a multiple of 64 bytes, also where it has
    no elements: a slice of none would start where its memory does."""
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return np.ndarray(shape, dtype, memory, start)
