"""`out=`: arrays of the caller that results are written to. The same on every backend.

They are written when everything is computed, so a call that fails leaves them as they were. May
import: numpy, place, inputs, overlap, sizes, errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tfgraph.errors import TfgraphError
from tfgraph.runtime.inputs import known_names
from tfgraph.runtime.overlap import repeats
from tfgraph.runtime.place import HOST
from tfgraph.runtime.sizes import evaluate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfgraph.runtime.place import Place
    from tfgraph.runtime.sizes import Port

    Array = np.ndarray[Any, np.dtype[Any]]


def check_out(
    ports: Sequence[Port],
    sizes: Mapping[str, int],
    inputs: Mapping[str, Any],
    out: Any,
    place: Place = HOST,
) -> dict[str, Any]:
    """The arrays to write to by output name: none where `out` is None, else those it gives, in the
    CPU's memory or in that of `place`, where the inputs were read.

    Raises TfgraphError for a name that is no output, for what is no writable array of the output's
    dtype and of its shape at these sizes, and where it shares memory with an input, with another of
    them or with itself.
    """
    if out is None:
        return {}
    if not isinstance(out, Mapping):
        kind = type(out).__name__
        raise TfgraphError(f"out is a {kind}, expected a mapping from output names to arrays")
    given = cast("Mapping[str, Any]", out)
    names = [port.name for port in ports]
    for name in given:
        if name not in names:
            hint = known_names(name, names)
            raise TfgraphError(f"the model has no output '{name}'", hint=hint)
    places = {
        port.name: _target(port, sizes, given[port.name], place)
        for port in ports
        if port.name in given
    }
    taken: list[tuple[str, Any]] = [(f"input '{name}'", a) for name, a in inputs.items()]
    for name, array in places.items():
        for what, other in taken:
            if verb := place.sharing(array, other):
                raise TfgraphError(
                    f"out '{name}' {verb} memory with {what}", hint="pass an array of its own"
                )
        taken.append((f"out '{name}'", array))
    return places


def deliver(
    results: Iterator[tuple[str, Array]], places: Mapping[str, Array], out: Mapping[str, Any] | None
) -> dict[str, Array]:
    """The results by name, those in `out` written there and given back as the caller's objects."""
    delivered: dict[str, Array] = {}
    for name, result in results:
        if out is not None and name in places:
            np.copyto(places[name], result)
            delivered[name] = out[name]
        else:
            delivered[name] = result
    return delivered


def _target(port: Port, sizes: Mapping[str, int], given: Any, place: Place) -> Any:
    what = f"out '{port.name}'"
    shape = tuple(evaluate(dim, sizes) for dim in port.shape)
    hint = f"pass numpy.empty({shape}, '{port.dtype}')"  # a converted one would be written in vain
    if isinstance(given, np.generic):
        raise TfgraphError(f"{what} is a scalar, expected an array", hint=hint)
    array = place.read(given, what, port.dtype, hint)
    if array.shape != shape:
        raise TfgraphError(
            f"{what} has shape {list(array.shape)}, expected {list(shape)}", hint=f"it is {port}"
        )
    _check_memory(array, what, hint)
    return array


def _check_memory(given: Any, what: str, hint: str) -> None:
    """Raise TfgraphError for an array that cannot be written; those on a device are dense."""
    if not isinstance(given, np.ndarray):
        return
    array = cast("Array", given)
    if not array.flags.writeable:
        raise TfgraphError(f"{what} is read-only", hint="pass an array that may be written")
    if repeats(array):
        raise TfgraphError(
            f"{what} has elements that share memory, by its strides {list(array.strides)}",
            hint=hint,
        )
