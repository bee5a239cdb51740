"""Where the logits of a generation come from: the cache, or all tokens anew at each step.

Both have `feed`, `reorder` and `prefills`, so that one may stand for the other, or be checked
against it. Rows are lists of tokens of any lengths. May import: numpy, runnable, state, errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tfgraph.errors import TfgraphError
from tfgraph.runtime.state import State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfgraph.runtime.runnable import Runnable

    Array = np.ndarray[Any, np.dtype[Any]]
    Rows = Sequence[Sequence[int]]
    Encoded = Rows | dict[str, Array]
    """What an encoder-decoder encodes: tokens, or its encoder's inputs by name."""


class Source(Protocol):
    """Gives the logits behind the tokens that each row has."""

    @property
    def prefills(self) -> list[int]:
        """How many tokens each call took that took more than each row's newest."""
        ...

    def feed(self, rows: Rows) -> Array:
        """The logits [batch, vocabulary] behind these further tokens of each row."""
        ...

    def reorder(self, rows: Sequence[int]) -> None:
        """Row i goes on from what row rows[i] has."""
        ...


def apart(a: Array, b: Array) -> float:
    """The largest difference of two elements: NaN is no different from NaN, and infinitely so from
    anything else."""
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):  # infinity less itself
        found = np.where(same, 0.0, np.abs(a.astype(np.float64) - b))
    return float(np.where(np.isnan(found), np.inf, found).max())


class Cached:
    """The step of a model, with a state."""

    def __init__(
        self, model: Runnable, encoded: Mapping[str, Array], chunk: int | None = None
    ) -> None:
        """`encoded` is what `encode` made, if there is such; prompts are fed in pieces of at most
        `chunk` tokens."""
        self.prefills = list[int]()
        self._step = step_of(model)
        self._encoded = encoded
        self._chunk = chunk
        self._state: State | None = None

    def feed(self, rows: Rows) -> Array:
        """The first rows are the prompts: shorter ones are padded on the left."""
        longest = max(map(len, rows))
        if self._state is None:
            first = [longest - len(row) for row in rows]
            self._state = State(self._step, len(rows), first, self._encoded)
        ids = np.array([[0] * (longest - len(row)) + list(row) for row in rows], np.int64)
        size = self._chunk or longest
        pieces = [ids[:, i : i + size] for i in range(0, longest, size)]
        if longest > 1 or self._state.length == 0:
            self.prefills += [piece.shape[1] for piece in pieces]
        return [self._state.feed(piece) for piece in pieces][-1]

    def reorder(self, rows: Sequence[int]) -> None:
        """The same of the state."""
        assert self._state is not None  # prompts come first
        self._state.reorder(rows)


class Uncached:
    """The whole model on all tokens of each row, each row alone: nothing is kept or padded."""

    def __init__(self, model: Runnable, sources: Encoded | None) -> None:
        """`sources` are those of an encoder-decoder, a row each."""
        self.prefills = list[int]()
        self._model = model
        self._sources = sources
        self._seen: list[list[int]] = []

    def feed(self, rows: Rows) -> Array:
        """Rows grow by these tokens."""
        before = self._seen or [list[int]() for _ in rows]
        self._seen = [[*old, *new] for old, new in zip(before, rows, strict=True)]
        self.prefills.append(max(map(len, self._seen)))
        return np.stack([self._last(i, row) for i, row in enumerate(self._seen)])

    def reorder(self, rows: Sequence[int]) -> None:
        """The same of the rows."""
        self._seen = [self._seen[row] for row in rows]
        if self._sources is not None:
            self._sources = _chosen(self._sources, rows)

    def _last(self, i: int, row: Sequence[int]) -> Array:
        ids = np.array([row], np.int64)
        given: dict[str, Any] = {"input_ids": ids}
        if isinstance(self._sources, dict):
            given = {name: array[i : i + 1] for name, array in self._sources.items()}
            given["decoder_input_ids"] = ids
        elif self._sources is not None:
            given = {"input_ids": np.array([self._sources[i]], np.int64), "decoder_input_ids": ids}
        names = {port.name for port in self._model.inputs}
        if "attention_mask" in names - given.keys():
            given["attention_mask"] = np.ones_like(given["input_ids"])
        if "token_type_ids" in names:
            given["token_type_ids"] = np.zeros_like(ids)
        logits: Array = self._model(**given)["logits"][0, -1]
        return logits


def step_of(model: Runnable) -> Runnable:
    """The step of a model. Raises TfgraphError where it has none."""
    if "step" not in model.functions:
        reason = "" if model.no_generation is None else f": {model.no_generation}"
        raise TfgraphError(
            f"{model.name} does not generate{reason}",
            hint="a causal decoder with `head: lm` does, compiled from its YAML",
        )
    return model.functions["step"]


def _chosen(sources: Encoded, rows: Sequence[int]) -> Encoded:
    """Some rows of what is encoded."""
    if isinstance(sources, dict):
        return {name: array[list(rows)] for name, array in sources.items()}
    return [sources[row] for row in rows]


def new_state(
    model: Runnable, batch: int, first: Sequence[int] | None, sources: Encoded | None
) -> State:
    """See `Runnable.new_state`."""
    step = step_of(model)
    if ("encode" in model.functions) != (sources is not None):
        needs = "needs sources" if sources is None else "is no encoder-decoder: it has no sources"
        raise TfgraphError(f"{model.name} {needs}")
    return State(step, batch, first, None if sources is None else encode(model, sources))


def encode(model: Runnable, sources: Encoded) -> dict[str, Array]:
    """What each step reads of the sources, shorter ones padded behind; the mask of that with it.

    Raises TfgraphError where lengths differ and the model has no mask for them, and where an input
    by name is missing or does not fit.
    """
    function = model.functions["encode"]
    if isinstance(sources, dict):
        named: dict[str, Any] = sources
        mask = {name: array for name, array in named.items() if name == "attention_mask"}
        return function(**named) | mask
    _require_tokens(function)
    masked = any(port.name == "attention_mask" for port in function.inputs)
    lengths = [len(source) for source in sources]
    longest = max(lengths)
    if not masked and min(lengths) < longest:
        raise TfgraphError(
            f"sources of {min(lengths)} and {longest} tokens, and {model.name} has no mask for the "
            "padding of the shorter",
            hint="generate for each alone, or compile it with mask: padding",
        )
    ids = np.array([[*s, *[0] * (longest - len(s))] for s in sources], np.int64)
    given: dict[str, Any] = {"input_ids": ids}
    if masked:
        given["attention_mask"] = (np.arange(longest) < np.array(lengths)[:, None]).astype(np.int64)
    made = function(**given)
    return {**made, "attention_mask": given["attention_mask"]} if masked else made


def _require_tokens(encode: Runnable) -> None:
    names = [port.name for port in encode.inputs]
    if "input_ids" not in names:
        raise TfgraphError(
            f"{encode.name} encodes no tokens, but {', '.join(names)}",
            hint="give it by name: an array in Python, --input NAME=FILE.npy",
        )
