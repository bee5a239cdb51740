"""A safetensors file, or shards with an index, as a lazy mapping. May import: ops, ir,
runtime.files, errors.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np

from tfgraph.errors import Location, TfgraphError
from tfgraph.ir import DType
from tfgraph.ops.floats import numpy_dtype
from tfgraph.runtime.files import open_file, read_file

NDArray = np.ndarray[Any, Any]

_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
_DTYPES = {
    "F64": DType.float64,
    "F32": DType.float32,
    "F16": DType.float16,
    "BF16": DType.bfloat16,
    "I64": DType.int64,
    "I32": DType.int32,
    "I8": DType.int8,
    "U8": DType.uint8,
    "BOOL": DType.bool_,
}
_MAX_RANK = 32  # of NumPy's arrays
_MAX_SIZE = (1 << 63) - 1
MAX_HEADER = 100_000_000  # bytes, as in the safetensors library


@dataclass(frozen=True)
class Stored:
    """A tensor in a file: where its bytes stand and what they are."""

    file: Path
    dtype: DType
    shape: tuple[int, ...]
    start: int
    stop: int

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


class Checkpoint(Mapping[str, "NDArray"]):
    """The tensors of a `.safetensors` file, or of the shards that an `.index.json` lists, by the
    file's own names; memory-mapped, read-only.

    Raises TfgraphError that names the file, and the tensor, for a file that is missing, truncated,
    of another kind, or damaged.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._maps: dict[Path, mmap.mmap] = {}
        if self.path.suffix in _PICKLES:
            raise TfgraphError(
                f"{self.path.name} is a pickle, which can run code when it is read: refused",
                Location(str(self.path)),
                "convert it once with safetensors.torch.save_file(torch.load(..., "
                "weights_only=True), 'model.safetensors')",
            )
        if self.path.name.endswith(".index.json"):
            self.stored = _read_index(self.path)
        else:
            self.stored = _read_header(self.path)

    def __getitem__(self, name: str) -> NDArray:
        entry = self.stored[name]
        dtype = numpy_dtype(entry.dtype)
        count = (entry.stop - entry.start) // dtype.itemsize
        if not count:
            return np.zeros(entry.shape, dtype)
        if entry.file not in self._maps:
            with open_file(entry.file) as file:
                self._maps[entry.file] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        data: NDArray = np.frombuffer(self._maps[entry.file], dtype, count, entry.start)
        return data.reshape(entry.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)


def _read_header(path: Path) -> dict[str, Stored]:
    """Layout: u64 length of the header, the header in JSON, the tensors' bytes without gaps."""
    where = Location(str(path))
    try:
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            first = file.read(8)
            length = struct.unpack("<Q", first)[0] if len(first) == 8 else size
            if length > min(size - 8, MAX_HEADER):
                raise TfgraphError(
                    f"{path.name} is not a safetensors file, or is truncated: it has {size} bytes",
                    where,
                )
            header: Any = json.loads(file.read(length))
    except OSError as cause:
        raise TfgraphError(f"cannot read weights: {cause.strerror}", where) from cause
    except (ValueError, RecursionError) as cause:
        raise TfgraphError(f"{path.name}: the safetensors header is not JSON", where) from cause
    if not isinstance(header, dict):
        raise TfgraphError(f"{path.name}: the safetensors header is not an object", where)
    entries = cast("dict[str, Any]", header)
    entries.pop("__metadata__", None)
    found: dict[str, Stored] = {}
    for name, entry in entries.items():
        stored = _entry(path, name, entry, 8 + length)
        if stored.stop > size:
            raise TfgraphError(
                f"{path.name} is truncated: '{name}' ends at byte {stored.stop} of {size}", where
            )
        found[name] = stored
    return found


def _entry(path: Path, name: str, entry: Any, base: int) -> Stored:
    def damaged(why: str) -> TfgraphError:
        return TfgraphError(f"{path.name}: '{name}' {why}", Location(str(path)))

    try:
        kind, shape, (start, stop) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    except (KeyError, TypeError, ValueError) as cause:
        raise damaged("has a damaged entry in the header") from cause
    sizes = [*shape, start, stop]
    if not isinstance(kind, str) or any(type(n) is not int for n in sizes):  # true is no size
        raise damaged("has a damaged entry in the header")
    if kind not in _DTYPES:
        raise damaged(f"has the dtype {kind}, which is not supported")
    if len(shape) > _MAX_RANK or max(sizes) > _MAX_SIZE:
        raise damaged("has more axes or elements than an array can have")
    if min(sizes) < 0 or (stop - start) * 8 != prod(shape) * _DTYPES[kind].bits:
        raise damaged(f"has {stop - start} bytes, which do not hold {kind} {list(shape)}")
    return Stored(path, _DTYPES[kind], shape, base + start, base + stop)


def _read_index(path: Path) -> dict[str, Stored]:
    where = Location(str(path))
    try:
        files: dict[str, Any] = dict(json.loads(read_file(path, MAX_HEADER))["weight_map"])
    except OSError as cause:
        raise TfgraphError(f"cannot read weights: {cause.strerror}", where) from cause
    except (ValueError, TypeError, KeyError, RecursionError) as cause:
        raise TfgraphError(f"{path.name} is not an index: it has no weight_map", where) from cause
    for name, file in files.items():
        if not _is_inside(file):
            raise TfgraphError(
                f"{path.name}: '{name}' is in {file!r}, expected a file in the index's folder",
                where,
            )
    shards = {file: _read_header(path.parent / file) for file in dict.fromkeys(files.values())}
    for name, file in files.items():
        if name not in shards[file]:
            raise TfgraphError(f"{path.name}: '{name}' is not in {file}", where)
    return {name: shards[file][name] for name, file in files.items()}


def _is_inside(file: Any) -> bool:
    """Whether it is the path of a file that can't lead out of the folder where it starts."""
    if not isinstance(file, str) or "\0" in file:
        return False
    parts = Path(file).parts
    return bool(parts) and not Path(file).is_absolute() and ".." not in parts
