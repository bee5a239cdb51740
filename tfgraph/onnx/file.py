"""An ONNX file: its graph, and its weights as lazy views.

What is stored in the file or beside it is memory-mapped; arrays are views, or copies made when they
are asked for where the bytes are not aligned. Everything that a file says is checked before it is
used. May import: wire, notes, ops, ir, runtime.files, errors.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from tfgraph.errors import Location, TfgraphError
from tfgraph.ir import DType
from tfgraph.ir.legal import HIGHEST_RANK
from tfgraph.onnx.notes import read_notes
from tfgraph.onnx.wire import skim
from tfgraph.ops.floats import numpy_dtype
from tfgraph.runtime.files import open_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.onnx.notes import Notes

NDArray = np.ndarray[Any, Any]

_T = onnx.TensorProto
DTYPES: dict[int, DType] = {
    _T.FLOAT: DType.float32,
    _T.DOUBLE: DType.float64,
    _T.FLOAT16: DType.float16,
    _T.BFLOAT16: DType.bfloat16,
    _T.INT64: DType.int64,
    _T.INT32: DType.int32,
    _T.INT8: DType.int8,
    _T.UINT8: DType.uint8,
    _T.BOOL: DType.bool_,
}
OLDEST, NEWEST = 1, onnx.defs.onnx_opset_version()
DOMAINS = ("", "ai.onnx")
_HINT = "onnx.checker.check_model says more about a file that is no valid model"


def element_type(number: int, what: str) -> DType:
    """The element type of ONNX's number. Raises TfgraphError for those that the IR has not."""
    if number in DTYPES:
        return DTYPES[number]
    known = _T.DataType.items()
    name = next((name for name, value in known if value == number), str(number))
    raise TfgraphError(f"{what} is of type {name.lower()}, which the IR does not have")


@dataclass(frozen=True)
class Stored:
    """A tensor of a file: its name, type, and how to get its elements, which may be unaligned."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    read: Callable[[], NDArray] = field(compare=False)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)


class Bytes:
    """Files around a model, each mapped once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._maps: dict[Path, memoryview] = {}

    def view(self, path: Path) -> memoryview:
        """All bytes of a file. Raises TfgraphError where it cannot be read."""
        if path not in self._maps:
            try:
                with open_file(path) as file:
                    whole: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                    self._maps[path] = memoryview(whole)
            except ValueError:  # an empty file
                self._maps[path] = memoryview(b"")
            except OSError as cause:
                what = f"cannot read {path.name}: {cause.strerror}"
                raise TfgraphError(what, Location(str(path))) from cause
        return self._maps[path]

    def beside(self, location: str, what: str) -> Path:
        """A file of external data. Raises TfgraphError where it is not in the model's folder."""
        inside = Path(location)
        if not inside.parts or "\0" in location or inside.is_absolute() or ".." in inside.parts:
            raise TfgraphError(f"{what} is in {location!r}, outside of the model's folder")
        found = self.path.parent / inside
        try:
            real, folders = found.resolve(), {self.path.parent.resolve()}
        except (OSError, RuntimeError) as cause:
            raise TfgraphError(f"{what} is in {location!r}: {cause}") from cause
        if self.path.is_symlink():  # in a cache the model and its data are links to one folder
            folders.add(self.path.resolve().parent)
        if not any(real.is_relative_to(folder) for folder in folders):
            raise TfgraphError(f"{what} is in {location!r}, a link out of the model's folder")
        if not found.is_file():
            raise TfgraphError(f"{what} is in {location!r}: there is no such file")
        return found


class Weights(Mapping[str, "NDArray"]):
    """Arrays of parameters by name; each is read when it is asked for."""

    def __init__(self) -> None:
        self._reads: dict[str, Callable[[], NDArray]] = {}

    def add(self, name: str, read: Callable[[], NDArray]) -> None:
        """From now on `name` is what `read` gives."""
        self._reads[name] = read

    def reader(self, name: str) -> Callable[[], NDArray]:
        """What gives the array of a name."""
        return self._reads[name]

    def __getitem__(self, name: str) -> NDArray:
        array = self._reads[name]()
        return array if array.flags.aligned else array.copy()

    def __iter__(self) -> Iterator[str]:
        return iter(self._reads)

    def __len__(self) -> int:
        return len(self._reads)


@dataclass(frozen=True)
class File:
    """A model as it was read: its graph, the opset, the stored tensors by name, and what `export`
    noted."""

    path: Path
    graph: onnx.GraphProto
    opset: int
    stored: Mapping[str, Stored]
    notes: Notes | None = None


def read_file(path: str | Path) -> File:
    """Read an ONNX file. Raises TfgraphError for one that is missing, damaged, too old, or made of
    other operators than those of ONNX."""
    path = Path(path)
    where = Location(str(path))
    try:
        data = Bytes(path)
        skeleton, spans = skim(data.view(path))
        try:
            model = onnx.ModelProto.FromString(skeleton)
        except DecodeError as cause:
            raise TfgraphError("the file is truncated or damaged, or no ONNX model") from cause
        _check_texts(model)
        if model.functions:
            model = _inlined(model)
        if not model.graph.node and not model.graph.output:
            raise TfgraphError("the file has no graph: it is empty, or no ONNX model")
        opset = _opset(model)
        stored: dict[str, Stored] = {}
        for i, proto in enumerate(model.graph.initializer):
            if proto.name in stored:
                raise TfgraphError(f"there are two initialisers called '{proto.name}'")
            stored[proto.name] = _stored(proto, data, spans.get(i))
        if model.graph.sparse_initializer:
            raise TfgraphError("sparse initialisers are not supported")
        notes = read_notes({prop.key: prop.value for prop in model.metadata_props}, where)
    except TfgraphError as error:
        error.location = error.location or where
        raise
    return File(path, model.graph, opset, stored, notes)


def _check_texts(message: Any) -> None:
    """Raise TfgraphError for a name that is no text: protobuf gives the bytes of one that is not in
    UTF-8, where all else here expects a str."""
    for kind, value in message.ListFields():
        if kind.type == kind.TYPE_MESSAGE:
            for inner in (value,) if hasattr(value, "ListFields") else value:
                _check_texts(inner)
        elif kind.type == kind.TYPE_STRING:
            for text in (value,) if isinstance(value, str | bytes) else value:
                if not isinstance(text, str):
                    what = f"the field '{kind.name}' of a {type(message).__name__}"
                    raise TfgraphError(f"{what} is not text in UTF-8: {text!r:.60}", hint=_HINT)


def _inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    from onnx import inliner

    try:
        return inliner.inline_local_functions(model)
    except Exception as cause:  # whatever the library raises
        raise TfgraphError(f"its functions cannot be inlined: {cause}", hint=_HINT) from cause


def _opset(model: onnx.ModelProto) -> int:
    found = [entry.version for entry in model.opset_import if entry.domain in DOMAINS]
    if len(found) != 1:
        raise TfgraphError("the file does not say which version of ONNX's operators it uses")
    if not OLDEST <= found[0] <= NEWEST:
        raise TfgraphError(
            f"the file uses version {found[0]} of ONNX's operators: {OLDEST} to {NEWEST} are known",
            hint="onnx.version_converter.convert_version makes a newer file",
        )
    return int(found[0])


def from_proto(proto: onnx.TensorProto, what: str, data: Bytes | None = None) -> Stored:
    """The tensor in an attribute, which lies in the message."""
    return _stored(proto, data, None, what)


def _stored(
    proto: onnx.TensorProto, data: Bytes | None, span: tuple[int, int] | None, what: str = ""
) -> Stored:
    what = what or f"the initialiser '{proto.name}'"
    dtype, shape = element_type(proto.data_type, what), tuple(proto.dims)
    if len(shape) > HIGHEST_RANK or any(size < 0 for size in shape):
        raise TfgraphError(f"{what} has an impossible shape")
    count = prod(shape)
    needed = count * numpy_dtype(dtype).itemsize
    if proto.data_location == _T.EXTERNAL:
        if data is None:
            raise TfgraphError(f"{what} is in another file, which only initialisers can be")
        view = _external(proto, data, needed, what)
    elif span is not None and data is not None:
        view = data.view(data.path)[span[0] : span[1]]
    elif proto.raw_data:
        view = memoryview(proto.raw_data)
    else:
        return _listed(proto, dtype, shape, what)
    if len(view) != needed:
        raise TfgraphError(f"{what} has {len(view)} bytes, expected {needed} for {list(shape)}")

    def read() -> NDArray:
        array: NDArray = np.frombuffer(view, numpy_dtype(dtype).newbyteorder("<"))
        return array.reshape(shape)

    return Stored(proto.name, dtype, shape, read)


def _listed(proto: onnx.TensorProto, dtype: DType, shape: tuple[int, ...], what: str) -> Stored:
    """A tensor whose numbers the message lists one by one."""
    fields = {
        DType.float32: proto.float_data,
        DType.float64: proto.double_data,
        DType.int64: proto.int64_data,
    }
    listed: Any = fields.get(dtype, proto.int32_data)
    if len(listed) != prod(shape):
        raise TfgraphError(f"{what} has {len(listed)} elements, expected {prod(shape)}")
    try:
        array = onnx.numpy_helper.to_array(proto).astype(numpy_dtype(dtype), copy=False)
    except (ValueError, TypeError, OverflowError) as cause:
        raise TfgraphError(f"{what} has elements that are not {dtype.value}") from cause
    return Stored(proto.name, dtype, shape, lambda: array)


def _external(proto: onnx.TensorProto, data: Bytes, needed: int, what: str) -> memoryview:
    entries = {entry.key: entry.value for entry in proto.external_data}
    view = data.view(data.beside(entries.get("location", ""), what))
    try:
        start = int(entries.get("offset", "0") or 0)
        length = int(entries.get("length", "") or needed)
    except ValueError as cause:
        raise TfgraphError(f"{what} is at no place in its file") from cause
    if start < 0 or length < 0 or start + length > len(view):
        raise TfgraphError(
            f"{what} is at bytes {start} to {start + length} of {entries.get('location')}, "
            f"which has {len(view)}"
        )
    return view[start : start + length]
