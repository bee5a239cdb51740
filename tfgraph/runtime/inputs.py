"""The check of a call's inputs: the same errors, in the same words, on every backend.

May import: numpy, arrays, sizes, errors.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.errors import TfgraphError, nearest
from tfgraph.runtime.arrays import as_array
from tfgraph.runtime.sizes import Port, SymbolRange, bind_sizes, evaluate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Array = np.ndarray[Any, np.dtype[Any]]


def check_inputs(
    ports: Sequence[Port],
    symbols: Mapping[str, SymbolRange],
    constraints: Sequence[str],
    given: Mapping[str, Any],
    dims: Mapping[str, int] | None,
) -> tuple[dict[str, Array], dict[str, int]]:
    """The inputs as arrays, and the size of each symbol.

    Nothing is converted: an array has the port's dtype in this machine's byte order, or it is
    refused; its strides and alignment may be any. Raises TfgraphError for a wrong or missing name,
    dtype, shape, size, bool or id, in this order.
    """
    names = [port.name for port in ports]
    for name in given:
        if name not in names:
            raise TfgraphError(f"the model has no input '{name}'", hint=_known(name, names))
    arrays = {port.name: _array(port, given) for port in ports}
    shapes = {name: array.shape for name, array in arrays.items()}
    sizes = bind_sizes(ports, shapes, symbols, constraints, check_dims(dims, symbols))
    for port in ports:
        _check_bools(port, arrays[port.name])
        _check_ids(port, arrays[port.name], sizes)
    return arrays, sizes


def check_dims(dims: Mapping[str, int] | None, symbols: Iterable[str]) -> dict[str, int]:
    """Sizes by symbol as ints. Raises TfgraphError for an unknown symbol or what is no integer."""
    known = list(symbols)
    sizes: dict[str, int] = {}
    for name, size in (dims or {}).items():
        if name not in known:
            raise TfgraphError(f"the model has no symbol '{name}'", hint=_known(name, known))
        try:
            sizes[name] = operator.index(size)
        except TypeError:
            raise TfgraphError(f"dims: {name} is {size!r}, expected an integer") from None
    return sizes


def _array(port: Port, inputs: Mapping[str, Any]) -> Array:
    if port.name not in inputs:
        raise TfgraphError(f"input '{port.name}' is missing", hint=f"expected {port}")
    return as_array(inputs[port.name], f"input '{port.name}'", port.dtype)


def _check_bools(port: Port, array: Array) -> None:
    """NumPy takes any byte but 0 as true, compiled code only 1."""
    if port.dtype == "bool" and array.size and array.view(np.uint8).max() > 1:
        raise TfgraphError(
            f"input '{port.name}' holds a byte that is neither 0 nor 1, expected bool",
            hint="make it of the bytes by != 0, not by .view(bool)",
        )


def _check_ids(port: Port, array: Array, sizes: Mapping[str, int]) -> None:
    if port.limit is None or not array.size:
        return
    limit = evaluate(port.limit, sizes)
    low, high = int(array.min()), int(array.max())
    if low < 0 or high >= limit:
        wrong = low if low < 0 else high
        raise TfgraphError(f"input '{port.name}' holds {wrong}, expected 0 to {limit - 1}")


def _known(name: str, names: Sequence[str]) -> str:
    shown = f"it has {', '.join(names)}" if names else "it has none"
    return nearest(name, names) or shown
