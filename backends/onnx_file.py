"""What runs the ONNX file that was written for a graph, whichever library does.

May import: base, runtime, ir, errors.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from tfgraph.backends.base import NDArray, constraints_of, input_ports, output_ports, symbol_ranges
from tfgraph.errors import CheckFailed
from tfgraph.runtime.inputs import Inputs, refuse_positional
from tfgraph.runtime.outputs import check_out, deliver
from tfgraph.runtime.runnable import Runnable

if TYPE_CHECKING:
    from pathlib import Path

    from tfgraph.ir import Graph
    from tfgraph.runtime.sizes import Port, SymbolRange


@dataclass(repr=False)
class OnnxFile(Runnable):
    """The graph that was written to `path`. Raises MissingTool where the library is not installed,
    or has no kernel for what the file asks for."""

    graph: Graph
    path: Path
    name: str = field(init=False)
    target: str = field(init=False)
    inputs: tuple[Port, ...] = field(init=False)
    outputs: tuple[Port, ...] = field(init=False)
    symbols: Mapping[str, SymbolRange] = field(init=False)

    library = "ONNX"
    """What errors call it."""

    def __post_init__(self) -> None:
        self.name = self.graph.name
        self.inputs, self.outputs = input_ports(self.graph), output_ports(self.graph)
        self.symbols = symbol_ranges(self.graph)
        constraints = [str(c) for c in constraints_of(self.graph)]
        self._check = Inputs(self.inputs, self.symbols, constraints)
        self._session: Any = self.start()

    @abstractmethod
    def start(self) -> Any:
        """The library's object that runs the file."""

    @abstractmethod
    def results(self, session: Any, names: list[str], given: dict[str, NDArray]) -> Sequence[Any]:
        """The outputs of these names."""

    def __call__(
        self,
        /,
        *unnamed: Never,
        dims: Mapping[str, int] | None = None,
        out: Any = None,
        **inputs: Any,
    ) -> dict[str, NDArray]:
        """The outputs by name; see `Runnable.__call__`."""
        refuse_positional(unnamed, self.inputs)
        arrays, sizes = self._check.check(inputs, dims)
        places = check_out(self.outputs, sizes, arrays, out)
        given = {name: np.asarray(array, order="C") for name, array in arrays.items()}
        names = [port.name for port in self.outputs]
        try:
            found = self.results(self._session, names, given)
        except Exception as cause:
            raise CheckFailed(f"{self.library} fails on the file: {cause}") from cause
        return deliver(((n, np.asarray(a)) for n, a in zip(names, found, strict=True)), places, out)

    def close(self) -> None:
        """Free the session, which may map the file's weights."""
        self._session = None
