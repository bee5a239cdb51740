"""Inputs made by an artifact's generators, seeded: what `run` uses where an input is left out.

May import: numpy, memory, sizes, errors.
"""

from __future__ import annotations

import hashlib
import re
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.errors import TfgraphError
from tfgraph.runtime.memory import refuse_absurd
from tfgraph.runtime.sizes import Port, complete_sizes, evaluate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfgraph.runtime.sizes import SymbolRange

    Array = np.ndarray[Any, np.dtype[Any]]


def example(port: Port, sizes: Mapping[str, int], seed: int = 0) -> Array:
    """An input of the right shape, by the port's generator (see `tfgraph.ir.Fill`).

    Each name has a stream of its own, so that adding an input changes no other. Raises TfgraphError
    where it does not fit into memory.
    """
    key = hashlib.sha256(f"{seed} {port.name}".encode()).digest()
    random = np.random.Generator(np.random.Philox(int.from_bytes(key[:8], "little")))
    shape = tuple(evaluate(dim, sizes) for dim in port.shape)
    words = set(re.findall(r"\w+", " ".join(map(str, port.shape))))
    used = {name: size for name, size in sizes.items() if name in words}
    # Two arrays of eight bytes an element are the most that is held at a time.
    refuse_absurd(prod(shape) * 16, f"input '{port.name}'", used)
    made: Array
    kind, _, argument = port.fill.removesuffix(")").partition("(")
    if kind in ("normal", "state"):
        made = random.standard_normal(shape) * float(argument or 1)
    elif kind == "ids":
        least = 0 if port.least is None else max(0, evaluate(port.least, sizes))
        made = random.integers(min(least, int(argument) - 1), int(argument), shape)
    elif kind == "lengths":
        made = random.integers(1, evaluate(argument, sizes) + 1, shape)
    elif kind == "prefix":
        # Each row a run of ones then zeros; of several rows the first has no zeros.
        lengths = random.integers(1, shape[-1] + 1, shape[:-1])
        if lengths.size > 1:
            lengths[(0,) * lengths.ndim] = shape[-1]
        made = (np.arange(shape[-1]) < lengths[..., None]).astype(np.int64)
    elif kind in ("ones", "zeros"):
        made = np.full(shape, float(kind == "ones"))
    else:
        raise TfgraphError(f"input '{port.name}': unknown generator '{port.fill}'")
    return made.astype(port.dtype)


def complete(
    ports: Sequence[Port],
    symbols: Mapping[str, SymbolRange],
    constraints: Sequence[str],
    given: Mapping[str, Array],
    dims: Mapping[str, int],
    seed: int,
) -> tuple[dict[str, Array], dict[str, int]]:
    """All inputs, and the size of every symbol.

    Sizes come from `dims` and from the shapes of given inputs, else they are the example sizes.
    They are checked before anything is made, so that an absurd size takes no memory.
    """
    known = [port for port in ports if port.name in given]
    shapes = {name: array.shape for name, array in given.items()}
    sizes = complete_sizes(known, shapes, symbols, constraints, dims)
    arrays = {
        port.name: given[port.name] if port.name in given else example(port, sizes, seed)
        for port in ports
    }
    return arrays, sizes
