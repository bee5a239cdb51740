"""Where the bytes of initialisers stand in an ONNX file, so that they are mapped and never copied.

An ONNX file is one protobuf message. Parsing all of it would copy every weight; so the raw bytes of
initialisers are left out of what the parser gets, and their places kept. The encoding is that of
https://protobuf.dev/programming-guides/encoding. May import: errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_GRAPH = 7  # of ModelProto
_INITIALIZER = 5  # of GraphProto
_RAW_DATA = 9  # of TensorProto
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SMALL = 256  # bytes: not worth leaving out

Span = tuple[int, int]


@dataclass(frozen=True)
class Field:
    """A field of a message: its number, and where it and its content stand in the file."""

    number: int
    wire_type: int
    start: int
    content: int
    stop: int


def skim(data: memoryview) -> tuple[bytes, dict[int, Span]]:
    """The message without the raw bytes of its graph's initialisers, and where those stand, by the
    initialiser's place in the list. Raises TfgraphError where it is no message."""
    spans: dict[int, Span] = {}
    count = 0

    def tensor(field: Field) -> bytes:
        def leave_out(inner: Field) -> bytes | None:
            if inner.number != _RAW_DATA or inner.wire_type != _BYTES:
                return None
            if inner.stop - inner.content < _SMALL:
                return None
            spans[count] = (inner.content, inner.stop)
            return b""

        return _rewritten(data, field.content, field.stop, leave_out)

    def initializer(field: Field) -> bytes | None:
        nonlocal count
        if field.number != _INITIALIZER or field.wire_type != _BYTES:
            return None
        content = tensor(field)
        count += 1
        return _message(_INITIALIZER, content)

    def graph(field: Field) -> bytes | None:
        if field.number != _GRAPH or field.wire_type != _BYTES:
            return None
        return _message(_GRAPH, _rewritten(data, field.content, field.stop, initializer))

    return _rewritten(data, 0, len(data), graph), spans


def _rewritten(
    data: memoryview, start: int, stop: int, change: Callable[[Field], bytes | None]
) -> bytes:
    """The message between two places, with fields as `change` has them; None keeps one."""
    parts: list[bytes | memoryview] = []
    for field in _fields(data, start, stop):
        changed = change(field)
        parts.append(data[field.start : field.stop] if changed is None else changed)
    return b"".join(parts)


def _fields(data: memoryview, start: int, stop: int) -> Iterator[Field]:
    at = start
    while at < stop:
        first = at
        key, at = _varint(data, at, stop)
        number, wire_type = key >> 3, key & 7
        content = at
        if wire_type == _VARINT:
            _, at = _varint(data, at, stop)
        elif wire_type == _BYTES:
            length, content = _varint(data, at, stop)
            at = content + length
        elif wire_type in (_FIXED64, _FIXED32):
            at += 8 if wire_type == _FIXED64 else 4
        else:
            raise _damaged()
        if at > stop or not number:
            raise _damaged()
        yield Field(number, wire_type, first, content, at)


def _varint(data: memoryview, at: int, stop: int) -> tuple[int, int]:
    """An integer in groups of seven bits, and the place behind it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= stop:
            break
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise _damaged()


def _message(number: int, content: bytes) -> bytes:
    return _encoded(number << 3 | _BYTES) + _encoded(len(content)) + content


def _encoded(value: int) -> bytes:
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def _damaged() -> TfgraphError:
    return TfgraphError("the file is truncated or damaged, or no ONNX model")
