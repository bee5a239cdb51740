"""ONNX's Resize: along each axis a product with a matrix of weights that follow from the sizes, or
for the nearest element a choice of rows.

Sizes of axes that change are known at import, and so are the matrices. Keys 1981 has the cubic
weights. May import: site, shapes, file, registry, ops, ir, errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph import ops
from tfgraph.errors import TfgraphError
from tfgraph.ir import DType
from tfgraph.onnx.file import Stored
from tfgraph.onnx.layers import product_of
from tfgraph.onnx.registry import translates
from tfgraph.onnx.shapes import axis_of
from tfgraph.onnx.site import Site, Tensor
from tfgraph.ops.floats import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgraph.ir import Dim

NDArray = np.ndarray[Any, Any]
Kernel = Callable[[NDArray], NDArray]


@dataclass(frozen=True)
class Axis:
    """One axis: `size` elements become `length`, each `scale` of a new one wide; the part from
    `start` to `end`, shares of the axis, is seen where the mode crops."""

    size: int
    length: int
    scale: float
    start: float = 0.0
    end: float = 1.0

    def places(self, mode: str) -> NDArray:
        """Where the new elements lie, counted in old ones."""
        new = np.array(range(self.length), np.float64)
        wide, last = self.scale * self.size, self.size - 1
        if mode == "align_corners":
            return new * last / (wide - 1) if wide != 1 else new * 0
        if mode == "asymmetric":
            return new / self.scale
        if mode == "tf_crop_and_resize":
            if wide == 1:
                return new * 0 + (self.start + self.end) * last / 2
            return self.start * last + new * (self.end - self.start) * last / (wide - 1)
        if mode == "pytorch_half_pixel" and wide == 1:
            return new * 0 - 0.5
        centre = 0.0
        if mode == "half_pixel_symmetric":
            centre = self.size / 2 * (1 - self.length / wide)
        elif mode not in ("half_pixel", "pytorch_half_pixel"):
            raise TfgraphError(f"the coordinate_transformation_mode is '{mode}'")
        return centre + (new + 0.5) / self.scale - 0.5


def linear(x: NDArray) -> NDArray:
    """1 - |x|, up to a distance of 1."""
    weights: NDArray = np.clip(1 - np.abs(x), 0, 1)
    return weights


def cubic(a: float) -> Kernel:
    """Cubic convolution up to a distance of 2. Keys 1981."""

    def kernel(x: NDArray) -> NDArray:
        d = np.abs(x)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        weights: NDArray = np.where(d <= 1, near, np.where(d < 2, far, 0))
        return weights

    return kernel


def matrix(
    axis: Axis, places: NDArray, kernel: Kernel, reach: int, *, smooth: bool, inside: bool
) -> NDArray:
    """The weights [length, size] of old elements in new ones. With `smooth` a kernel is as wide as
    a new element where that is wider; elements beyond the ends are those at the ends, or with
    `inside` none."""
    width = min(axis.scale, 1.0) if smooth else 1.0
    span = math.ceil(reach / width)
    first = np.floor(places).astype(np.int64) - span
    index = first[:, None] + np.array(range(2 * span + 2))
    weights = kernel((index - places[:, None]) * width)
    if smooth or inside:
        if inside:
            weights = np.where((index < 0) | (index >= axis.size), 0, weights)
        weights = weights / weights.sum(axis=1, keepdims=True)
    result = np.zeros((axis.length, axis.size))
    rows = np.broadcast_to(np.array(range(axis.length))[:, None], index.shape)
    np.add.at(result, (rows, np.clip(index, 0, axis.size - 1)), weights)
    return result


def nearest(places: NDArray, size: int, mode: str) -> NDArray:
    """The old element next to each new one."""
    rounded = {
        "round_prefer_floor": np.ceil(places - 0.5),
        "round_prefer_ceil": np.floor(places + 0.5),
        "floor": np.floor(places),
        "ceil": np.ceil(places),
    }
    if mode not in rounded:
        raise TfgraphError(f"the nearest_mode is '{mode}', expected one of {list(rounded)}")
    return np.clip(rounded[mode], 0, size - 1).astype(np.int64)


@translates("Resize", since=11)
def _resize(
    at: Site,
    x: Tensor,
    roi: Tensor | None = None,
    scales: Tensor | None = None,
    sizes: Tensor | None = None,
    /,
    *,
    antialias: int = 0,
    axes: Any = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: Any = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: Any = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Any:
    if mode not in ("nearest", "linear", "cubic"):
        raise TfgraphError(f"the mode is '{mode}', expected nearest, linear or cubic")
    value, shape = at.tensor(x), at.shape(x)
    chosen = [axis_of(a, len(shape)) for a in (range(len(shape)) if axes is None else axes)]
    crops = coordinate_transformation_mode == "tf_crop_and_resize"
    ends = [float(n) for n in at.numbers(roi, "the roi")] if crops and roi is not None else []
    found = _axes(at, shape, chosen, scales, sizes, keep_aspect_ratio_policy, ends)
    for i, axis in found.items():
        places = axis.places(coordinate_transformation_mode)
        if mode == "nearest":
            index = nearest(places, axis.size, nearest_mode)
            value = ops.take(value, _weight(at, f"rows{i}", index), axis=i)
        else:
            kernel, reach = (linear, 1) if mode == "linear" else (cubic(float(cubic_coeff_a)), 2)
            weights = matrix(
                axis, places, kernel, reach, smooth=bool(antialias), inside=bool(exclude_outside)
            )
            beyond = (places < 0) | (places > axis.size - 1) if crops else np.zeros_like(places)
            value = _product(at, value, i, np.where(beyond[:, None], 0, weights))
        if crops and ((places < 0) | (places > axis.size - 1)).any():
            value = _beyond(at, value, i, places, axis, float(extrapolation_value))
    return value


@translates("Resize", since=10)
def _resize_10(at: Site, x: Tensor, scales: Tensor, /, *, mode: str = "nearest") -> Any:
    return _resize(
        at,
        x,
        None,
        scales,
        mode=mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def _axes(
    at: Site,
    shape: Sequence[Dim],
    chosen: list[int],
    scales: Tensor | None,
    sizes: Tensor | None,
    policy: str,
    ends: list[float],
) -> dict[int, Axis]:
    """The axes that change, by their place. Of one that does not, the size may be symbolic."""
    factors = at.numbers(scales, "the scales") if scales is not None else []
    lengths = list(at.dims(sizes, "the sizes")) if sizes is not None else []
    if len(factors or lengths) != len(chosen):
        raise TfgraphError(f"{len(factors or lengths)} scales or sizes for {len(chosen)} axes")
    found: dict[int, Axis] = {}
    for j, i in enumerate(chosen):
        start, end = (ends[j], ends[len(chosen) + j]) if ends else (0.0, 1.0)
        same = float(factors[j]) == 1 if factors else lengths[j] == shape[i]
        if same and (start, end) == (0, 1) and policy == "stretch":
            continue
        if not shape[i].is_const or (lengths and not lengths[j].is_const):
            raise TfgraphError(f"axis {i} of {shape[i]} elements changes, and is of no fixed size")
        size = int(shape[i])
        if factors:  # the product as float32: 0.7 times 10 is 7, as what exported it took it
            scale = float(np.float32(float(factors[j])))
            length = math.floor(np.float32(scale) * np.float32(size))
        else:
            scale, length = int(lengths[j]) / size, int(lengths[j])
        found[i] = Axis(size, length, scale, start, end)
    if policy == "stretch" or factors:
        return found
    pick = {"not_larger": min, "not_smaller": max}.get(policy)
    if pick is None:
        raise TfgraphError(f"the keep_aspect_ratio_policy is '{policy}'")
    scale = pick(axis.scale for axis in found.values())
    return {
        i: Axis(a.size, math.floor(scale * a.size + 0.5), scale, a.start, a.end)
        for i, a in found.items()
    }


def _product(at: Site, x: Any, axis: int, weights: NDArray) -> Any:
    """The product of an axis with a matrix [length, size]."""
    if not x.dtype.is_float:
        raise TfgraphError(f"expected floats, got {x.type}")
    rank = len(x.shape)
    w = _weight(at, f"weights{axis}", weights.T.astype(numpy_dtype(x.dtype)))
    if axis == rank - 1:
        return product_of(at, x, w)
    perm = (*(i for i in range(rank) if i != axis), axis)
    back = tuple(int(i) for i in np.argsort(perm))
    return ops.transpose(ops.matmul(ops.transpose(x, perm=perm), w), perm=back)


def _beyond(at: Site, x: Any, axis: int, places: NDArray, given: Axis, number: float) -> Any:
    """One number for the elements that lie beyond the ends."""
    outside = (places < 0) | (places > given.size - 1)
    shape = tuple(given.length if i == axis else 1 for i in range(len(x.shape)))
    mask = _weight(at, f"outside{axis}", outside.reshape(shape))
    return ops.where(mask, ops.full(shape=(), value=number, dtype=x.dtype), x)


def _weight(at: Site, name: str, array: NDArray) -> Any:
    """An array that the importer makes."""
    stored = Stored(
        f"{at.node.output[0]}.{name}", DType(str(array.dtype)), array.shape, lambda: array
    )
    return at.tensor(stored)
