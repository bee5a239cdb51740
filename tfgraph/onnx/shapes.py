"""ONNX's operators that move elements, and those that compute shapes. May import: site, known,
dims, registry, ops, ir, errors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import Dim, DType, as_dim, product
from tfgraph.onnx import known as numbers
from tfgraph.onnx.dims import quotient
from tfgraph.onnx.file import Stored
from tfgraph.onnx.known import Known, known
from tfgraph.onnx.registry import translates
from tfgraph.onnx.site import Site, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front. Raises TfgraphError if there is none."""
    if not -rank <= axis < rank:
        raise TfgraphError(f"axis {axis} is out of range for rank {rank}")
    return axis % rank


def axes_of(at: Site, axes: Tensor | None, rank: int) -> tuple[int, ...]:
    """The axes that an input names, counted from the front, each once."""
    found = tuple(axis_of(a, rank) for a in at.ints(axes, "the axes")) if axes is not None else ()
    if len(set(found)) < len(found):
        raise TfgraphError(f"axes {list(found)} name one twice")
    return found


def ints(*values: int) -> Known:
    """A vector of i64."""
    return known(DType.int64, list(values))


def listed(name: str, given: Any, dtype: DType) -> Stored:
    """A tensor of numbers in an attribute."""
    array = np.array(given, object).astype(np.float64 if dtype.is_float else np.int64)
    array = array.astype(dtype.value)
    return Stored(name, dtype, array.shape, lambda: array)


@translates("Constant")
def _constant(
    at: Site,
    /,
    *,
    value: onnx.TensorProto | None = None,
    value_float: Any = None,
    value_floats: Any = None,
    value_int: Any = None,
    value_ints: Any = None,
) -> Any:
    if value is not None:
        stored = at.constant(value)
        assert isinstance(stored, Stored)
        return at.importer.elements(stored) if at.importer.is_own else stored
    floats, whole = (value_float, value_floats), (value_int, value_ints)
    for dtype, choices in ((DType.float32, floats), (DType.int64, whole)):
        for given in choices:
            if given is not None:
                return listed(at.node.output[0], given, dtype)
    raise TfgraphError("the constant has no value")


@translates("Shape")
def _shape(at: Site, x: Tensor, /, *, start: int = 0, end: int | None = None) -> Any:
    return known(DType.int64, list(at.shape(x)[slice(start, end)]))


@translates("Size")
def _size(at: Site, x: Tensor, /) -> Any:
    return known(DType.int64, product(at.shape(x)))


@translates("Reshape")
def _reshape(at: Site, x: Tensor, shape: Tensor, /, *, allowzero: int = 0) -> Any:
    source = at.shape(x)
    target: list[Dim] = []
    free: int | None = None
    for i, n in enumerate(at.dims(shape, "the shape")):
        if n.is_const and int(n) == -1:
            if free is not None:
                raise TfgraphError("two sizes of the shape are -1")
            free, n = i, as_dim(1)
        elif n.is_const and int(n) == 0 and not allowzero:
            if i >= len(source):
                raise TfgraphError(f"size {i} is that of the input, which has rank {len(source)}")
            n = source[i]
        target.append(n)
    if free is not None:
        rest = [n for i, n in enumerate(target) if i != free]
        found = quotient(source, rest)
        if found is None:
            why = f"{at.type(x)} does not divide into {_shown(rest)}"
            for a, b in zip(source, target[:free], strict=False):
                if _is_symbol(a) and _is_symbol(b):  # one size that has two names
                    at.require_equal(a, b, why)
            raise TfgraphError(why)
        target[free] = found
    return reshaped(at, x, target)


def reshaped(at: Site, x: Tensor, target: Sequence[Dim]) -> Any:
    """The value under another shape, where sizes that must be equal become so."""
    source = at.shape(x)
    if product(source) != product(target):
        why = f"cannot reshape {at.type(x)} to {_shown(target)}"
        left, right = list(source), list(target)
        for n in target:
            if n in left:
                left.remove(n)
                right.remove(n)
        if not at.sizes.can_equal(product(left), product(right)) and len(left) == len(right):
            for a, b in zip(left, right, strict=True):
                at.require_equal(a, b, why)
        at.require_equal(product(left), product(right), why)
    if tuple(target) == source:
        return x
    if len(target) <= 1 and all(n.is_const for n in target):
        moved = at.move(lambda a: a.reshape([int(n) for n in target]), x)
        if moved is not None:
            return moved
    return ops.reshape(at.tensor(x), shape=tuple(target))


def _is_symbol(size: Dim) -> bool:
    """Whether a size is a symbol alone."""
    return [as_dim(name) for name in size.symbols] == [size]


def _shown(sizes: Sequence[Dim]) -> str:
    return f"[{','.join(map(str, sizes))}]"


@translates("Flatten")
def _flatten(at: Site, x: Tensor, /, *, axis: int = 1) -> Any:
    source = at.shape(x)
    axis = axis + len(source) if axis < 0 else axis
    if not 0 <= axis <= len(source):
        raise TfgraphError(f"axis {axis} is out of range for rank {len(source)}")
    return reshaped(at, x, (product(source[:axis]), product(source[axis:])))


@translates("Squeeze", since=13)
def _squeeze(at: Site, x: Tensor, axes: Tensor | None = None, /) -> Any:
    source = at.shape(x)
    if axes is None:
        chosen = tuple(i for i, n in enumerate(source) if n == as_dim(1))
    else:
        chosen = axes_of(at, axes, len(source))
    for i in chosen:
        at.require_equal(source[i], as_dim(1), f"axis {i} is not of size 1")
    return reshaped(at, x, [n for i, n in enumerate(source) if i not in chosen])


@translates("Squeeze")
def _squeeze_11(at: Site, x: Tensor, /, *, axes: Any = None) -> Any:
    return _squeeze(at, x, None if axes is None else ints(*axes))


@translates("Unsqueeze", since=13)
def _unsqueeze(at: Site, x: Tensor, axes: Tensor, /) -> Any:
    source = list(at.shape(x))
    given = at.ints(axes, "the axes")
    for i in sorted(axes_of(at, axes, len(source) + len(given))):
        source.insert(i, as_dim(1))
    return reshaped(at, x, source)


@translates("Unsqueeze")
def _unsqueeze_11(at: Site, x: Tensor, /, *, axes: Any) -> Any:
    return _unsqueeze(at, x, ints(*axes))


@translates("Transpose")
def _transpose(at: Site, x: Tensor, /, *, perm: Any = None) -> Any:
    rank = len(at.shape(x))
    perm = tuple(reversed(range(rank))) if perm is None else tuple(axis_of(p, rank) for p in perm)
    if rank <= 1:
        return x
    sizes: list[Dim] = [at.shape(x)[i] for i in perm]
    if all(n.is_const for n in sizes) and not all(n.terms for n in sizes):
        return Known(at.type(x).dtype, np.empty(tuple(map(int, sizes)), object))
    return ops.transpose(at.tensor(x), perm=perm)


@translates("Expand")
def _expand(at: Site, x: Tensor, shape: Tensor, /) -> Any:
    target = at.broadcast(at.shape(x), at.dims(shape, "the shape"))
    return broadcast_to(at, x, target)


def broadcast_to(at: Site, x: Tensor, target: tuple[Dim, ...]) -> Any:
    """The value repeated up to a shape."""
    if target == at.shape(x):
        return x
    if len(target) == 1 and target[0].is_const and int(target[0]) <= numbers.LONGEST:
        moved = at.move(lambda a: np.broadcast_to(a, (int(target[0]),)), x)
        if moved is not None:
            return moved
    return ops.broadcast_to(at.tensor(x), shape=target)


@translates("Tile")
def _tile(at: Site, x: Tensor, repeats: Tensor, /) -> Any:
    source, times = at.shape(x), at.dims(repeats, "the repeats")
    if len(times) != len(source):
        raise TfgraphError(f"{len(times)} repeats for {at.type(x)}")
    if all(n.is_const for n in times) and len(source) <= 1:
        moved = at.move(lambda a: np.tile(a, [int(n) for n in times]), x)
        if moved is not None:
            return moved
    value, one = at.tensor(x), as_dim(1)
    apart = tuple(n for size in source for n in (one, size))
    wide = tuple(n for pair in zip(times, source, strict=True) for n in pair)
    joined = tuple(a * b for a, b in zip(times, source, strict=True))
    if joined == source:
        return value
    value = ops.broadcast_to(ops.reshape(value, shape=apart), shape=wide)
    return ops.reshape(value, shape=joined)


@translates("Concat")
def _concat(at: Site, *parts: Tensor, axis: int) -> Any:
    parts = tuple(p for p in parts if all(n.terms for n in at.shape(p))) or parts[:1]
    at_axis = axis_of(axis, len(at.shape(parts[0])))
    if len(at.shape(parts[0])) == 1:
        joined = at.move(np.concatenate, *parts) if parts[1:] else None
        if joined is not None:
            return at.kept(joined, lambda: ops.concat(*map(at.tensor, parts), axis=0), *parts)
    if len(parts) == 1:
        return parts[0]
    first = at.shape(parts[0])
    for part in parts[1:]:
        if len(at.shape(part)) != len(first):
            raise TfgraphError(f"ranks differ: {at.type(parts[0])} and {at.type(part)}")
        for i, (a, b) in enumerate(zip(first, at.shape(part), strict=True)):
            if i != at_axis:
                at.require_equal(a, b)
    return ops.concat(*map(at.tensor, parts), axis=axis)


@translates("ConstantOfShape")
def _constant_of_shape(at: Site, shape: Tensor, /, *, value: onnx.TensorProto | None = None) -> Any:
    dims = at.dims(shape, "the shape")
    given: Tensor = (
        known(DType.float32, 0) if value is None else reshaped(at, at.constant(value), ())
    )
    if any(not n.terms for n in dims):
        return known(at.type(given).dtype, [])
    number, dtype = at.scalar(given), at.type(given).dtype
    if number is None or not dims:
        return broadcast_to(at, given, dims)

    def make() -> Any:
        return ops.full(shape=dims, value=number, dtype=dtype)

    found = broadcast_to(at, given, dims) if len(dims) == 1 and dims[0].is_const else None
    return replace(found, make=at.later(make)) if isinstance(found, Known) else make()


@translates("Trilu")
def _trilu(at: Site, x: Tensor, k: Tensor | None = None, /, *, upper: int = 1) -> Any:
    value = at.tensor(x)
    rows, columns = value.shape[-2:]
    shift = 0 if k is None else at.ints(k, "the diagonal")[0]
    i = ops.add(ops.reshape(ops.iota(length=rows), shape=(rows, 1)), shift)
    j = ops.reshape(ops.iota(length=columns), shape=(1, columns))
    keep: Any = ops.logical_not(ops.less(j, i) if upper else ops.less(i, j))
    if value.dtype == DType.bool_:
        return ops.logical_and(value, keep)
    return ops.where(keep, value, ops.full(shape=(), value=0, dtype=value.dtype))
