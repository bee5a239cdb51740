"""Weights that a caller gives in Python, checked as those of a file are, before anything is built.

May import: weights, runtime.arrays, ir, errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tfgraph.errors import TfgraphError, nearest
from tfgraph.runtime.arrays import as_array
from tfgraph.runtime.inputs import check_bools
from tfgraph.weights import Rounded, Seeded, Weights

if TYPE_CHECKING:
    from tfgraph.ir import Graph, Param

    NDArray = np.ndarray[Any, Any]

_MOST, _SHOWN = 20, 5  # errors that are shown, and names in one


def given_weights(graph: Graph, given: Any) -> Mapping[str, NDArray]:
    """The arrays that a caller gives for a graph, checked once; see `GivenWeights`."""
    if isinstance(given, GivenWeights) and given.graph is graph:
        return given
    return GivenWeights(graph, given)


class GivenWeights(Mapping[str, "NDArray"]):
    """The arrays of a mapping for the parameters of a graph.

    All of them and no others: a parameter that was left out is more likely misspelt than meant to
    be random. Each has the parameter's shape and dtype: nothing is converted. Raises one
    TfgraphError with every problem; of mappings that make or convert an array when it is asked for,
    arrays are checked then.
    """

    def __init__(self, graph: Graph, given: Any) -> None:
        if not isinstance(given, Mapping):
            raise TfgraphError(
                f"weights is a {type(given).__name__}, expected a mapping from names to arrays",
                hint="safetensors.numpy.load_file(path) gives one",
            )
        self.graph = graph
        self._given = cast("Mapping[Any, Any]", given)
        self._params = {param.value.name: param for param in graph.params}
        names = list(self._given)
        errors = [
            TfgraphError(
                f"weights: {graph.name} has no parameter '{name}'",
                hint=(nearest(name, self._params) if isinstance(name, str) else None)
                or f"it has {_few(list(self._params)) or 'none'}",
            )
            for name in names
            if name not in self._params
        ]
        missing = [f"'{name}'" for name in self._params if name not in names]
        if missing:
            count = "is" if len(missing) == 1 else f"({len(missing)} of {len(self._params)}) are"
            errors.append(
                TfgraphError(
                    f"weights: {_few(missing)} {count} missing",
                    hint="give all parameters, or no weights for seeded ones",
                )
            )
        if not isinstance(given, Seeded | Weights | Rounded | GivenWeights):
            for name in names:
                if name in self._params:
                    try:
                        self[name]
                    except TfgraphError as error:
                        errors.append(error)
        if errors:
            first, *rest = errors[:_MOST]
            raise TfgraphError(first.message, first.location, first.hint, rest)

    @property
    def seeded(self) -> Seeded | None:
        """See `as_seeded`."""
        return as_seeded(self._given)

    def __getitem__(self, name: str) -> NDArray:
        return _checked(self._params[name], self._given[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._params)

    def __len__(self) -> int:
        return len(self._params)


def as_seeded(weights: Mapping[str, NDArray]) -> Seeded | None:
    """The seeded weights that these are; None of others."""
    if isinstance(weights, GivenWeights):
        return weights.seeded
    return weights if isinstance(weights, Seeded) else None


def _few(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def _checked(param: Param, given: Any) -> NDArray:
    """The array, if it is the parameter's."""
    what, kind = f"weight '{param.value.name}'", param.value.type
    array = as_array(given, what, kind.dtype.value)
    shape = tuple(map(int, kind.shape))
    if array.shape != shape:
        turned = array.shape == shape[::-1]
        raise TfgraphError(
            f"{what} has shape {list(array.shape)}, expected {list(shape)}",
            hint="a matrix is [in, out]: .T turns it round" if turned else None,
        )
    check_bools(array, what)
    return array
