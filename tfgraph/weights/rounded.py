"""Weights in another float type, each rounded when it is asked for.

May import: ops.floats, ir, errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.errors import TfgraphError
from tfgraph.ir import DType
from tfgraph.ops.floats import numpy_dtype

if TYPE_CHECKING:
    from tfgraph.errors import Location
    from tfgraph.ir import Param

NDArray = np.ndarray[Any, Any]


class Rounded(Mapping[str, "NDArray"]):
    """The arrays of a mapping in the types of parameters; see `rounded`."""

    def __init__(self, params: Iterable[Param], given: Mapping[str, NDArray]) -> None:
        self.given = given
        self._types = {param.value.name: param.value.type.dtype for param in params}

    def __getitem__(self, name: str) -> NDArray:
        return rounded(self.given[name], self._types[name], f"weight '{name}'")

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def __len__(self) -> int:
        return len(self._types)


def rounded(array: NDArray, dtype: DType, what: str, place: Location | None = None) -> NDArray:
    """The array in that type: floats rounded once, to nearest, ties to even. Raises TfgraphError,
    which begins with `what`, for a number that would become infinite."""
    target = numpy_dtype(dtype)
    if array.dtype == target:
        return array
    with np.errstate(over="ignore"):
        converted: NDArray = array.astype(target)
    if not dtype.is_float or not np.isinf(converted).any() or np.isinf(array).all():
        return converted
    beyond = array[np.isinf(converted) & np.isfinite(array)]
    if beyond.size:
        worst = float(beyond[np.argmax(np.abs(beyond))])
        raise TfgraphError(
            f"{what} has values too large for {dtype}, such as {worst:.6g}",
            place,
            "bfloat16 has the range of float32" if dtype == DType.float16 else None,
        )
    return converted
