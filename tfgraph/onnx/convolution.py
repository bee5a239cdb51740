"""ONNX's convolutions: of the IR's ops, matrix products of what the kernel sees. May import: site,
slicing, registry, ops, ir, errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import as_dim, product
from tfgraph.onnx.registry import translates
from tfgraph.onnx.site import Site, Tensor
from tfgraph.onnx.slicing import strided

if TYPE_CHECKING:
    from tfgraph.ir import Dim


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
    kernel = _kernel(value, w, kernel_shape)
    rank = len(kernel)
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


def _kernel(value: Any, weight: Any, declared: Any) -> tuple[int, ...]:
    """The sizes of the kernel, which the weights have behind their two axes of channels. Raises
    TfgraphError where ranks do not fit, sizes are symbolic, or the node declares others."""
    fixed = all(n.is_const for n in weight.shape)
    if len(value.shape) < 3 or len(weight.shape) != len(value.shape) or not fixed:
        raise TfgraphError(f"expected [batch, channels, ...] and weights, got {value.type}")
    kernel = tuple(int(n) for n in weight.shape[2:])
    if declared is not None and tuple(declared) != kernel:
        raise TfgraphError(f"kernel_shape is {list(declared)}, but weights are {weight.type}")
    return kernel


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
        x = _padded_axis(x, axis, b, a)
    return x


def _padded_axis(x: Any, axis: int, before: int, after: int) -> Any:
    """Zeros at both ends of an axis."""

    def zeros(n: int) -> Any:
        shape = tuple(as_dim(n) if i == axis else size for i, size in enumerate(x.shape))
        return ops.full(shape=shape, value=0, dtype=x.dtype)

    parts = [zeros(before) if before else None, x, zeros(after) if after else None]
    kept = [p for p in parts if p is not None]
    return ops.concat(*kept, axis=axis) if len(kept) > 1 else x


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


@translates("ConvTranspose")
def _conv_transpose(
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
    output_padding: Any = None,
    output_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    """Each place of the input adds its product with the kernel to the result, `strides` apart."""
    value, w = at.tensor(x), at.tensor(weight)
    kernel = _kernel(value, w, kernel_shape)
    rank = len(kernel)
    steps, gaps = tuple(strides or (1,) * rank), tuple(dilations or (1,) * rank)
    batch, channels, *spatial = value.shape
    at.require_equal(channels, w.shape[0], "channels of input and weights")
    inner, out = int(w.shape[0]) // group, int(w.shape[1])
    # [batch, group, out * kernel, places]: what each place adds, kernel place by kernel place
    rows = ops.reshape(value, shape=(batch, group, inner, product(spatial)))
    w = ops.reshape(w, shape=(1, group, inner, out * _count(kernel)))
    y: Any = ops.matmul(ops.transpose(w, perm=(0, 1, 3, 2)), rows)
    y = ops.reshape(y, shape=(batch, group * out, *kernel, *spatial))
    extra = tuple(output_padding or (0,) * rank)
    wanted = list(output_shape or ())[-rank:]
    for i in range(rank):
        y = _summed(y, 2 + i, 2 + rank, steps[i], gaps[i])
        size = y.shape[2 + i] + extra[i]
        if wanted or auto_pad.startswith("SAME"):
            total = size - (as_dim(wanted[i]) if wanted else spatial[i] * steps[i])
            if not total.is_const:
                raise TfgraphError(f"the padding is {total}, which depends on sizes")
            less, more = int(total) // 2, int(total) - int(total) // 2
            before, after = (less, more) if auto_pad == "SAME_UPPER" else (more, less)
        else:
            before, after = (pads[i], pads[rank + i]) if pads else (0, 0)
        y = _cropped(y, 2 + i, before, after - extra[i])
    if bias is None:
        return y
    return y + ops.reshape(at.tensor(bias), shape=(1, group * out, *[1] * rank))


def _summed(x: Any, kernel: int, places: int, step: int, gap: int) -> Any:
    """Axis `places`, with its elements `step` apart, added up over axis `kernel`, whose elements
    stand `gap` further each; the sum stands where the kernel's axis was."""
    rank, count = len(x.shape), int(x.shape[kernel])
    front = [i for i in range(rank) if i not in (kernel, places)]
    x = ops.transpose(x, perm=(*front, kernel, places))
    *outer, _, n = x.shape
    total: Any = None
    for i in range(count):
        part = ops.reshape(ops.slice_(x, axis=-2, start=i, stop=i + 1), shape=(*outer, n, 1))
        if step > 1:
            part = _padded_axis(part, len(outer) + 1, 0, step - 1)
        part = ops.reshape(part, shape=(*outer, n * step))
        part = _cropped(part, len(outer), -i * gap, step - 1 - (count - 1 - i) * gap)
        total = part if total is None else ops.add(total, part)
    back = list(range(len(outer)))
    back.insert(kernel, len(outer))
    return ops.transpose(total, perm=tuple(back)) if back != sorted(back) else total


def _cropped(x: Any, axis: int, before: int, after: int) -> Any:
    """Without so many elements at both ends of an axis; zeros are added where the number is
    negative."""
    x = _padded_axis(x, axis, max(-before, 0), max(-after, 0))
    start, stop = max(before, 0), x.shape[axis] - max(after, 0)
    if not start and stop == x.shape[axis]:
        return x
    return ops.slice_(x, axis=axis, start=start, stop=stop)
