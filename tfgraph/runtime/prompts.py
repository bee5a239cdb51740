"""What a generation is given, checked: prompts, the target so far, stop tokens, counts.

May import: numpy, runnable, errors.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.errors import TfgraphError

if TYPE_CHECKING:
    from tfgraph.runtime.runnable import Runnable


def prompts_of(ids: Any) -> tuple[list[list[int]], bool]:
    """The prompts as lists of ints, and whether they were given as several. Raises TfgraphError
    for one without tokens, and for tokens that are no integers."""
    first: Any = None
    with contextlib.suppress(TypeError, IndexError, KeyError):  # `_row` says what is wrong
        first = ids[0]
    several = isinstance(first, Sequence | np.ndarray) and not isinstance(first, str | bytes)
    return [_row(row, "ids") for row in (ids if several else [ids])], several


def target_of(model: Runnable, step: Runnable, prefix: Any) -> list[int]:
    """The target so far: `prefix`, or where that is None the model's start tokens. Raises
    TfgraphError for an id out of range too, by the name that it was given by: the step calls all
    tokens `input_ids`."""
    what = "the start" if prefix is None else "prefix"
    target = _row(model.generation.target if prefix is None else prefix, what)
    return _in_range(step, target, what)


def taken_of(step: Runnable, tokens: Any, what: str) -> set[int]:
    """Tokens that a model takes, perhaps none. Raises TfgraphError for others."""
    return set(_in_range(step, _row(tokens, what, least=0), what))


def arrays_of(model: Runnable, given: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """The inputs of a model's encoder by name, and of how many rows they are. Raises TfgraphError
    for a model that has no encoder, and where there are no rows, or not as many in each."""
    if "encode" not in model.functions:
        raise TfgraphError(f"{model.name} is no encoder-decoder: its prompts are tokens")
    arrays = {name: np.asarray(array) for name, array in given.items()}
    counts = {name: array.shape[0] if array.ndim else 0 for name, array in arrays.items()}
    rows = set(counts.values())
    if len(rows) != 1 or not all(rows):
        shown = ", ".join(f"{n} of {name}" for name, n in counts.items()) or "none"
        raise TfgraphError(f"inputs of the encoder have rows: {shown}; expected as many in each")
    return arrays, rows.pop()


def tokens_of(tokens: Any, what: str) -> set[int]:
    """Tokens of an option, perhaps none. Raises TfgraphError for what is no integer."""
    return set(_row(tokens, what, least=0))


def require_count(name: str, got: Any, least: int) -> None:
    """Raise TfgraphError unless it is an integer of at least that."""
    if not isinstance(got, int | np.integer):
        raise TfgraphError(f"{name} is {got!r:.40}, expected an integer")
    if got < least:
        raise TfgraphError(f"{name} is {got}, expected at least {least}")


def _in_range(step: Runnable, tokens: list[int], what: str) -> list[int]:
    limit = next(port.limit for port in step.inputs if port.name == "input_ids")
    for token in tokens:
        if isinstance(limit, int) and not 0 <= token < limit:
            raise TfgraphError(f"{what} holds {token}, expected 0 to {limit - 1}")
    return tokens


def _row(ids: Any, what: str, least: int = 1) -> list[int]:
    """Tokens as ints, at least so many."""
    given: list[Any] = list(ids) if np.iterable(ids) else [None]
    with contextlib.suppress(TypeError):
        row = [operator.index(token) for token in given if not isinstance(token, bool)]
        if len(row) == len(given) >= least:
            return row
    text = any(isinstance(token, str) for token in given)
    raise TfgraphError(
        f"{what} are {ids!r:.60}, expected integers" + ", at least one" * bool(least),
        hint="model.tokenizer.encode(text) makes ids of a text" if text else None,
    )
