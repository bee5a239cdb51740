"""Generation: tokens one after another, each drawn from what the model says of those before it.

    for token in model.generate([5, 6, 7], max_tokens=20):
        ...

May import: numpy, runnable, beams, prompts, sampling, source, errors.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from tfgraph.errors import TfgraphError
from tfgraph.runtime.beams import search
from tfgraph.runtime.prompts import (
    arrays_of,
    prompts_of,
    require_count,
    taken_of,
    target_of,
    tokens_of,
)
from tfgraph.runtime.sampling import GREEDY, Sampling, draw, probabilities
from tfgraph.runtime.source import Cached, Source, Uncached, apart, encode, step_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from tfgraph.runtime.runnable import Runnable
    from tfgraph.runtime.source import Encoded

    Array = np.ndarray[Any, np.dtype[Any]]


class Generation:
    """An iterator over the tokens of one prompt; over lists of them, for several prompts, with None
    for rows that have ended.

    What is known so far: `steps`, how often the model was asked, `prefills`, and, where that is
    asked for, the `difference` of the logits from those without a cache: the largest, infinite
    where only one of two is NaN. `out_of_positions` says, at the end, whether it ended because the
    model takes no more tokens. `on_step` is called when a step is done.
    """

    def __init__(
        self,
        model: Runnable,
        ids: Sequence[int] | Sequence[Sequence[int]] | dict[str, Array],
        *,
        max_tokens: int,
        sampling: Sampling = GREEDY,
        stop: Collection[int] = (),
        suppress: Collection[int] = (),
        suppress_first: Collection[int] = (),
        seed: int = 0,
        beams: int = 1,
        cache: bool = True,
        check_cache: bool = False,
        chunk: int | None = None,
        prefix: Sequence[int] | None = None,
    ) -> None:
        """See `Runnable.generate`."""
        step = step_of(model)
        for name, least, got in (
            ("max_tokens", 0, max_tokens),
            ("beams", 1, beams),
            ("chunk", 1, chunk),
            ("seed", 0, seed),
        ):
            if got is not None:
                require_count(name, got, least)
        self._sources: Encoded | None = None
        prompts: list[list[int]] = []
        if isinstance(ids, dict):
            self._sources, count = arrays_of(model, ids)
            self._several = count > 1
        else:
            prompts, self._several = prompts_of(ids)
            count = len(prompts)
            self._sources = prompts if "encode" in model.functions else None
        if beams > 1:
            _require_one_that_is_plain(count, sampling)
        if prefix is not None and self._sources is None:
            raise TfgraphError(f"{model.name} is no encoder-decoder: it has no prefix")
        self._prompts = prompts
        if self._sources is not None:
            self._prompts = [target_of(model, step, prefix)] * count
        longest, high = max(map(len, self._prompts)), step.symbols["end"].high
        if longest > high:
            raise TfgraphError(
                f"{model.name} takes at most {high} tokens, and these would be {longest}"
            )
        self._max_tokens = min(max_tokens, high + 1 - longest)  # the last new token is not fed
        self._cut = self._max_tokens < max_tokens
        self._sampling, self._stop, self._beams = sampling, tokens_of(stop, "stop"), beams
        self._seed = seed
        never = taken_of(step, suppress, "suppress")
        self._never = sorted(never)
        self._never_first = sorted(never | taken_of(step, suppress_first, "suppress_first"))
        self.steps = 0
        self.out_of_positions = False
        self.on_step: Callable[[], None] = lambda: None
        self.difference: float | None = 0.0 if check_cache else None
        self._source: Source
        self._check = Uncached(model, self._sources) if check_cache else None
        if cache:
            encoded = {} if self._sources is None else encode(model, self._sources)
            self._source = Cached(model, encoded, chunk)
        else:
            self._source = Uncached(model, self._sources)
        self._tokens = self._search() if beams > 1 else self._draw()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._tokens)

    def feed(self, rows: Sequence[Sequence[int]]) -> Array:
        """The logits behind these further tokens, minus infinity of those that are never taken;
        compared, where that is asked for."""
        self.steps += 1
        logits = self._source.feed(rows)
        if self._check is not None:
            self.difference = max(self.difference or 0.0, apart(logits, self._check.feed(rows)))
        self.on_step()
        never = self._never_first if self.steps == 1 else self._never
        if never:
            logits = logits.copy()
            logits[:, never] = -np.inf
        return logits

    def reorder(self, rows: Sequence[int]) -> None:
        """Row i goes on from row rows[i], as beams do."""
        for source in filter(None, (self._source, self._check)):
            source.reorder(rows)

    def _draw(self) -> Iterator[Any]:
        """A token for each row, then the next; a row has random numbers of its own."""
        seen = [list(prompt) for prompt in self._prompts]
        streams = [np.random.Generator(np.random.Philox([self._seed, i])) for i in range(len(seen))]
        ended = [False] * len(seen)
        new: Sequence[Sequence[int]] = self._prompts
        for _ in range(self._max_tokens):
            logits = self.feed(new)
            drawn: list[int | None] = []
            for i, row in enumerate(logits):
                if ended[i]:  # its last token is fed again, and what comes of that is not looked at
                    drawn.append(None)
                    continue
                p = probabilities(row, seen[i], self._sampling)
                token = draw(p, streams[i])
                seen[i].append(token)
                drawn.append(token)
                ended[i] = token in self._stop
            yield drawn if self._several else drawn[0]
            if all(ended):
                return
            new = [row[-1:] for row in seen]
        self.out_of_positions = self._cut

    def _search(self) -> Iterator[int]:
        """The tokens of the best beam, when it is known."""
        found = search(self, self._prompts[0], self._beams, self._max_tokens, self._stop)
        yield from found
        whole = len(found) == self._max_tokens
        self.out_of_positions = self._cut and whole and found[-1] not in self._stop

    @property
    def prefills(self) -> list[int]:
        """The tokens of each call that took more than each row's newest."""
        return self._source.prefills


def _require_one_that_is_plain(prompts: int, sampling: Sampling) -> None:
    """Raise TfgraphError for what beams do not take."""
    if prompts > 1:
        raise TfgraphError(f"beams are for one prompt, and these are {prompts}")
    names = [f.name for f in fields(sampling)]
    others = [name for name in names if getattr(sampling, name) != getattr(GREEDY, name)]
    if others:
        raise TfgraphError(f"beams go by the logits as they are, without {', '.join(others)}")
