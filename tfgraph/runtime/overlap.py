"""Whether arrays share elements, with each other or with themselves: what is written must not.

May import: numpy, errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    Array = np.ndarray[Any, np.dtype[Any]]

_PATIENCE = 10_000
"""How many candidates NumPy may try to tell whether two arrays share an element: for interleaved
windows a few; beyond that they may share one, and are refused."""


def check_states(states: AbstractSet[str], arrays: Mapping[str, Array]) -> None:
    """Raise TfgraphError for a state that cannot be written in place: one that is read-only, or
    shares memory with itself or another input. `arrays` are all inputs."""
    if not states:
        return
    for name in states:
        if not arrays[name].flags.writeable:
            raise TfgraphError(f"state '{name}' is read-only, and would be written")
        if not arrays[name].flags.c_contiguous and repeats(arrays[name]):
            raise TfgraphError(
                f"state '{name}' has elements that share memory", hint="pass an array of its own"
            )
    spans = sorted((*_span(array), name) for name, array in arrays.items() if array.size)
    reach, before = 0, ""
    for start, end, name in spans:  # almost always apart, which this tells at once
        if start < reach and not states.isdisjoint((name, before)):
            _check_apart(states, arrays)
            return
        if end > reach:
            reach, before = end, name


def _check_apart(states: AbstractSet[str], arrays: Mapping[str, Array]) -> None:
    for name in sorted(states):
        for other, array in arrays.items():
            if other != name and (verb := sharing(arrays[name], array)):
                what = f"{'state' if other in states else 'input'} '{other}'"
                raise TfgraphError(
                    f"state '{name}' {verb} memory with {what}", hint="pass an array of its own"
                )


def _span(array: Array) -> tuple[int, int]:
    """The addresses of its first byte and behind its last."""
    start: int = array.__array_interface__["data"][0]
    if array.flags.c_contiguous:
        return start, start + array.nbytes
    low, high = np.lib.array_utils.byte_bounds(array)
    return low, high


def repeats(array: Array) -> bool:
    """Whether elements overlap. They do not where each stride steps over what the smaller ones
    span; else the places of all are compared."""
    span = array.itemsize
    axes = sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1)
    nested = True
    for stride, size in axes:
        nested = nested and stride >= span
        span += stride * (size - 1)
    if nested or not axes[0][0]:
        return not nested
    places: Array = np.zeros(1, np.int64)
    for stride, size in axes:
        steps: Array = np.full(size, stride, np.int64).cumsum() - stride
        places = np.add.outer(places, steps).ravel()
    places.sort()
    return bool((np.diff(places) < array.itemsize).any())


def sharing(one: Array, other: Array) -> str | None:
    """Whether they share an element, as a verb."""
    try:
        shared = np.shares_memory(one, other, max_work=_PATIENCE)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return "may share"
    return "shares" if shared else None
