"""What everything that runs offers, an artifact and the reference alike.

    with tfgraph.compile(graph) as model:
        outputs = model(**model.example({"seq": 33}))

May import: the other files of runtime, errors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from tfgraph.errors import TfgraphError
from tfgraph.runtime.examples import example
from tfgraph.runtime.inputs import check_dims

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Never, Self

    import numpy as np

    from tfgraph.runtime.sizes import Port, SymbolRange

    Array = np.ndarray[Any, np.dtype[Any]]


class Runnable(ABC):
    """A callable from arrays by input name to arrays by output name."""

    name: str
    target: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    symbols: Mapping[str, SymbolRange]

    @abstractmethod
    def __call__(
        self,
        /,
        *unnamed: Never,
        dims: Mapping[str, int] | None = None,
        out: Any = None,
        **inputs: Any,
    ) -> dict[str, Array]:
        """Run on arrays by input name; the outputs by name.

        Inputs are NumPy arrays or DLPack tensors in the CPU's memory, of the dtype that the port
        names; where their bytes lie in a way that kernels can't read, they are copied. `dims` gives
        the sizes of symbols that no input's shape tells.

        Outputs are new arrays, which belong to the caller. Those named in `out` are written to the
        arrays it gives, by a copy when all is computed, and these are what is returned: writable,
        of the output's dtype and of its shape at this call's sizes, apart from the inputs and from
        each other. Raises TfgraphError for a wrong or missing name, dtype, shape, size or id.
        """

    def example(
        self, dims: Mapping[str, int] | None = None, seed: int = 0, **mistaken: Never
    ) -> dict[str, Array]:
        """Inputs from the model's generators, at its example sizes unless `dims` says others.
        Raises TfgraphError for an unknown symbol and for a size out of its range."""
        if mistaken:
            raise TfgraphError(
                f"example has no argument '{next(iter(mistaken))}'",
                hint=f"sizes are given as model.example({dict(mistaken)})",
            )
        sizes = self.sizes(dims)
        return {port.name: example(port, sizes, seed) for port in self.inputs}

    def sizes(self, dims: Mapping[str, int] | None = None) -> dict[str, int]:
        """The example size of each symbol, with those in `dims` instead; raises as `example`."""
        given = check_dims(dims, self.symbols)
        for name, size in given.items():
            self.symbols[name].check(name, size, "dims")
        return {name: s.example for name, s in self.symbols.items()} | given

    def close(self) -> None:  # noqa: B027 - not all hold something
        """Free what it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, ports)) for ports in (self.inputs, self.outputs))
        return f"<{self.name} for {self.target}: {inputs} -> {outputs}>"
