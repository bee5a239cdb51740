"""One function of a loaded artifact: checks what it is given, then runs the compiled program.

May import: numpy, the other files of runtime, errors.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tfgraph.errors import TfgraphError
from tfgraph.runtime.ending import Mapped
from tfgraph.runtime.inputs import Inputs, refuse_positional
from tfgraph.runtime.jit import CodePlace, Program
from tfgraph.runtime.kept import Kept, Known
from tfgraph.runtime.outputs import check_out
from tfgraph.runtime.runnable import Runnable
from tfgraph.runtime.sizes import Port, SymbolRange, evaluate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Never

    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]


class Code:
    """The program of an artifact and its weights by name, which its functions share."""

    def __init__(self, program: Program, tensors: Mapping[str, Array]) -> None:
        self.program = program
        self._places = {name: i for i, name in enumerate(tensors)}
        self._mapped = Mapped([program.place.tensor(array) for array in tensors.values()])
        self._weights: dict[str, list[Any]] = {}

    def weight(self, name: str) -> Any:
        """A weight by its name."""
        return self._mapped.tensors[self._places[name]]

    def weights(self, function: str, names: Sequence[str]) -> list[Any]:
        """The weights of these names, which `function` takes."""
        if function not in self._weights:
            self._weights[function] = self._mapped.chosen(self._places[name] for name in names)
        return self._weights[function]


class Loaded:
    """Holds the code until it is closed. One attribute, so that a call sees it all or, once closed
    by another thread, nothing."""

    def __init__(self, code: Code | None = None) -> None:
        self.code = code


class Function(Runnable):
    """A function by its name in the program, and its entry in the manifest."""

    def __init__(
        self,
        name: str,
        target: str,
        function: str,
        entry: Mapping[str, Any],
        loaded: Loaded,
        place: CodePlace,
    ) -> None:
        """`name` is what errors call the model."""
        self.name, self.target = name, target
        self.place = self._place = place
        self.inputs = tuple(_port(p) for p in entry["inputs"])
        self.outputs = tuple(_port(p) for p in entry["outputs"])
        self.symbols = {
            symbol: SymbolRange(s["min"], s["max"], s["example"])
            for symbol, s in entry["symbols"].items()
        }
        self.constraints: tuple[str, ...] = tuple(entry["constraints"])
        self._names = tuple(port.name for port in self.outputs)
        self._check = Inputs(self.inputs, self.symbols, self.constraints, place)
        self._function = function
        self._scalars: list[str] = entry["scalars"]
        self._weights = tuple(str(w["name"]) for w in entry["weights"])
        self._memory: int | str = entry.get("memory", 0)
        self._states = {p.name for p in self.inputs if p.is_state}
        self._new = [i for i, name in enumerate(self._names) if name not in self._states]
        self._loaded = loaded

    def __call__(
        self,
        /,
        *unnamed: Never,
        dims: Mapping[str, int] | None = None,
        out: Any = None,
        **inputs: Any,
    ) -> dict[str, Array]:
        """Run on arrays by input name; the outputs by name. A state is updated in place: its output
        is the array that was given. On a GPU, inputs may lie there, and the outputs then do, too;
        so may the arrays of `out`.

        See `Runnable.__call__`. Raises TfgraphError besides where memory does not suffice, where
        the model is closed, and in a process that was forked after it was loaded.
        """
        refuse_positional(unnamed, self.inputs)
        code = self._code()
        arrays, sizes = self._check.check(inputs, dims)
        self._place.check_states(self._states, arrays)
        places = check_out(self.outputs, sizes, arrays, out, self._place)
        found = self._run(code, [self._place.tensor(array) for array in arrays.values()], sizes)
        returned = self._place.returned(arrays)
        results: dict[str, Array] = {}
        for name, tensor in zip(self._names, found, strict=True):
            if name in self._states:
                self._place.update(arrays[name], tensor)
            if name in places:
                self._place.update(places[name], tensor)
                results[name] = out[name]
            else:
                results[name] = arrays[name] if name in self._states else returned(tensor)
        return results

    def keep(self, arrays: Mapping[str, Array]) -> Kept:
        """See `Runnable.keep`."""
        kept = Kept(self._check.part(arrays))
        self._place.check_states(self._states, kept.arrays)
        return kept

    def resume(self, kept: Kept, dims: Mapping[str, int], **inputs: Any) -> dict[str, Array]:
        """See `Runnable.resume`."""
        code = self._code()
        known, arrays, sizes = self._checked(kept, dims, inputs)
        returned = self._place.returned({name: arrays[name] for name in inputs})
        given = [
            self._place.tensor(arrays[port.name]) if tensor is None else tensor
            for port, tensor in zip(self.inputs, known.arguments, strict=True)
        ]
        if known.in_place:
            found = self._run(code, given, sizes, self._new)
            return {self._names[i]: returned(t) for i, t in zip(self._new, found, strict=True)}
        every = dict(zip(self._names, self._run(code, given, sizes), strict=True))
        moved = [self._place.update(kept.arrays[name], every.pop(name)) for name in self._states]
        known.in_place = not any(moved)
        return {name: returned(tensor) for name, tensor in every.items()}

    def _checked(
        self, kept: Kept, dims: Mapping[str, int], inputs: Mapping[str, Any]
    ) -> tuple[Known, dict[str, Array], dict[str, int]]:
        """What is known of what is kept, all inputs as arrays, and the size of each symbol."""
        known = kept.known
        if known is not None and known.holds(kept.arrays, dims):
            again = {p.name: kept.arrays[p.name] for p in known.others if p.name in kept.arrays}
            with suppress(TfgraphError):  # below, it is told as a call on all inputs tells it
                arrays, sizes = self._check.check({**inputs, **again}, dims, known)
                return known, kept.arrays | arrays, sizes
        arrays, sizes = self._check.check(dict(**inputs, **kept.arrays), dims)
        self._place.check_states(self._states, arrays)
        kept.arrays.update({name: arrays[name] for name in kept.arrays})
        told, others = self._check.known(kept.arrays)
        settled = kept.arrays.keys() - {port.name for port in others}
        tensors = {name: self._place.lasting(arrays[name]) for name in settled}
        arguments = [tensors.get(port.name) for port in self.inputs]
        known = kept.known = Known(dict(kept.arrays), self._place, told, others, arguments)
        return known, arrays, sizes

    def _code(self) -> Code:
        if self._loaded.code is None:
            raise TfgraphError(f"model '{self.name}' is closed")
        return self._loaded.code

    def _run(
        self,
        code: Code,
        arguments: list[Any],
        sizes: Mapping[str, int],
        wanted: Sequence[int] | None = None,
    ) -> Sequence[Any]:
        """The outputs at these places, all where none are given, of tensors for the inputs."""
        self._place.refuse_absurd(evaluate(self._memory, sizes), self.name, sizes)
        arguments += [sizes[name] for name in self._scalars]
        arguments += code.weights(self._function, self._weights)
        return code.program.run(self._function, arguments, wanted)


def _port(entry: Mapping[str, Any]) -> Port:
    return Port(
        entry["name"],
        entry["dtype"],
        tuple(entry["shape"]),
        entry.get("generator", ""),
        entry.get("limit"),
        entry.get("attention", False),
        entry.get("least", None if entry.get("limit") is None else 0),
    )
