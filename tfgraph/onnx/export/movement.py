"""Ops that move elements, in ONNX. May import: registry, emit, ir."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import numpy_helper

from tfgraph.ir import DType, as_dim, exact
from tfgraph.onnx.export.emit import DTYPES
from tfgraph.onnx.export.registry import exports
from tfgraph.ops.floats import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgraph.ir import Dim, Node, Value
    from tfgraph.onnx.export.emit import Emitter

_END = 2**63 - 1
"""As the end of a slice: that of the axis, whatever its size."""


@exports("reshape")
def _reshape(to: Emitter, node: Node, x: str) -> Any:
    """0 is the size of the operand's axis, one -1 what is left over."""
    source, target = node.inputs[0].type.shape, node.output.type.shape
    sizes: list[Dim] = []
    open_left = True
    for axis, size in enumerate(target):
        if size.is_const:
            sizes.append(size)
        elif axis < len(source) and source[axis] == size:
            sizes.append(as_dim(0))
        elif open_left:
            open_left = False
            sizes.append(as_dim(-1))
        else:
            sizes.append(size)
    return to.node("Reshape", x, to.sizes.shape(sizes))


@exports("transpose")
def _transpose(to: Emitter, node: Node, x: str) -> Any:
    perm = list(node.attrs["perm"])  # type: ignore[arg-type]
    return to.node("Transpose", x, perm=perm) if perm else to.node("Identity", x)


@exports("broadcast_to")
def _broadcast_to(to: Emitter, node: Node, x: str) -> Any:
    return expand(to, x, node.inputs[0].type.shape, node.output.type.shape)


def expand(to: Emitter, x: str, source: Sequence[Dim], target: Sequence[Dim]) -> Any:
    """The tensor under a shape that it broadcasts to: a 1 there keeps the size that it has."""
    added = len(target) - len(source)
    kept = [axis >= added and source[axis - added] == size for axis, size in enumerate(target)]
    sizes = [1 if keep else size for keep, size in zip(kept, target, strict=True)]
    return to.node("Expand", x, to.sizes.shape(sizes))


@exports("concat")
def _concat(to: Emitter, node: Node, *parts: str) -> Any:
    return to.node("Concat", *parts, axis=node.attrs["axis"])


@exports("slice")
def _slice(to: Emitter, node: Node, x: str) -> Any:
    axis, start, stop = (node.attrs[name] for name in ("axis", "start", "stop"))
    whole = node.inputs[0].type.shape[axis]  # type: ignore[index]
    end = as_dim(_END) if stop == whole else stop
    first, last = to.sizes.vector(start), to.sizes.vector(end)  # type: ignore[arg-type]
    return to.node("Slice", x, first, last, to.ints(axis))  # type: ignore[arg-type]


@exports("take")
def _take(to: Emitter, node: Node, x: str, indices: str) -> Any:
    return to.node("Gather", x, indices, axis=node.attrs["axis"])


@exports("take_at")
def _take_at(to: Emitter, node: Node, x: str, *indices: str) -> Any:
    """GatherND reads tuples of indices, which stand in its last axis."""
    given = [value.type for value in node.inputs[1:]]
    shape = node.output.type.shape
    shape = shape[: len(shape) - (node.inputs[0].type.rank - len(given))]
    columns: list[str] = []
    for index, type_ in zip(indices, given, strict=True):
        wide = (
            index
            if type_.dtype == DType.int64
            else to.node("Cast", index, dtype=DType.int64, to=DTYPES[DType.int64][0])
        )
        if type_.shape != shape:
            wide = expand(to, wide, type_.shape, shape)
        columns.append(to.node("Unsqueeze", wide, to.ints(len(shape))))
    pairs = to.node("Concat", *columns, axis=len(shape)) if len(columns) > 1 else columns[0]
    return to.node("GatherND", x, pairs)


@exports("embedding")
def _embedding(to: Emitter, node: Node, ids: str, table: str) -> Any:
    return to.node("Gather", table, ids, axis=0)


@exports("iota")
def _iota(to: Emitter, node: Node) -> Any:
    length = to.sizes.scalar(node.output.type.shape[0])
    zero, one = (to.scalar(n, DType.int64) for n in (0, 1))
    return to.node("Range", zero, length, one)


@exports("constant")
def _constant(to: Emitter, node: Node) -> Any:
    kind = node.output.type
    values = [float(exact(v)) for v in node.attrs["values"]]  # type: ignore[union-attr, arg-type]
    shape = tuple(map(int, kind.shape))
    array = np.array(values if kind.dtype.is_float else list(map(int, values)))
    tensor = numpy_helper.from_array(array.astype(numpy_dtype(kind.dtype)).reshape(shape))
    return to.node("Constant", dtype=kind.dtype, value=tensor)


@exports("full")
def _full(to: Emitter, node: Node) -> Any:
    return filled(to, node.output, node.attrs["value"])


def filled(to: Emitter, result: Value, value: Any) -> Any:
    """A tensor of that type whose elements are all `value`."""
    dtype, shape = result.type.dtype, result.type.shape
    if not shape:
        return to.scalar(value, dtype)
    number = exact(value)
    plain = float(number) if dtype.is_float else int(number.factor)
    one = numpy_helper.from_array(np.array([plain]).astype(numpy_dtype(dtype)))
    assert one.data_type == DTYPES[dtype][0]
    return to.node("ConstantOfShape", to.sizes.shape(shape), dtype=dtype, value=one)
