"""The weights file: safetensors, mapped into memory rather than read.

Layout: eight bytes with the length of a JSON header, the header, the tensors. May import: numpy,
files, the standard library, errors.
"""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tfgraph.errors import TfgraphError
from tfgraph.runtime.files import open_file

if TYPE_CHECKING:
    from pathlib import Path

Array = np.ndarray[Any, np.dtype[Any]]

DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
MAX_HEADER = 100_000_000
_MAX_RANK = 32  # of NumPy's arrays


def map_tensors(path: Path) -> dict[str, Array]:
    """The tensors of a file by name, mapped copy-on-write.

    Raises TfgraphError, naming the file, where it is missing, truncated or malformed.
    """
    try:
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, MAX_HEADER):
                raise TfgraphError(f"{path}: truncated, or not a safetensors file")
            header = json.loads(file.read(length))
    except OSError as cause:
        raise TfgraphError(f"{path}: {cause.strerror}") from cause
    except (ValueError, RecursionError) as cause:
        raise TfgraphError(f"{path}: malformed header: {cause}") from cause
    if not isinstance(header, dict):
        raise TfgraphError(f"{path}: malformed header: not an object")
    entries = cast("dict[str, Any]", header)
    entries.pop("__metadata__", None)
    start = 8 + length
    memory = np.memmap(path, np.uint8, mode="c", offset=0) if entries else np.empty(0, np.uint8)
    tensors: dict[str, Array] = {}
    for name, entry in entries.items():
        try:
            dtype = np.dtype(DTYPES[entry["dtype"]])
            shape = tuple(map(_size, entry["shape"]))
            first, last = map(_size, entry["data_offsets"])
        except (KeyError, TypeError, ValueError) as cause:
            raise TfgraphError(f"{path}: malformed entry '{name}'") from cause
        if (
            len(shape) > _MAX_RANK
            or not first <= last <= size - start
            or last - first != math.prod(shape) * dtype.itemsize
        ):
            raise TfgraphError(f"{path}: '{name}' does not fit: truncated or malformed")
        data = memory[start + first : start + last].view(dtype).reshape(shape)
        tensors[name] = np.asarray(data)
    return tensors


def _size(number: Any) -> int:
    """A size or offset as it stands in a header. Raises ValueError for any other value."""
    if type(number) is not int or not 0 <= number < 1 << 63:  # true is no size
        raise ValueError(f"{number!r} is not a size")
    return number
