"""The check of a call's inputs: the same errors, in the same words, on every backend.

May import: numpy, kept, place, sizes, errors.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tfgraph.errors import TfgraphError, nearest
from tfgraph.runtime.place import HOST, Place
from tfgraph.runtime.sizes import (
    Port,
    SymbolRange,
    bind_sizes,
    evaluate,
    symbols_of,
    told_sizes,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfgraph.runtime.kept import Known

    Array = np.ndarray[Any, np.dtype[Any]]

_SHAPES_KEPT = 256


class Inputs:
    """The inputs that a function takes, and the check of those that it is given."""

    def __init__(
        self,
        ports: Sequence[Port],
        symbols: Mapping[str, SymbolRange],
        constraints: Sequence[str],
        place: Place = HOST,
    ) -> None:
        self._ports, self._symbols, self._constraints = tuple(ports), symbols, constraints
        self._place = place
        self._bound: dict[tuple[object, ...], dict[str, int]] = {}

    def check(
        self,
        given: Mapping[str, Any],
        dims: Mapping[str, int] | None,
        known: Known | None = None,
    ) -> tuple[dict[str, Array], dict[str, int]]:
        """The inputs as arrays, only those that `known` has nothing of, and each symbol's size.

        Nothing is converted: an array has the port's dtype in this machine's byte order, or it is
        refused; its strides and alignment may be any. Raises TfgraphError for a wrong or missing
        name, dtype, shape, size, bool or id, in this order.
        """
        ports, sizes = self._ports, check_dims(dims, self._symbols)
        if known is not None:
            ports, sizes = known.others, known.sizes | sizes
        if len(given) != len(ports) or not all(port.name in given for port in ports):
            _refuse_names(given, ports)
        arrays = self._read(ports, given)
        sizes = self._sizes(ports, arrays, sizes)
        for port in ports:
            if port.dtype == "bool" or port.limit is not None or port.least is not None:
                values = self._place.values(arrays[port.name])
                check_bools(values, f"input '{port.name}'")
                _check_ids(port, values, sizes)
        return arrays, sizes

    def part(self, given: Mapping[str, Any]) -> dict[str, Array]:
        """Some of the inputs as arrays, checked as far as they can be without the others."""
        ports = [port for port in self._ports if port.name in given]
        arrays = self._read(ports, given)
        for port in ports:
            if port.dtype == "bool":
                check_bools(self._place.values(arrays[port.name]), f"input '{port.name}'")
        told_sizes(ports, {name: array.shape for name, array in arrays.items()}, {})
        return arrays

    def known(self, arrays: Mapping[str, Array]) -> tuple[dict[str, int], tuple[Port, ...]]:
        """Of some of the inputs, checked with all others: the sizes that they tell, and the inputs
        to be checked at the next calls, where these are the same arrays.

        Those are the others, ids and bools, which may be written meanwhile, and what has a size
        that the others tell.
        """
        ports = [port for port in self._ports if port.name in arrays]
        sizes = told_sizes(ports, {port.name: arrays[port.name].shape for port in ports}, {})
        settled = {
            port.name
            for port in ports
            if port.limit is None
            and port.least is None
            and port.dtype != "bool"
            and all(symbols_of(dim) <= sizes.keys() for dim in port.shape)
        }
        return sizes, tuple(port for port in self._ports if port.name not in settled)

    def _read(self, ports: Sequence[Port], given: Mapping[str, Any]) -> dict[str, Array]:
        return {
            p.name: self._place.read(given[p.name], f"input '{p.name}'", p.dtype) for p in ports
        }

    def _sizes(
        self, ports: tuple[Port, ...], arrays: Mapping[str, Array], known: dict[str, int]
    ) -> dict[str, int]:
        """The size of each symbol; of shapes that were seen before as they were found then."""
        key = (*[array.shape for array in arrays.values()], *known.items())
        sizes = self._bound.get(key)
        if sizes is None:
            shapes = {name: array.shape for name, array in arrays.items()}
            sizes = bind_sizes(ports, shapes, self._symbols, self._constraints, known)
            if len(self._bound) >= _SHAPES_KEPT:
                self._bound.clear()
            self._bound[key] = sizes
        return dict(sizes)


def refuse_positional(given: Sequence[object], ports: Sequence[Port]) -> None:
    """Raise TfgraphError where a call has arguments without names."""
    if not given:
        return
    (first, *more), names = given, [port.name for port in ports]
    if not more and isinstance(first, Mapping):
        raise TfgraphError("inputs go by name, not as a mapping", hint="call it as model(**inputs)")
    shown = ", ".join(f"{name}=..." for name in names)
    raise TfgraphError("inputs go by name", hint=f"call it as model({shown})")


def check_dims(dims: Any, symbols: Mapping[str, SymbolRange]) -> dict[str, int]:
    """Sizes by symbol as ints. Raises TfgraphError for an unknown symbol or what is no integer."""
    if dims is None:
        return {}
    if not isinstance(dims, Mapping):
        raise TfgraphError(
            f"dims is a {type(dims).__name__}, expected a mapping from symbols to sizes",
            hint=f"such as {{'{next(iter(symbols), 'seq')}': 5}}",
        )
    sizes: dict[str, int] = {}
    for name, size in cast("Mapping[Any, Any]", dims).items():
        if name not in symbols:
            raise TfgraphError(
                f"the model has no symbol '{name}'", hint=known_names(name, list(symbols))
            )
        try:
            sizes[name] = operator.index(size)
        except TypeError:
            raise TfgraphError(f"dims: {name} is {size!r}, expected an integer") from None
    return sizes


def check_bools(array: Array, what: str) -> None:
    """Raise TfgraphError for a byte of a bool that NumPy takes as true and compiled code does not:
    any but 1."""
    if array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
        raise TfgraphError(
            f"{what} holds a byte that is neither 0 nor 1, expected bool",
            hint="make it of the bytes by != 0, not by .view(bool)",
        )


def _refuse_names(given: Mapping[str, Any], ports: Sequence[Port]) -> None:
    names = [port.name for port in ports]
    for name in given:
        if name not in names:
            raise TfgraphError(f"the model has no input '{name}'", hint=known_names(name, names))
    missing = [port for port in ports if port.name not in given]
    shown = ", ".join(f"'{port.name}'" for port in missing)
    raise TfgraphError(
        f"input {shown} is missing" if len(missing) == 1 else f"inputs {shown} are missing",
        hint=f"expected {', '.join(map(str, missing))}",
    )


def _check_ids(port: Port, array: Array, sizes: Mapping[str, int]) -> None:
    if not array.size or (port.least is None and port.limit is None):
        return
    least = None if port.least is None else evaluate(port.least, sizes)
    most = None if port.limit is None else evaluate(port.limit, sizes) - 1
    low, high = int(array.min()), int(array.max())
    below = least is not None and low < least
    if below or (most is not None and high > most):
        wrong = low if below else high
        expected = f"{least} to {most}"
        if least is None or most is None:
            expected = f"at least {least}" if most is None else f"at most {most}"
        raise TfgraphError(f"input '{port.name}' holds {wrong}, expected {expected}")


def known_names(name: object, names: Sequence[str]) -> str:
    """A hint for a name that is none of these; what callers give need not even be a text."""
    near = nearest(name, names) if isinstance(name, str) else None
    return near or (f"it has {', '.join(names)}" if names else "it has none")
