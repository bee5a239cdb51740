"""ONNX's matrix products and norms. May import: site, shapes, registry, ops, ir."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import as_dim, exact, product
from tfgraph.onnx.registry import translates
from tfgraph.onnx.shapes import axis_of
from tfgraph.onnx.site import Site, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable


@translates("MatMul")
def _matmul(at: Site, a: Tensor, b: Tensor, /) -> Any:
    """As NumPy's: a vector is a row on the left and a column on the right."""
    x, y = at.tensor(a), at.tensor(b)
    return product_of(at, x, y)


def product_of(at: Site, x: Any, y: Any) -> Any:
    """np.matmul of two tensors."""
    if not x.shape or not y.shape:
        raise TfgraphError(f"expected vectors or matrices, got {x.type} and {y.type}")
    row, column = len(x.shape) == 1, len(y.shape) == 1
    x = ops.reshape(x, shape=(1, *x.shape)) if row else x
    y = ops.reshape(y, shape=(*y.shape, 1)) if column else y
    at.require_equal(x.shape[-1], y.shape[-2])
    at.broadcast(x.shape[:-2] or (as_dim(1),), y.shape[:-2] or (as_dim(1),))
    z = ops.matmul(x, y) if x.dtype.is_float else _integer_product(x, y)
    shape = list(z.shape)
    if column:
        del shape[-1]
    if row:
        del shape[-1 if column else -2]
    return z if len(shape) == len(z.shape) else ops.reshape(z, shape=tuple(shape))


def _integer_product(x: Any, y: Any) -> Any:
    """The sum over k of x[..., m, k, 1] * y[..., 1, k, n]."""
    columns = ops.reshape(x, shape=(*x.shape, 1))
    rows = ops.reshape(y, shape=(*y.shape[:-2], 1, *y.shape[-2:]))
    return ops.sum_(ops.mul(columns, rows), axis=-2)


@translates("Gemm")
def _gemm(
    at: Site,
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    /,
    *,
    alpha: Any = 1,
    beta: Any = 1,
    transA: int = 0,
    transB: int = 0,
) -> Any:
    """alpha A B + beta C."""
    x, y = at.tensor(a), at.tensor(b)
    if len(x.shape) != 2 or len(y.shape) != 2:
        raise TfgraphError(f"expected matrices, got {x.type} and {y.type}")
    x = ops.transpose(x, perm=(1, 0)) if transA else x
    y = ops.transpose(y, perm=(1, 0)) if transB else y
    at.require_equal(x.shape[1], y.shape[0])
    z: Any = ops.matmul(x, y)
    z = z if exact(alpha) == exact(1) else z * alpha
    if c is None:
        return z
    added = at.tensor(c)
    at.broadcast(z.shape, added.shape)
    return z + (added if exact(beta) == exact(1) else added * beta)


@translates("LayerNormalization")
def _layer_normalization(
    at: Site,
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    /,
    *,
    axis: int = -1,
    epsilon: Any = 1e-5,
    stash_type: int = 1,
) -> Any:
    value = at.tensor(x)
    rows, back = _last_axes(value, axis)
    s, b = _row(at, scale, rows), _row(at, bias, rows)
    y = back(ops.layer_norm(rows, s if not _wide(s) else None, eps=epsilon)) if _wide(s) else None
    if y is None and not _wide(b):
        y = back(ops.layer_norm(rows, s, b, eps=epsilon))
    elif y is None:
        y = back(ops.layer_norm(rows, s, eps=epsilon)) + b
    else:
        y = y * s + b if b is not None else y * s
    if not (at.wants(1) or at.wants(2)):
        return y
    mean = ops.mean(rows, axis=-1, keepdims=True)
    centered = ops.sub(rows, mean)
    variance = ops.mean(ops.mul(centered, centered), axis=-1, keepdims=True)
    deviation = ops.div(1, ops.sqrt(ops.add(variance, epsilon)))
    kept = axis_of(axis, len(value.shape))
    shape = tuple(n if i < kept else as_dim(1) for i, n in enumerate(value.shape))
    return y, ops.reshape(mean, shape=shape), ops.reshape(deviation, shape=shape)


def _last_axes(x: Any, axis: int) -> tuple[Any, Callable[[Any], Any]]:
    """The axes from `axis` on as one, and the way back."""
    shape, axis = x.shape, axis_of(axis, len(x.shape))

    def back(y: Any) -> Any:
        return y if y.shape == shape else ops.reshape(y, shape=shape)

    rows = (*shape[:axis], product(shape[axis:]))
    return x if rows == shape else ops.reshape(x, shape=rows), back


def _row(at: Site, x: Tensor | None, rows: Any) -> Any:
    """A scale or bias as a vector of the width of the rows; as it is where it is none."""
    if x is None:
        return None
    value, width = at.tensor(x), rows.shape[-1]
    if product(value.shape) == width and width != as_dim(1):
        return value if len(value.shape) == 1 else ops.reshape(value, shape=(width,))
    return ops.broadcast_to(value, shape=(width,)) if len(value.shape) <= 1 else value


def _wide(row: Any) -> bool:
    return row is not None and len(row.shape) != 1


@translates("RMSNormalization", since=23)
def _rms_normalization(
    at: Site,
    x: Tensor,
    scale: Tensor,
    /,
    *,
    axis: int = -1,
    epsilon: Any = 1e-5,
    stash_type: int = 1,
) -> Any:
    value = at.tensor(x)
    rows, back = _last_axes(value, axis)
    s = _row(at, scale, rows)
    if _wide(s):
        return back(ops.rms_norm(rows, eps=epsilon)) * s
    return back(ops.rms_norm(rows, s, eps=epsilon))


@translates("BatchNormalization", since=7)
def _batch_normalization(
    at: Site,
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    /,
    *,
    epsilon: Any = 1e-5,
    momentum: Any = 0.9,
    spatial: int = 1,
    training_mode: int = 0,
) -> Any:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, each channel with its own numbers: x
    times one row, plus another, both made of weights alone."""
    if training_mode:
        raise TfgraphError("a norm over batches in training is not supported")
    if not spatial:
        raise TfgraphError("a norm of every element by itself is not supported")
    value = at.tensor(x)
    if len(value.shape) < 2:
        raise TfgraphError(f"expected [batch, channels, ...], got {value.type}")
    rows: list[Any] = [at.tensor(row) for row in (scale, bias, mean, variance)]
    for row in rows:
        at.require_equal(product(row.shape), value.shape[1], "a number for each channel")
    s, b, m, v = rows
    factor = ops.div(s, ops.sqrt(ops.add(v, epsilon)))
    shift = ops.sub(b, ops.mul(m, factor))
    shape = (1, value.shape[1], *[1] * (len(value.shape) - 2))
    dtype = value.dtype
    factor, shift = (ops.reshape(r, shape=shape) for r in (factor, shift))
    if factor.dtype != dtype:
        factor, shift = (ops.cast(r, dtype=dtype) for r in (factor, shift))
    return ops.add(ops.mul(value, factor), shift)
