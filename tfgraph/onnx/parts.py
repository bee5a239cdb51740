"""Tensors of an ONNX file that are made of smaller or plainer ones: these become the weights.

A bias and a causal mask that were added up are told apart, slopes times distances (ALiBi) become
that product, a table of two equal halves is made of one. All of these are exact. May import: file,
site, constants, ops, ir.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph import ops
from tfgraph.ir import DType
from tfgraph.ir.mask import dense
from tfgraph.onnx.constants import LARGEST, near_diagonal, positions
from tfgraph.onnx.site import literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.onnx.file import Stored

    NDArray = np.ndarray[Any, Any]
    MakeParam = Callable[[Stored], Any]

HIDES = -1e4
"""Numbers up to this one hide scores they are added to, as `recover-masks` reads them."""


def of_parts(x: Stored, param: MakeParam) -> Any:
    """The value of a tensor of floats, of several elements, from parameters that `param` makes of
    its parts; None for others. Weights are told from them by a few elements, and not read."""
    if len(x.shape) < 2:
        return None
    found = _banded(x, param)
    found = _sloped(x, x.read(), param, np.zeros((), bool)) if found is None else found
    return _repeated(x, param) if found is None else found


def _banded(x: Stored, param: MakeParam) -> Any:
    """A least number outside of a band over the last two axes, others inside: a choice by
    positions, or a mask, of what is 0 outside."""
    array = x.read()
    matrix = array.reshape(-1, *x.shape[-2:])[0]
    least = min(matrix[0, -1], matrix[-1, 0])
    hidden = matrix == least if least <= HIDES and x.size <= LARGEST else None
    if hidden is None or hidden.all() or ((array == least) != hidden).any():
        return None
    shown = near_diagonal(~hidden)
    if shown is None:
        return None

    def read() -> NDArray:
        whole = x.read()
        return np.where(hidden, whole.dtype.type(0), whole)

    rest = _sloped(x, array, param, hidden)
    rest = literal(read(), x.dtype) if rest is None else rest
    rest = param(replace(x, read=read)) if rest is None else rest
    if np.isneginf(float(least)):  # which the IR has in masks alone
        return ops.mask(rest, dense(shown))
    number = literal(np.asarray(least), x.dtype)
    return ops.where(shown, rest, number)


def _sloped(x: Stored, array: NDArray, param: MakeParam, hidden: NDArray) -> Any:
    """A slope for each head times j - i, in [..., head, query, key], wherever it is not hidden."""
    size = x.shape[-1]
    if len(x.shape) < 3 or size == 1 or x.size != x.shape[-3] * size**2:
        return None
    if x.size > LARGEST or array.reshape(-1)[0] != 0:  # as weights
        return None
    heads = array.reshape(-1, size, size)
    far = np.array(range(size)) - np.array(range(size))[:, None]
    slopes = -heads[:, 1:2, :1]
    with np.errstate(invalid="ignore", over="ignore"):
        product = slopes * far.astype(heads.dtype)
    same = (heads == product) & (np.signbit(heads) == np.signbit(product))
    if not (same | hidden).all():
        return None
    each = param(replace(x, shape=slopes.shape, read=lambda: slopes))
    bias = ops.mul(each, ops.cast(positions(far, DType.int64), dtype=x.dtype))
    return ops.reshape(bias, shape=x.shape)


def _repeated(x: Stored, param: MakeParam) -> Any:
    """A table of two equal halves, or of equal pairs, as cosines of rotary positions are: made of a
    table of one half."""
    if x.shape[-1] % 2:
        return None
    shape = (*x.shape[:-1], x.shape[-1] // 2)
    halves, pairs = (*shape[:-1], 2, shape[-1]), (*shape, 2)
    if _agree(x.read().reshape(halves), -2):
        part = param(replace(x, shape=shape, read=_first(x, halves, -2)))
        return ops.concat(part, part, axis=-1)
    if _agree(x.read().reshape(pairs), -1):
        part = param(replace(x, shape=shape, read=_first(x, pairs, -1)))
        wide = ops.broadcast_to(ops.reshape(part, shape=(*shape, 1)), shape=pairs)
        return ops.reshape(wide, shape=x.shape)
    return None


def _agree(array: NDArray, axis: int) -> bool:
    """Whether the two slices along an axis are equal; weights differ in their first rows."""
    first, second = np.moveaxis(array, axis, 0)
    row = (0,) * (first.ndim - 1)
    return bool((first[row] == second[row]).all() and (first == second).all())


def _first(x: Stored, shape: tuple[int, ...], axis: int) -> Callable[[], NDArray]:
    """What gives the first slice of a tensor under another shape."""
    return lambda: np.take(x.read().reshape(shape), 0, axis=axis)
