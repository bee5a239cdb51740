"""ONNX's matrix products, convolution and norms. May import: site, shapes, registry, ops, ir."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import as_dim, exact, product
from tfgraph.onnx.registry import translates
from tfgraph.onnx.shapes import axis_of
from tfgraph.onnx.site import Site, Tensor
from tfgraph.onnx.slicing import strided

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfgraph.ir import Dim


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


@translates("Conv")
def _conv(
    at: Site,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    /,
    *,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    """A sum over the places of the kernel: of the input there, a step apart, times the weights."""
    value, w = at.tensor(x), at.tensor(weight)
    rank = len(value.shape) - 2
    if rank < 1 or len(w.shape) != rank + 2 or not all(n.is_const for n in w.shape):
        raise TfgraphError(f"expected [batch, channels, ...] and weights, got {value.type}")
    kernel = tuple(int(n) for n in w.shape[2:])
    if kernel_shape is not None and tuple(kernel_shape) != kernel:
        raise TfgraphError(f"kernel_shape is {list(kernel_shape)}, but weights are {w.type}")
    steps, gaps = tuple(strides or (1,) * rank), tuple(dilations or (1,) * rank)
    batch, channels, *spatial = value.shape
    at.require_equal(channels, w.shape[1] * group, "channels of input and weights")
    before, after = _padding(auto_pad, pads, kernel, steps, gaps, spatial)
    value = _padded(value, before, after)
    sizes = [
        (n + b + a - gap * (k - 1) - 1) // step + 1
        for n, b, a, gap, k, step in zip(spatial, before, after, gaps, kernel, steps, strict=True)
    ]
    columns = _columns(at, value, kernel, steps, gaps, sizes)  # [batch, channels, kernel, places]
    inner, out = int(w.shape[1]) * _count(kernel), int(w.shape[0])
    places = product(sizes)
    columns = ops.reshape(columns, shape=(batch, group, inner, places))
    w = ops.reshape(w, shape=(1, group, out // group, inner))
    y: Any = ops.reshape(ops.matmul(w, columns), shape=(batch, out, *sizes))
    if bias is None:
        return y
    return y + ops.reshape(at.tensor(bias), shape=(1, out, *[1] * rank))


def _count(sizes: tuple[int, ...]) -> int:
    total = 1
    for n in sizes:
        total *= n
    return total


def _padding(
    auto_pad: str,
    pads: Any,
    kernel: tuple[int, ...],
    steps: tuple[int, ...],
    gaps: tuple[int, ...],
    spatial: list[Dim],
) -> tuple[list[int], list[int]]:
    rank = len(kernel)
    if auto_pad in ("NOTSET", "VALID"):
        given = tuple(pads or (0,) * 2 * rank) if auto_pad == "NOTSET" else (0,) * 2 * rank
        return list(given[:rank]), list(given[rank:])
    before: list[int] = []
    after: list[int] = []
    for k, step, gap, n in zip(kernel, steps, gaps, spatial, strict=True):
        if step != 1 and not n.is_const:
            raise TfgraphError(f"auto_pad {auto_pad} of a symbolic size")
        rest = gap * (k - 1)
        if step != 1:
            rest = max((-(-int(n) // step) - 1) * step + rest + 1 - int(n), 0)
        less, more = rest // 2, rest - rest // 2
        before.append(less if auto_pad == "SAME_UPPER" else more)
        after.append(more if auto_pad == "SAME_UPPER" else less)
    return before, after


def _padded(x: Any, before: list[int], after: list[int]) -> Any:
    """Zeros around the axes behind the first two."""
    for axis, (b, a) in enumerate(zip(before, after, strict=True), start=2):
        if b < 0 or a < 0:
            raise TfgraphError("padding is negative")
        parts = [
            ops.full(
                shape=tuple(as_dim(n) if i == axis else s for i, s in enumerate(x.shape)),
                value=0,
                dtype=x.dtype,
            )
            if n
            else None
            for n in (b, a)
        ]
        kept = [p for p in (parts[0], x, parts[1]) if p is not None]
        x = ops.concat(*kept, axis=axis) if len(kept) > 1 else x
    return x


def _columns(
    at: Site,
    x: Any,
    kernel: tuple[int, ...],
    steps: tuple[int, ...],
    gaps: tuple[int, ...],
    sizes: list[Dim],
) -> Any:
    """What each place of the kernel sees: axis i becomes two, the kernel's and the places'."""
    for i, (k, step, gap, size) in enumerate(zip(kernel, steps, gaps, sizes, strict=True)):
        start = strided(at, as_dim(0), gap, as_dim(k))
        line = strided(at, as_dim(0), step, size)
        indices = ops.add(ops.reshape(start, shape=(k, 1)), ops.reshape(line, shape=(1, size)))
        x = ops.take(x, indices, axis=2 + 2 * i)
    rank = len(kernel)
    perm = (0, 1, *range(2, 2 + 2 * rank, 2), *range(3, 3 + 2 * rank, 2))
    x = ops.transpose(x, perm=perm) if rank > 1 else x
    shape = x.shape
    return ops.reshape(
        x, shape=(*shape[:2], product(shape[2 : 2 + rank]), product(shape[2 + rank :]))
    )
