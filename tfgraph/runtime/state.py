"""What a model has seen of a batch: the keys and values of every token, which each step reads.

    state = model.new_state(batch=2)
    logits = state.feed(ids)            # [2, n] tokens, in pieces of any length
    other = state.fork()                # goes on apart
    state.reorder([1, 1])               # row 1 twice, as beams do
    state.truncate(4)                   # forgets all but the first 4 tokens

Any number of states may take turns on one model. The keys and values lie where the model has them.
May import: numpy, arrays, runnable, sizes, errors.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.errors import TfgraphError
from tfgraph.runtime.arrays import aligned_empty
from tfgraph.runtime.sizes import evaluate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfgraph.runtime.runnable import Runnable

    Array = np.ndarray[Any, np.dtype[Any]]

BLOCK = 64
"""Rows by which the arrays grow."""


class State:
    """`length` tokens of each of `batch` rows, of which the `first` ones of each are padding."""

    def __init__(
        self,
        step: Runnable,
        batch: int,
        first: Sequence[int] | Array | None = None,
        memory: Mapping[str, Array] | None = None,
    ) -> None:
        """Nothing seen yet. `memory` is what `encode` made of the source of an encoder-decoder.

        Raises TfgraphError for a batch that the model does not take.
        """
        bounds = step.symbols["batch"]
        if not bounds.low <= batch <= bounds.high:
            raise TfgraphError(f"batch is {batch}, expected {bounds.low} to {bounds.high}")
        self.batch = batch
        self.first: Array = aligned_empty((batch,), np.int64)
        self.first[:] = 0
        if first is not None:
            if np.shape(first) != (batch,):
                shape = list(np.shape(first))
                raise TfgraphError(f"first has shape {shape}, expected [{batch}]")
            self.first[:] = first
        if self.first.min() < 0:
            raise TfgraphError(f"first is {self.first.min()}: a row has no tokens before its first")
        self.length = 0
        self._step = step
        self._memory = dict(memory or {})
        self._names = [p.name for p in step.inputs if p.is_state]
        self._keep({name: self._empty(name, 0) for name in self._names})

    @property
    def capacity(self) -> int:
        """The tokens for which there is room."""
        return next((self._kept.arrays[name].shape[1] for name in self._names), 0)

    @property
    def longest(self) -> int:
        """The most tokens that the model takes."""
        return self._step.symbols["end"].high

    def feed(self, ids: Array) -> Array:
        """The logits [batch, vocabulary] after the tokens ids i64[batch, n], which are then seen.

        Raises TfgraphError for a wrong shape, an id out of range, or more tokens than the model
        takes; the state is then as it was.
        """
        count = np.shape(ids)[1] if np.ndim(ids) == 2 else 0
        if np.shape(ids)[:1] != (self.batch,) or not count:
            shape = list(np.shape(ids))
            raise TfgraphError(f"ids have shape {shape}, expected [{self.batch}, n], n at least 1")
        end = self.length + count
        if end > self.longest:
            raise TfgraphError(
                f"{self._step.name} takes at most {self.longest} tokens, and these would be {end}"
            )
        self._reserve(end)
        found = self._step.resume(self._kept, {"end": end}, input_ids=ids)
        self.length = end
        return found["logits"]

    def fork(self) -> State:
        """A state that has seen the same, and goes on apart."""
        return self.reordered(range(self.batch))

    def reordered(self, rows: Sequence[int]) -> State:
        """A state whose row i has seen what row rows[i] of this one has; there may be more of them,
        or fewer."""
        chosen = [operator.index(row) for row in rows]
        if not chosen or not all(0 <= row < self.batch for row in chosen):
            raise TfgraphError(f"rows are {chosen}, expected some of 0 to {self.batch - 1}")
        memory = {name: array[chosen] for name, array in self._memory.items()}
        made = State(self._step, len(chosen), self.first[chosen], memory)
        made._reserve(self.length)
        self._copy_to(made._kept.arrays, chosen)
        made.length = self.length
        return made

    def reorder(self, rows: Sequence[int]) -> None:
        """Become `reordered(rows)`."""
        self.__dict__ = self.reordered(rows).__dict__

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` tokens of each row."""
        if not 0 <= length <= self.length:
            raise TfgraphError(f"length is {length}, expected 0 to {self.length}")
        self.length = length

    def _reserve(self, length: int) -> None:
        """Room for so many tokens, in whole blocks."""
        rows = -(-length // BLOCK) * BLOCK
        if rows > self.capacity:
            grown = {name: self._empty(name, rows) for name in self._names}
            self._copy_to(grown, range(self.batch))
            self._keep(grown)

    def _copy_to(self, arrays: Mapping[str, Array], rows: Sequence[int]) -> None:
        """What was seen, of some of the rows."""
        for name in self._names:
            source = self._kept.arrays[name]
            self._step.place.copy_rows(arrays[name], source, list(rows), self.length)

    def _keep(self, states: dict[str, Array]) -> None:
        self._kept = self._step.keep({"first": self.first, **self._memory, **states})

    def _empty(self, name: str, rows: int) -> Array:
        """An array for a state; what its rows hold before they are written, nothing reads."""
        port = next(p for p in self._step.inputs if p.name == name)
        sizes = {"batch": self.batch, "capacity": rows}
        shape = tuple(evaluate(dim, sizes) for dim in port.shape)
        made: Array = self._step.place.empty(shape, port.dtype)
        return made

    def __repr__(self) -> str:
        return f"<state of {self._step.name}: {self.length} tokens of {self.batch} rows>"
